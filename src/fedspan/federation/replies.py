"""What comes back from a call. Partial failure is data, not an exception."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import FedspanError, InputError
from fedspan.federation.outcomes import Failure
from fedspan.wire import Message, Value, canonical


class Replies(Mapping[str, Message]):
    """The answers by site name, in name order, and the failures with their reasons.

    Attributes
    ----------
    ok : dict of site name to reply
    failed : dict of site name to reason

    Examples
    --------
    >>> replies = Replies({"a": {"x": np.zeros(2)}, "b": {"x": np.ones(2)}}, {"c": "no reply"})
    >>> replies["b"]["x"], replies.stack("x").shape, replies.failed
    (array([1., 1.]), (2, 2), {'c': 'no reply'})
    """

    def __init__(self, ok: Mapping[str, Message], failed: Mapping[str, Failure]) -> None:
        self.ok = {name: ok[name] for name in sorted(ok)}
        self.failed = {name: failed[name] for name in sorted(failed)}

    def __getitem__(self, site: str) -> Message:
        if site not in self.ok and site in self.failed:
            raise FailedSiteError(f"site {site!r} gave no usable reply: {self.failed[site]}")
        return self.ok[site]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ok)

    def __len__(self) -> int:
        return len(self.ok)

    def __repr__(self) -> str:
        return f"Replies(ok={list(self.ok)}, failed={self.failed})"

    def stack(self, key: str) -> NDArray[Any]:
        """Return the value of `key` of every site that answered, stacked along a new first axis, in name order."""
        values = [np.asarray(self._value(site, key)) for site in self.ok]
        shapes = {value.shape for value in values}
        if len(shapes) > 1:
            raise InputError(f"{key!r} cannot be stacked: the sites sent the shapes {sorted(shapes)}")
        return np.stack(values)

    def _value(self, site: str, key: str) -> Value:
        try:
            return self.ok[site][key]
        except KeyError:
            raise InputError(f"site {site!r} sent no {key!r}, it sent {sorted(self.ok[site])}") from None


class Total(dict[str, Value]):
    """The sum or mean over the sites that answered: a plain dict that also knows their names.

    Attributes
    ----------
    sites : tuple of str
        Who is in it.
    failed : dict of site name to reason
    """

    def __init__(self, values: Message, sites: Iterable[str], failed: Mapping[str, Failure]) -> None:
        super().__init__(values)
        self.sites = tuple(sites)
        self.failed = dict(failed)


class FailedSiteError(FedspanError, KeyError):
    """A protocol reads the reply of a site that gave none."""

    def __str__(self) -> str:
        return str(self.args[0])


def total(replies: Mapping[str, Message], step: str, *, mean: bool) -> Message:
    """Add replies up in name order, every key on its own; counts stay exact, floats are added in double precision."""
    names = sorted(replies)
    result: Message = {}
    for key in replies[names[0]] if names else ():
        values = [replies[name].get(key) for name in names]
        result[key] = _add(values, key, step)
    return canonical(averaged(result, len(names)) if mean else result, f"total of step {step!r}")


def averaged(total: Message, count: int) -> Message:
    """Return the mean of `count` replies whose sum is `total`."""
    return {key: value / count for key, value in total.items()}


def _add(values: list[Value], key: str, step: str) -> Value:
    types = set(map(type, values))
    if types <= {bool, int, float, complex}:
        return sum(values)
    if types & {str, type(None)}:
        raise InputError(
            f"the replies of step {step!r} cannot be added up: {key!r} is not a number or an array of numbers"
        )
    arrays = [np.asarray(value) for value in values]
    shapes = {array.shape for array in arrays}
    kinds = {array.dtype.kind for array in arrays}
    if len(shapes) > 1:
        raise InputError(f"the replies of step {step!r} cannot be added up: {key!r} has the shapes {sorted(shapes)}")
    if kinds & set("US"):
        raise InputError(f"the replies of step {step!r} cannot be added up: {key!r} is text")
    if "c" in kinds:
        wide: type = np.complex128
    elif "f" in kinds:
        wide = np.float64
    else:
        wide = np.uint64 if kinds == {"u"} else np.int64
        largest = sum(max(abs(int(a.max())), abs(int(a.min()))) for a in arrays if a.size)
        if largest > np.iinfo(wide).max:
            raise InputError(f"the replies of step {step!r} cannot be added up: {key!r} would overflow 64 bits")
    acc: NDArray[Any] = np.zeros(arrays[0].shape, dtype=wide)
    with np.errstate(over="ignore"):  # an overflow is told by whoever looks at the total
        for array in arrays:
            acc += array.astype(wide, copy=False)
    return acc

"""Replies to one call, and their totals. Partial failure is data, not an exception."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import FedspanError, InputError
from fedspan.federation.outcomes import Failure
from fedspan.wire import Message, Value


class Replies(Mapping[str, Message]):
    """The replies by site name, in name order, and the failures with their reasons.

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
        for site, reply in self.ok.items():
            if key not in reply:
                raise InputError(f"site {site!r} sent no {key!r}, it sent {sorted(reply)}")
        values = [np.asarray(reply[key]) for reply in self.ok.values()]
        shapes = {value.shape for value in values}
        if len(shapes) > 1:
            raise InputError(f"{key!r} cannot be stacked: the sites sent the shapes {sorted(shapes)}")
        return np.stack(values)


class Total(dict[str, Value]):
    """The sum or mean over the sites that answered: a plain dict that also knows their names.

    Attributes
    ----------
    sites : tuple of str
        The sites whose replies were added up.
    failed : dict of site name to reason
    """

    def __init__(self, values: Message, sites: Iterable[str], failed: Mapping[str, Failure]) -> None:
        super().__init__(values)
        self.sites = tuple(sites)
        self.failed = dict(failed)


class FailedSiteError(FedspanError, KeyError):
    """A protocol reads the reply of a site that failed."""

    def __str__(self) -> str:
        return str(self.args[0])


def total(replies: Sequence[Message], step: str, *, into_first: bool = False) -> Message:
    """Add replies up in their order, every key on its own; counts stay exact, floats are added in double precision.

    With `into_first` the first one is itself a total, which is not needed any more: the others may be added into it.
    """
    result: Message = {}
    for key in replies[0] if replies else ():
        try:
            result[key] = _sum([reply.get(key) for reply in replies], into_first)
        except InputError as error:
            raise InputError(f"the replies of step {step!r} cannot be added up: {key!r} {error}") from None
    return result


def averaged(total: Message, count: int) -> Message:
    """Return the mean of `count` replies whose sum is `total`."""
    return {key: value / count for key, value in total.items()}


def _sum(values: list[Value], into_first: bool = False) -> Value:
    types = set(map(type, values))
    if types <= {bool, int, float, complex}:
        return sum(values)
    if types & {str, type(None)}:
        raise InputError("is not a number or an array of numbers")
    arrays = [np.asarray(value) for value in values]
    shapes = {array.shape for array in arrays}
    kinds = {array.dtype.kind for array in arrays}
    if len(shapes) > 1:
        raise InputError(f"has the shapes {sorted(shapes)}")
    if kinds & set("US"):
        raise InputError("is text")
    if kinds & set("cf"):
        wide: type = np.complex128 if "c" in kinds else np.float64
    else:
        wide = np.uint64 if kinds == {"u"} else np.int64
        if _largest_sum(arrays) > np.iinfo(wide).max:
            raise InputError("would overflow 64 bits")
    if into_first and kinds & set("cf") and arrays[0].dtype == wide and arrays[0].flags.writeable:
        found, *arrays = arrays
    else:
        found = np.zeros(arrays[0].shape, dtype=wide)
    with np.errstate(over="ignore"):  # the federation refuses a total that is not finite
        for array in arrays:
            found += array if array.dtype == wide or array.dtype.kind == "f" else array.astype(wide)
    return found


def _largest_sum(arrays: list[NDArray[Any]]) -> int:
    """Return a bound of the magnitudes of a sum of whole numbers."""
    if not arrays[0].size:
        return 0
    flat = np.concatenate(arrays, axis=None)
    bound = len(arrays) * max(abs(int(flat.max())), abs(int(flat.min())))
    if bound <= np.iinfo(np.int64).max:
        return bound
    return sum(max(abs(int(array.max())), abs(int(array.min()))) for array in arrays)

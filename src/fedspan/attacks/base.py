"""What all attacks share: which replies they rewrite, and what the colluding sites know when they do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import real_number
from fedspan.errors import InputError
from fedspan.federation.site.steps import dotted_name, installed_steps

if TYPE_CHECKING:
    from fedspan.federation import AttackedCall
    from fedspan.federation.site.steps import dotted_name, installed_steps
from fedspan.wire import Message, Value

Array = NDArray[Any]  # float64 or complex128

# Lies are computed in double precision, and sent as what the site would have sent.
_WIDE = {"f": np.float64, "c": np.complex128, "i": np.float64, "u": np.float64}


@dataclass(frozen=True)
class Seen:
    """What the bad sites know about one key of the replies to one call: everything.

    Attributes
    ----------
    own : array (b, ...)
        What `b` of the bad sites, those whose values have one shape, would honestly have sent.
    values : dict of site name to array
        The honest value of every site that answered, in name order. Bad sites are among them. Whoever has NaN or
        infinity is not: the coordinator will not hear him either.
    bad : set of site names
        The bad sites that were asked.
    """

    own: Array
    values: Mapping[str, Array]
    bad: frozenset[str]

    @property
    def honest(self) -> Array:
        """The honest values of all sites, bad ones too: (L, ...), of those with the shape of `own`."""
        honest = [value for value in self.values.values() if self._fits(value)]
        return np.stack(honest) if honest else self.own

    @property
    def good(self) -> Array:
        """The same without the bad sites: (G, ...). Where that leaves nobody, `honest`."""
        good = [value for site, value in self.values.items() if site not in self.bad and self._fits(value)]
        return np.stack(good) if good else self.honest

    def _fits(self, value: Array) -> bool:
        return value.shape == self.own.shape[1:] and value.dtype == self.own.dtype


@dataclass(frozen=True)
class KeyAttack(ABC):
    """An attack that rewrites some keys of the bad sites' replies and keeps the others honest.

    A subclass says with `lie` what is sent instead. A bad site whose step failed has no reply to rewrite; it takes the
    one of the first site by name, and lies in that. Where nothing is to be rewritten a bad site stays as it is.

    Parameters
    ----------
    steps : names, optional
        The steps to attack: ids, names of functions, or ends of them after a dot. ``None``: all.
    keys : names, optional
        The keys to rewrite, where they hold numbers; an integer becomes a float. ``None``: every floating-point (or
        complex) array and number of the reply.
    """

    _: KW_ONLY
    steps: Sequence[str] | None = None
    keys: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("steps", "keys"):
                value = _names(field.name, value)
            elif field.type in ("float", float):  # the amounts of every attack: 3 and 3.0 are one attack, with one repr
                value = real_number(field.name, value)
            object.__setattr__(self, field.name, value)

    @abstractmethod
    def lie(self, seen: Seen, rng: np.random.Generator) -> Array:
        """Return what the sites of ``seen.own`` send: (b, ...), one value each, or (1, ...), the same for all."""

    def __call__(
        self, replies: Mapping[str, Message], bad: Sequence[str], rng: np.random.Generator, call: AttackedCall
    ) -> dict[str, Message]:
        """Return the replies that the bad sites send instead of their honest ones."""
        if not replies or not _names_step(self.steps, call.step):
            return {}
        template = replies[min(replies)]
        honest = {site: replies.get(site, template) for site in bad}
        written: dict[str, Message] = {}
        for key in dict.fromkeys(key for reply in honest.values() for key in reply):
            for sites, own in self._alike(key, honest):
                seen = Seen(own, _finite_values(key, replies), frozenset(bad))
                with np.errstate(all="ignore"):  # an attack may send infinity
                    lies = self.lie(seen, rng)
                    for site, lie in zip(sites, np.broadcast_to(lies, (len(sites), *lies.shape[1:])), strict=True):
                        reply = written.setdefault(site, dict(honest[site]))
                        reply[key] = _sent(np.asarray(lie), honest[site][key])
        return written

    def _alike(self, key: str, honest: Mapping[str, Message]) -> list[tuple[list[str], Array]]:
        """Return the sites where `key` is to be rewritten and their values (b, ...), by shape and kind."""
        groups: dict[object, list[tuple[str, Array]]] = {}
        for site, reply in honest.items():
            value = _numbers(reply.get(key))
            wanted = _is_floating(reply.get(key)) if self.keys is None else key in self.keys
            if value is not None and wanted:
                groups.setdefault((value.shape, value.dtype), []).append((site, value))
        return [([site for site, _ in group], np.stack([v for _, v in group])) for group in groups.values()]


def _finite_values(key: str, replies: Mapping[str, Message]) -> dict[str, Array]:
    values = {site: _numbers(replies[site].get(key)) for site in sorted(replies)}
    return {site: value for site, value in values.items() if value is not None and np.isfinite(value).all()}


def _numbers(value: object) -> Array | None:
    """Return a number or an array of numbers in double precision, and ``None`` for anything else."""
    if not isinstance(value, np.ndarray | np.generic | int | float | complex):
        return None
    array = np.asarray(value)
    wide = _WIDE.get(array.dtype.kind)
    return None if wide is None else array.astype(wide, copy=False)


def _is_floating(value: object) -> bool:
    return value is not None and np.asarray(value).dtype.kind in "fc"


def _sent(lie: Array, instead_of: Value) -> Value:
    """Return a lie in the type of the value that it replaces, so that nothing but its content gives it away."""
    if not isinstance(instead_of, np.ndarray):
        return lie if lie.ndim else lie.item()
    return lie.astype(instead_of.dtype if instead_of.dtype.kind in "fc" else lie.dtype)


def _names_step(steps: Sequence[str] | None, step: str) -> bool:
    """Return whether `steps` name a step by its id or by the name of its function, in full or by its end."""
    if steps is None:
        return True
    found = installed_steps().get(step)
    known = (step,) if found is None else (step, dotted_name(found.function))
    return any(one == name or one.endswith("." + name) for name in steps for one in known)


def _names(what: str, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    names = (names,) if isinstance(names, str) else tuple(names)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{what}={names!r} must be one or more names, or None for all {what}")
    return names

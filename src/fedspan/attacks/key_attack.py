"""What all attacks share: the replies that they rewrite, and what the colluding sites know."""

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
from fedspan.wire import Message, Value

if TYPE_CHECKING:
    from fedspan.federation import AttackedCall

Array = NDArray[Any]  # float64 or complex128

# Attacks compute in double precision, and send the type that the site would have sent.
_WIDE = {"f": np.float64, "c": np.complex128, "i": np.float64, "u": np.float64}


@dataclass(frozen=True)
class SeenReplies:
    """What the malicious sites know about one key of the replies to one call: everything.

    `values` are the honest ones of every site that answered, in name order, also of malicious sites. Those with NaN or
    infinity are left out: the coordinator rejects them, too.
    """

    own: Array  # (b, ...): the honest values of those malicious sites whose values have one shape
    values: Mapping[str, Array]
    bad: frozenset[str]  # the malicious sites in this call

    @property
    def honest(self) -> Array:
        """The honest values of all sites, malicious ones too: (L, ...), of those with the shape of `own`."""
        return self._stacked(self.values, self.own)

    @property
    def good(self) -> Array:
        """The same without the malicious sites: (G, ...), or `honest` where no other site has such a value."""
        return self._stacked([site for site in self.values if site not in self.bad], self.honest)

    def _stacked(self, sites: Sequence[str] | Mapping[str, Array], otherwise: Array) -> Array:
        shape, dtype = self.own.shape[1:], self.own.dtype
        alike = [v for v in map(self.values.__getitem__, sites) if v.shape == shape and v.dtype == dtype]
        return np.stack(alike) if alike else otherwise


@dataclass(frozen=True)
class KeyAttack(ABC):
    """An attack that rewrites some keys of the malicious sites' replies and keeps the others honest.

    A subclass defines the values that are sent with `corrupted`. A malicious site whose step failed rewrites the reply
    of the first site by name. Where no key is to be rewritten, a malicious site stays honest.

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
    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
        """Return what the sites of ``seen.own`` send: (b, ...), one value each, or (1, ...), the same for all."""

    def __call__(
        self, replies: Mapping[str, Message], bad: Sequence[str], rng: np.random.Generator, call: AttackedCall
    ) -> dict[str, Message]:
        """Return the replies that the malicious sites send instead of their honest ones."""
        if not replies or not _names_step(self.steps, call.step):
            return {}
        template = replies[min(replies)]
        honest = {site: replies.get(site, template) for site in bad}
        written: dict[str, Message] = {}
        for key in dict.fromkeys(key for reply in honest.values() for key in reply):
            values = {site: _numbers(replies[site].get(key)) for site in sorted(replies)}
            finite = {site: value for site, value in values.items() if value is not None and np.isfinite(value).all()}
            for sites, own in self._alike(key, honest):
                seen = SeenReplies(own, finite, frozenset(bad))
                with np.errstate(all="ignore"):  # an attack may send infinity
                    found = self.corrupted(seen, rng)
                    for site, value in zip(sites, np.broadcast_to(found, (len(sites), *found.shape[1:])), strict=True):
                        reply = written.setdefault(site, dict(honest[site]))
                        reply[key] = _sent(np.asarray(value), honest[site][key])
        return written

    def _alike(self, key: str, honest: Mapping[str, Message]) -> list[tuple[list[str], Array]]:
        """Return the sites where `key` is to be rewritten and their values (b, ...), by shape and kind."""
        groups: dict[object, dict[str, Array]] = {}
        for site, reply in honest.items():
            value = _numbers(reply.get(key))
            wanted = np.asarray(reply.get(key)).dtype.kind in "fc" if self.keys is None else key in self.keys
            if value is not None and wanted:
                groups.setdefault((value.shape, value.dtype), {})[site] = value
        return [(list(group), np.stack(list(group.values()))) for group in groups.values()]


def _numbers(value: object) -> Array | None:
    """Return a number or an array of numbers in double precision, and ``None`` for anything else."""
    if not isinstance(value, np.ndarray | np.generic | int | float | complex):
        return None
    array = np.asarray(value)
    wide = _WIDE.get(array.dtype.kind)
    return None if wide is None else array.astype(wide, copy=False)


def _sent(value: Array, instead_of: Value) -> Value:
    """Return a value in the type of the one that it replaces, so that only its content shows the attack."""
    if not isinstance(instead_of, np.ndarray):
        return value if value.ndim else value.item()
    return value.astype(instead_of.dtype if instead_of.dtype.kind in "fc" else value.dtype)


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

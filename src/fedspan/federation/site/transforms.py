"""Lenses: transforms that a federation's sites apply to their own data before a step sees it.

A fitted transformer's ``transform(federation)`` gives a federation with one more lens. Like a step, a lens is an
installed function known by its dotted name; only its parameters travel, with every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar, overload

from numpy.typing import NDArray

from fedspan.errors import InputError, UnknownStepError
from fedspan.federation.site.noise_query import Question, SiteLedger, question_digest
from fedspan.federation.site.site import Site
from fedspan.federation.site.steps import dotted_name
from fedspan.wire import Message, canonical, encode

F = TypeVar("F", bound=Callable[..., NDArray[Any]])
Digests = tuple[bytes, ...]


@dataclass(frozen=True)
class _Installed:
    function: Callable[..., NDArray[Any]]
    frames: bool
    mu2: Callable[..., float] | None


_installed: dict[str, _Installed] = {}


@overload
def lens(function: F) -> F: ...
@overload
def lens(*, frames: bool = False, mu2: Callable[..., float] | None = None) -> Callable[[F], F]: ...


def lens(
    function: F | None = None, *, frames: bool = False, mu2: Callable[..., float] | None = None
) -> F | Callable[[F], F]:
    """Register ``f(X, **parameters) -> X`` as a transform that sites may apply to blocks of rows.

    Parameters
    ----------
    frames : bool, default=False
        The function takes data frames too, and is given one where the site was made of one: for columns of text.
    mu2 : callable, optional
        Makes it a private lens, ``f(X, key, **parameters) -> X``, which adds noise made of a key that the site's ledger
        gives for ``mu2(**parameters)``. It sees all rows at once, and only once: whoever looks through it, in whatever
        call or run, sees the same noisy rows, and all that is made of them costs nothing more.

    Examples
    --------
    >>> @lens
    ... def shifted(X, by):
    ...     return X + by
    """

    def register(function: F) -> F:
        _installed[dotted_name(function)] = _Installed(function, frames, mu2)
        return function

    return register if function is None else register(function)


def installed_lenses() -> tuple[str, ...]:
    """Return the dotted names of all transforms that this process has, sorted."""
    return tuple(sorted(_installed))


@dataclass(frozen=True)
class Lens:
    """An installed transform, its parameters, and the names of the columns that it is for, where these have names."""

    name: str
    parameters: Message
    columns: tuple[str, ...] | None = None
    digest: bytes = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        body = encode({key: self.parameters[key] for key in sorted(self.parameters)})
        head = repr((self.name, self.columns)).encode()
        object.__setattr__(self, "digest", blake2b(head + b"\0" + body, digest_size=16).digest())
        object.__setattr__(self, "size", len(body))

    @classmethod
    def of(
        cls, function: Callable[..., Any], parameters: Mapping[str, object], columns: Iterable[str] | None = None
    ) -> Lens:
        """Make the lens that applies `function` with `parameters`."""
        names = None if columns is None else tuple(columns)
        return cls(dotted_name(function), canonical(parameters, "lens"), names)

    @property
    def private(self) -> bool:
        """Whether this lens adds noise, so that all that is seen through it is covered."""
        return self.name in _installed and _installed[self.name].mu2 is not None

    def applied_to(self, site: Site, ledger: SiteLedger | None = None, run: str = "", before: Digests = ()) -> Site:
        """Return the site as it is seen through this lens; `before` are the digests of the lenses before it."""
        if self.name not in _installed:
            raise UnknownStepError(f"{self.name!r} is not an installed lens at this site")
        if self.columns is not None and site.feature_names is not None and site.feature_names != self.columns:
            raise InputError("the columns of this site are not those that the transform was fitted on")
        found = _installed[self.name]
        if found.mu2 is not None:
            return self._noisy(site, found, ledger, run, before)
        return site.through(partial(found.function, **self.parameters), frames=found.frames)

    def _noisy(self, site: Site, found: _Installed, ledger: SiteLedger | None, run: str, before: Digests) -> Site:
        """Return the site with noisy rows: made once, as long as nobody looks through another private lens."""
        if ledger is None or found.mu2 is None:
            raise InputError(f"site {site.name!r} has no ledger, and this lens adds noise from a site's own secret")
        digest = question_digest(self.name, {}, (*before, self.digest), site.digest())
        key = ledger.key(Question(run, self.name, digest), mu2=found.mu2(**self.parameters))
        return site.last_of("noisy", key, lambda: site.with_rows(found.function(site.X, key, **self.parameters)))

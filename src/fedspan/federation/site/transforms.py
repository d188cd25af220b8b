"""Transforms that sites apply to their own rows before a step sees them.

A fitted transformer's ``transform(federation)`` returns a federation with one more transform. Like a step, a transform
is an installed function with a fixed id; only its parameters travel, with every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any, ClassVar, TypeVar, overload

from numpy.typing import NDArray

from fedspan.errors import InputError, UnknownStepError
from fedspan.federation.site.noise_query import NoiseQuery, SiteLedger, query_digest
from fedspan.federation.site.site import Site
from fedspan.federation.site.steps import Installed, Parameters, Registry, dotted_name, parameters_of
from fedspan.wire import Message, canonical, encode

F = TypeVar("F", bound=Callable[..., NDArray[Any] | Site])
Digests = tuple[bytes, ...]


@dataclass(frozen=True)
class InstalledTransform(Installed):
    """A registered transform (see `transform` for the fields)."""

    what: ClassVar[str] = "transform"
    frames: bool = False
    mu2: Callable[..., float] | None = None
    affine: bool = False
    view: bool = False
    selects: bool = False
    diagonal: Callable[..., Any] | None = None
    elementwise: bool = False
    by_site: bool = False
    least: Callable[[int], int] | None = None

    @property
    def reorders(self) -> bool:
        """Whether it shows the same rows with their columns in another order, and nothing else."""
        return self.view and self.affine

    @cached_property
    def declared(self) -> Parameters:
        """The types, ranks and ranges of the parameters after the rows and the key."""
        return parameters_of(self.function, skip=1 if self.mu2 is None else 2)


_transforms: Registry[InstalledTransform] = Registry()


@overload
def transform(id: F, /) -> F: ...
@overload
def transform(
    id: str | None = None,
    /,
    *,
    frames: bool = False,
    mu2: Callable[..., float] | None = None,
    affine: bool = False,
    view: bool = False,
    selects: bool = False,
    diagonal: Callable[..., Any] | None = None,
    elementwise: bool = False,
    by_site: bool = False,
    least: Callable[[int], int] | None = None,
) -> Callable[[F], F]: ...


def transform(id: F | str | None = None, /, **settings: Any) -> F | Callable[[F], F]:
    """Register ``f(X, **parameters) -> X`` as a transform that sites may apply to blocks of rows.

    Parameters
    ----------
    id : str, optional
        A fixed name. Default: the function's dotted name.
    frames : bool, default=False
        The function also takes data frames, and receives one where the site was made of one: for columns of text.
    mu2 : callable, optional
        Makes the transform private, ``f(X, key, **parameters) -> X``: it adds noise made of a key for which the site's
        ledger charges ``mu2(**parameters)``. It transforms all rows once. Every later call, in any run, sees the same
        noisy rows, so that nothing more is charged.
    affine : bool, default=False
        Whether every row becomes ``A x + b``, the same A and b for all rows. What the moments of transformed rows
        reveal, those of the rows do as well.
    view : bool, default=False
        The function is ``f(site, **parameters) -> Site``: it shows the site in another way, such as its columns in
        another order.
    selects : bool, default=False
        Whether the view shows some of the rows alone. Owners allow such a transform by its id only.
    diagonal : callable, optional
        ``diagonal(**parameters)`` returns a shift and a scale (d,), or ``None`` for each. The transform is ``(x -
        shift) / scale``, which steps may apply to sparse rows without making them dense.
    elementwise : bool, default=False
        Whether each number of the result is made of one cell. Rounding then does not depend on a row's place in a
        block. Sums with noise send rows through all other transforms one by one.
    by_site : bool, default=False
        Whether the parameters may treat each site in another way. They can leave one site in a sum, and all others out.
    least : callable, optional
        Of a view that selects: ``least(n)`` returns the number of rows, of n, that any combination of its selections
        is about at least. Default: one row.

    Examples
    --------
    >>> @transform("docs.shifted")
    ... def shifted(X, by):
    ...     return X + by
    """
    if callable(id):
        return transform()(id)

    def register(function: F) -> F:
        _transforms.add(InstalledTransform(id or dotted_name(function), function, **settings))
        return function

    return register


def installed_transforms() -> dict[str, InstalledTransform]:
    """Return all installed transforms by id, sorted."""
    return {id: _transforms.by_id[id] for id in sorted(_transforms.by_id)}


@dataclass(frozen=True)
class Transform:
    """An installed transform by id, its parameters, and the names of the columns that it was fitted on, if any."""

    id: str
    parameters: Message
    columns: tuple[str, ...] | None = None
    digest: bytes = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        body = encode({key: self.parameters[key] for key in sorted(self.parameters)})
        head = repr((self.id, self.columns)).encode()
        object.__setattr__(self, "digest", blake2b(head + b"\0" + body, digest_size=16).digest())
        object.__setattr__(self, "size", len(body))

    @classmethod
    def of(
        cls, function: Callable[..., Any], parameters: Mapping[str, object], columns: Iterable[str] | None = None
    ) -> Transform:
        """Make the transform that applies `function` with `parameters`."""
        names = None if columns is None else tuple(columns)
        return cls(_transforms.id_of(function), canonical(parameters, "transform"), names)

    @property
    def private(self) -> bool:
        """Whether this transform adds noise, which covers all that is seen through it."""
        return self.id in _transforms.by_id and _transforms.by_id[self.id].mu2 is not None

    @property
    def selects(self) -> bool:
        """Whether this transform shows some of the rows alone."""
        return self.id in _transforms.by_id and _transforms.by_id[self.id].selects

    def applied_to(self, site: Site, ledger: SiteLedger | None = None, run: str = "", before: Digests = ()) -> Site:
        """Return the site as it is seen through this transform; `before` are the digests of the earlier ones."""
        found = _transforms.by_id.get(self.id)
        if found is None:
            raise UnknownStepError(f"{self.id!r} is not an installed transform at this site")
        if self.columns is not None:
            site = site.in_order(self.columns)
        if self.columns is not None and site.feature_names not in (None, self.columns):
            raise InputError(
                f"this site has the columns {_shown(site.feature_names)}, and this transform was fitted on "
                f"{_shown(self.columns)}"
            )
        if found.view:
            shown: Site = found.function(site, **found.validated(self.parameters))
            return shown
        if found.mu2 is not None:
            site.refuse_chosen_rows()
            return self._noisy(site, found, ledger, run, before)
        parameters = found.validated(self.parameters)
        diagonal = None if found.diagonal is None else found.diagonal(**parameters)
        shows = partial(found.function, **parameters)
        return site.through(shows, frames=found.frames, elementwise=found.elementwise, diagonal=diagonal)

    def _noisy(
        self, site: Site, found: InstalledTransform, ledger: SiteLedger | None, run: str, before: Digests
    ) -> Site:
        """Return the site with noisy rows, cached until another private transform is used."""
        if ledger is None or found.mu2 is None:
            raise InputError(
                f"site {site.name!r} has no ledger, and this transform adds noise from a site's own secret"
            )
        digest = query_digest(self.id, {}, (*before, self.digest), site.digest())
        parameters = found.validated(self.parameters)
        key = ledger.key(NoiseQuery(run, self.id, digest), mu2=found.mu2(**parameters))
        # One row must move no other, not in its last bit: hostile parameters make much of that.
        return site.last_of("noisy", key, lambda: site.with_rows(found.function(site.X_alone, key, **parameters)))


def _shown(names: tuple[str, ...] | None) -> str:
    names = names or ()
    return f"({', '.join(map(repr, names[:20]))}{', ...' if len(names) > 20 else ''})"

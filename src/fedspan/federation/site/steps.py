"""Steps: the functions that run at a site. Only ids and arrays travel; a site runs what it has installed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, overload

from fedspan.errors import InputError, MessageError, UnknownStepError
from fedspan.federation.site.parameters import Parameters, parameters_of

F = TypeVar("F", bound=Callable[..., Any])

#: What a reply may reveal. ``"nothing"``: column names, row counts, keys. ``"sums"``: totals over rows. ``"rows"``:
#: rows, cells, or one entry per row.
REVEALS = ("nothing", "sums", "rows")
#: Payload keys that would be mistaken for the arguments of ``ask`` or of the step itself.
RESERVED = ("step", "to", "site")


@dataclass(frozen=True)
class Step:
    """A registered step (see `step` for the fields)."""

    id: str
    function: Callable[..., Mapping[str, object]]
    reveals: str = "rows"
    ragged: frozenset[str] = frozenset()
    counts: frozenset[str] = frozenset()
    fewest: Callable[..., int] | None = None
    fewest_in_sums: bool = True
    runs: Callable[[Mapping[str, Any]], tuple[Any, dict[str, Any]]] | None = None
    _fits: set[frozenset[str]] = field(default_factory=set, compare=False)

    @property
    def public(self) -> bool:
        """Whether the reply reveals nothing about the rows."""
        return self.reveals == "nothing"

    @cached_property
    def parameters(self) -> Parameters:
        """The types, ranks and ranges that the function's signature declares."""
        return parameters_of(self.function)

    def validated(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return a payload in its declared types; refuse one that this step's function would not take."""
        self._check_names(payload)
        try:
            return self.parameters.validated(payload)
        except MessageError as error:
            raise MessageError(f"step {self.id!r}: {error}") from None

    def _check_names(self, payload: Mapping[str, object]) -> None:
        keys = frozenset(payload)
        if keys in self._fits:
            return
        for key in RESERVED:
            if key in payload:
                raise MessageError(f"the payload of step {self.id!r} has the key {key!r}, which is reserved: rename it")
        signature = inspect.signature(self.function)
        try:
            signature.bind(None, **payload)
        except TypeError as error:
            raise MessageError(f"step {self.id!r} takes {signature}, and this call does not fit: {error}") from None
        self._fits.add(keys)


_installed: dict[str, Step] = {}
_ids: dict[Callable[..., Any], str] = {}


@overload
def step(id: F, /) -> F: ...
@overload
def step(
    id: str | None = None,
    /,
    *,
    reveals: str = "rows",
    ragged: Iterable[str] = (),
    counts: Iterable[str] = (),
    fewest: Callable[..., int] | None = None,
    fewest_in_sums: bool = True,
    runs: Callable[[Mapping[str, Any]], tuple[Any, dict[str, Any]]] | None = None,
) -> Callable[[F], F]: ...


def step(
    id: F | str | None = None,
    /,
    *,
    reveals: str = "rows",
    ragged: Iterable[str] = (),
    counts: Iterable[str] = (),
    fewest: Callable[..., int] | None = None,
    fewest_in_sums: bool = True,
    runs: Callable[[Mapping[str, Any]], tuple[Any, dict[str, Any]]] | None = None,
) -> F | Callable[[F], F]:
    """Register ``f(site, **payload) -> dict`` as a step.

    The decorator returns the function unchanged, so that tests can call it.

    Parameters
    ----------
    id : str, optional
        A fixed name, such as ``"pca.gram"``: files can move while journals and ``site.toml`` stay valid. Default: the
        function's dotted name.
    reveals : {"nothing", "sums", "rows"}, default="rows"
        What the reply reveals about the rows. Owners' rules, leak cards and secure sums read it. What is not declared
        counts as ``"rows"``.
    ragged : names of reply keys, optional
        Keys whose shape may differ from site to site.
    counts : names of reply keys, optional
        Keys that count something. A reply with anything else there than a whole number of at least 0 is refused, where
        single replies are visible.
    fewest : callable, optional
        ``fewest(site, **payload)`` returns the smallest number of rows that one number of the reply may summarise,
        where the payload decides it. An owner may refuse small ones. Default: all rows.
    fewest_in_sums : bool, default=True
        Whether `fewest` also limits secure sums. False where a summed number is about the rows of all sites.
    runs : callable, optional
        For a step that runs another one: ``runs(payload)`` returns that step's id and payload.

    Examples
    --------
    >>> @step("docs.count", reveals="sums")
    ... def count(site):
    ...     return {"n": len(site)}
    """

    def register(function: F, id: str | None) -> F:
        if not callable(function) or not list(inspect.signature(function).parameters):
            raise InputError(f"a step must be a function f(site, **payload), and {function!r} is not")
        if reveals not in REVEALS:
            raise InputError(f"reveals={reveals!r} must be one of {', '.join(map(repr, REVEALS))}")
        found = id or dotted_name(function)
        before = _installed.get(found)
        if before is not None and dotted_name(before.function) != dotted_name(function):
            raise InputError(
                f"two steps have the id {found!r}: {dotted_name(before.function)}, {dotted_name(function)}"
            )
        _installed[found] = Step(
            found, function, reveals, frozenset(ragged), frozenset(counts), fewest, fewest_in_sums, runs
        )
        _ids[function] = found
        return function

    if callable(id):
        return register(id, None)
    return lambda function: register(function, id)


def find_step(wanted: Callable[..., Any] | str) -> Step:
    """Return the installed step with this function or id, or refuse with a sentence."""
    id = wanted if isinstance(wanted, str) else _ids.get(wanted, "")
    found = _installed.get(id)
    if found is None or not (isinstance(wanted, str) or found.function is wanted):
        name = wanted if isinstance(wanted, str) else dotted_name(wanted)
        raise UnknownStepError(
            f"{name!r} is not an installed step: only functions decorated with @fedspan.step, in a module that this "
            "site has imported, can be called"
        )
    return found


def installed_steps() -> dict[str, Step]:
    """Return all installed steps by id, sorted."""
    return {id: _installed[id] for id in sorted(_installed)}


def dotted_name(function: Callable[..., Any]) -> str:
    """Return ``module.function``; a script's own functions are named after its file, so that importing it agrees."""
    module = getattr(function, "__module__", None) or "?"
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else module
    return f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"

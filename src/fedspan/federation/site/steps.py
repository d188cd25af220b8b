"""Steps: the functions that run at a site, known by their dotted names.

Only names and arrays travel. A site runs what it has installed, and nothing else.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, overload

from fedspan.errors import InputError, MessageError, UnknownStepError

F = TypeVar("F", bound=Callable[..., Any])

#: Payload keys that would be mistaken for the arguments of ``ask`` or of the step itself.
RESERVED = ("step", "to", "site")


@dataclass(frozen=True)
class Step:
    """A registered step.

    `ragged` names the reply's keys whose shape is each site's own affair (one entry per local task, say). Arrays
    with one entry per row of the site need no such word; all others must have the same shape at all sites.

    The reply of a `public` step says nothing of the site's rows. What `counts` names are whole numbers of at least 0.
    `fewest` says of how few rows a number of the reply may be made, for a site and a payload; without it, of all.
    With `fewest_in_sums` that is so also where replies are added up in a secure sum.
    """

    name: str
    function: Callable[..., Mapping[str, object]]
    ragged: frozenset[str] = frozenset()
    public: bool = False
    counts: frozenset[str] = frozenset()
    fewest: Callable[..., int] | None = None
    fewest_in_sums: bool = True
    _fits: set[frozenset[str]] = field(default_factory=set, compare=False)

    def check(self, payload: Mapping[str, object]) -> None:
        """Refuse a payload that this step's function would not take."""
        keys = frozenset(payload)
        if keys in self._fits:
            return
        for key in RESERVED:
            if key in payload:
                raise MessageError(
                    f"the payload of step {self.name!r} has the key {key!r}, which is reserved: rename it"
                )
        signature = inspect.signature(self.function)
        try:
            signature.bind(None, **payload)
        except TypeError as error:
            raise MessageError(f"step {self.name!r} takes {signature}, and this call does not fit: {error}") from None
        self._fits.add(keys)


_installed: dict[str, Step] = {}


@overload
def step(function: F) -> F: ...
@overload
def step(
    *,
    ragged: Iterable[str] = (),
    public: bool = False,
    counts: Iterable[str] = (),
    fewest: Callable[..., int] | None = None,
    fewest_in_sums: bool = True,
) -> Callable[[F], F]: ...


def step(
    function: F | None = None,
    *,
    ragged: Iterable[str] = (),
    public: bool = False,
    counts: Iterable[str] = (),
    fewest: Callable[..., int] | None = None,
    fewest_in_sums: bool = True,
) -> F | Callable[[F], F]:
    """Register ``f(site, **payload) -> dict`` as a step, under its module's and its own name.

    The function is returned as it is, so that it can be tested by calling it.

    Parameters
    ----------
    ragged : names of reply keys, optional
        Keys whose shape may differ from site to site.
    public : bool, default=False
        The reply says nothing of the rows (the names of the columns, say), so that it may be asked of single sites also
        where sums are secure.
    counts : names of reply keys, optional
        Keys that count something: a reply that has anything else there than a whole number of at least 0 is refused,
        where single replies are seen.
    fewest : callable, optional
        ``fewest(site, **payload)`` returns of how few of the site's rows a number of the reply may be made, where the
        payload decides it: a site's owner may refuse what is about a single row. Without it, all rows count.
    fewest_in_sums : bool, default=True
        Whether that is so also where replies are only added up in a secure sum: not if numbers are about rows of all
        sites then (those closest to a centre, but not those of a task, which one site may have alone).

    Examples
    --------
    >>> @step
    ... def count(site):
    ...     return {"n": len(site)}
    """

    def register(function: F) -> F:
        if not callable(function) or not list(inspect.signature(function).parameters):
            raise InputError(f"a step must be a function f(site, **payload), and {function!r} is not")
        name = dotted_name(function)
        _installed[name] = Step(name, function, frozenset(ragged), public, frozenset(counts), fewest, fewest_in_sums)
        return function

    return register if function is None else register(function)


def find_step(wanted: Callable[..., Any] | str) -> Step:
    """Return the installed step that a function or a dotted name means, or refuse with a sentence."""
    name = wanted if isinstance(wanted, str) else dotted_name(wanted)
    found = _installed.get(name)
    if found is None or not (isinstance(wanted, str) or found.function is wanted):
        raise UnknownStepError(
            f"{name!r} is not an installed step: only functions decorated with @fedspan.step, in a module that this "
            "site has imported, can be called"
        )
    return found


def installed_steps() -> tuple[str, ...]:
    """Return the dotted names of all installed steps, sorted."""
    return tuple(sorted(_installed))


def dotted_name(function: Callable[..., Any]) -> str:
    """Return ``module.function``; a script's own functions are named after its file, so that importing it agrees."""
    module = getattr(function, "__module__", None) or "?"
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else module
    return f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"

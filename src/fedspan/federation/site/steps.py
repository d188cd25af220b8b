"""Steps: the functions that run at a site. Only ids and arrays travel; a site runs what it has installed."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from fedspan.errors import InputError, MessageError, UnknownStepError
from fedspan.federation.site.parameters import PLAIN, Check

F = TypeVar("F", bound=Callable[..., Any])
Runs = Callable[[Mapping[str, Any]], tuple[Any, dict[str, Any]]]
Merge = Callable[[Sequence[dict[str, Any]]], dict[str, Any]]

#: What a reply may reveal. ``"nothing"``: column names, row counts, keys. ``"sums"``: totals over rows. ``"rows"``:
#: rows, cells, or one entry per row.
REVEALS = ("nothing", "sums", "rows")
#: Payload keys that would be mistaken for the arguments of ``ask`` or of the step itself.
RESERVED = ("step", "to", "site")


@dataclass(frozen=True)
class Parameters:
    """The parameters of a function: the checks of those that are declared, and whether all of them are."""

    declared: Mapping[str, Check]
    complete: bool
    signature: inspect.Signature
    required: frozenset[str]
    allowed: frozenset[str] | None  # None: any name

    def validated(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return a payload with every declared parameter checked, and as its declared type."""
        keys = payload.keys()
        for key in RESERVED:
            if key in keys:
                raise MessageError(f"the payload has the key {key!r}, which is reserved: rename it")
        if not self.required <= keys or not (self.allowed is None or keys <= self.allowed):
            raise MessageError(f"the function takes {self.signature}, and a payload of {sorted(keys)} does not fit")
        checks = self.declared
        return {name: checks[name](name, value) if name in checks else value for name, value in payload.items()}


def parameters_of(function: Callable[..., Any], skip: int = 1) -> Parameters:
    """Return the declared parameters of a step or transform; the first `skip` are the site or the rows.

    Examples
    --------
    >>> def pull(site, gamma: float, rows: int | None = None): ...
    >>> parameters_of(pull).validated({"gamma": 2, "rows": None})
    {'gamma': 2.0, 'rows': None}
    """
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # annotations of a user's own that can't be resolved
        hints = {}
    signature = inspect.signature(function)
    named = list(signature.parameters.values())[skip:]
    required = {one.name for one in named if one.default is one.empty}
    checks = {one.name: _check_of(hints.get(one.name)) for one in named}
    any_name = False
    for rest in [one.name for one in named if one.kind is one.VAR_KEYWORD]:
        del checks[rest]
        required.remove(rest)
        if get_origin(hints.get(rest)) is Unpack:  # a TypedDict of parameters that several steps share
            shared = get_type_hints(get_args(hints[rest])[0], include_extras=True)
            checks |= {name: _check_of(hint) for name, hint in shared.items()}
            required |= shared.keys()
        else:  # such a step runs another one, which checks the payload
            any_name = True
    declared = {name: check for name, check in checks.items() if check is not None}
    return Parameters(
        declared, len(declared) == len(checks), signature, frozenset(required), None if any_name else frozenset(checks)
    )


def _check_of(hint: Any) -> Check | None:
    """Return the check that an annotation declares, or ``None`` where it declares none."""
    if get_origin(hint) is Annotated:
        for extra in get_args(hint)[1:]:
            if hasattr(extra, "check"):
                found: Check = extra.check
                return found
        return _check_of(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        inner = [part for part in get_args(hint) if part is not type(None)]
        check = _check_of(inner[0]) if len(inner) == 1 else None
        if check is None or len(inner) == len(get_args(hint)):
            return None
        return lambda name, value: None if value is None else check(name, value)
    plain = PLAIN.get(hint)
    return None if plain is None else plain.check


@dataclass(frozen=True)
class Installed:
    """A registered function; `what` it is, for error messages."""

    what: ClassVar[str] = "step"
    id: str
    function: Callable[..., Any]

    @cached_property
    def declared(self) -> Parameters:
        """The types, ranks and ranges that the function's signature declares."""
        return parameters_of(self.function)

    def validated(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a payload, or parameters, in their declared types; refuse what the function would not take."""
        if not values and not self.declared.required:
            return {}
        try:
            return self.declared.validated(values)
        except MessageError as error:
            raise MessageError(f"{self.what} {self.id!r}: {error}") from None


T = TypeVar("T", bound=Installed)


class Registry(Generic[T]):
    """What this process has installed, by id."""

    #: The number of functions that all registries have installed, or installed again.
    additions: ClassVar[int] = 0

    def __init__(self) -> None:
        self.by_id: dict[str, T] = {}
        self._ids: dict[Callable[..., Any], str] = {}

    def add(self, found: T) -> None:
        """Install a function; refuse an id that another one has."""
        before = self.by_id.get(found.id)
        if before is not None and dotted_name(before.function) != dotted_name(found.function):
            names = f"{dotted_name(before.function)} and {dotted_name(found.function)}"
            raise InputError(f"two functions have the id {found.id!r}, and ids must be unique: {names}")
        Registry.additions += 1
        self.by_id[found.id] = found
        self._ids[found.function] = found.id

    def id_of(self, function: Callable[..., Any]) -> str:
        """Return the id of an installed function, or the dotted name of another."""
        return self._ids.get(function) or dotted_name(function)


@dataclass(frozen=True)
class Step(Installed):
    """A registered step (see `step` for the fields)."""

    reveals: str = "rows"
    ragged: frozenset[str] = frozenset()
    counts: frozenset[str] = frozenset()
    fewest: Callable[..., int] | None = None
    fewest_in_sums: bool = True
    leaves_out: str = ""
    runs: Runs | None = None
    moments: bool = False
    weighted: bool = False
    merge: Merge | None = None
    noisy: bool = False
    by_site: Callable[[Mapping[str, Any]], bool] | bool = False

    def tells_sites_apart(self, payload: Mapping[str, Any]) -> bool:
        """Return whether the reply to a payload depends on which site sends it, so that a sum shows single sites."""
        return self.by_site if isinstance(self.by_site, bool) else self.by_site(payload)

    @property
    def public(self) -> bool:
        """Whether the reply reveals nothing about the rows."""
        return self.reveals == "nothing"


_steps: Registry[Step] = Registry()


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
    leaves_out: str = "",
    runs: Runs | None = None,
    moments: bool = False,
    weighted: bool = False,
    merge: Merge | None = None,
    noisy: bool = False,
    by_site: Callable[[Mapping[str, Any]], bool] | bool = False,
) -> Callable[[F], F]: ...


def step(id: F | str | None = None, /, **settings: Any) -> F | Callable[[F], F]:
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
    leaves_out : str, optional
        The parameter without which the reply is about all rows, so that `fewest` does not count them.
    runs : callable, optional
        For a step that runs another one: ``runs(payload)`` returns that step's id and payload.
    moments : bool, default=False
        Whether the reply depends on the rows only through their number, their sums and their second moments. No
        parameter can then select rows. A site at the level ``aggregate`` runs such steps, and no other ones on rows.
    weighted : bool, default=False
        Whether the step takes account of ``site.sample_weight``, or needs no weights, as one that labels single rows.
        A site whose rows have weights refuses all other steps that read them.
    merge : callable, optional
        For `Federation.merge`: ``merge(replies)`` returns the reply that the rows of all sites would give together. It
        must be associative, up to rounding.
    noisy : bool, default=False
        Whether the step charges the site's ledger before it reads rows, and its reply carries the noise. A site at the
        level ``private`` runs such steps, and no other ones on rows as they are.
    by_site : bool or callable, default=False
        Whether the reply depends on which of the named sites this is, ``by_site(payload)`` where the payload decides
        it. A sum over sites then shows single ones, and a site at the level ``secure`` refuses it.

    Examples
    --------
    >>> @step("docs.count", reveals="sums")
    ... def count(site):
    ...     return {"n": len(site)}
    """
    if callable(id):
        return step()(id)

    def register(function: F) -> F:
        if not callable(function):
            raise InputError(f"a step must be a function f(site, **payload), and {function!r} is not")
        keys = {name: frozenset(settings.get(name, ())) for name in ("ragged", "counts")}
        made = Step(id or dotted_name(function), function, **{**settings, **keys})
        if made.reveals not in REVEALS:
            raise InputError(f"reveals={made.reveals!r} must be one of {', '.join(map(repr, REVEALS))}")
        _steps.add(made)
        return function

    return register


def find_step(wanted: Callable[..., Any] | str) -> Step:
    """Return the installed step with this function or id, or refuse with a sentence."""
    id = wanted if isinstance(wanted, str) else _steps.id_of(wanted)
    found = _steps.by_id.get(id)
    if found is None or not (isinstance(wanted, str) or found.function is wanted):
        raise UnknownStepError(
            f"{id!r} is not an installed step: only functions decorated with @fedspan.step, in a module that this "
            "site has imported, can be called"
        )
    return found


def installed_steps() -> dict[str, Step]:
    """Return all installed steps by id, sorted."""
    return dict(_sorted_steps(Registry.additions, len(_steps.by_id)))


@lru_cache(maxsize=1)
def _sorted_steps(additions: int, number: int) -> dict[str, Step]:
    return {id: _steps.by_id[id] for id in sorted(_steps.by_id)}


def dotted_name(function: Callable[..., Any]) -> str:
    """Return ``module.function``; a script's own functions are named after its file, as where it is imported."""
    module = getattr(function, "__module__", None) or "?"
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else module
    return f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"

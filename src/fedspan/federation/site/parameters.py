"""Types, ranks and ranges of the parameters of steps and transforms, declared in their signatures.

A payload comes from outside. Each parameter is checked once, at the site, before rules, ledger or step see it::

    @step("landmarks.pull", reveals="sums")
    def local_pull(site: Site, Y: Matrix, gamma: Positive, device: Annotated[str, Text(20)] = "") -> ...

A number must arrive as a plain number: no array, of whatever shape or type, is taken for one.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import MessageError
from fedspan.wire import LONGEST_EMPTY_AXIS

#: The largest number of rows, columns or products; and the most passes over its rows that one call takes of a site.
MOST, MOST_PASSES = 2**40, 10_000
#: Payload keys that would be mistaken for the arguments of ``ask`` or of the step itself.
RESERVED = ("step", "to", "site")


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`."""

    least: int = 0
    most: int = 2**53

    def check(self, name: str, value: object) -> int:
        """Return the number, or refuse the value."""
        if type(value) is int and self.least <= value <= self.most:
            return value
        raise MessageError(f"{name} must be a whole number from {self.least} to {self.most}")


@dataclass(frozen=True)
class Real:
    """A finite number of at least `least`, above `above`, at most `most`."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf

    def check(self, name: str, value: object) -> float:
        """Return the number as a Python float, or refuse the value."""
        found = float(value) if type(value) is float or (type(value) is int and abs(value) <= 2**53) else math.nan
        if math.isfinite(found) and self.least <= found <= self.most and found > self.above:
            return found
        bounds = {"at least": self.least, "above": self.above, "at most": self.most}
        words = [f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound)]
        raise MessageError(f"{name} must be a finite number{', ' * bool(words)}{' and '.join(words)}")


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def check(self, name: str, value: object) -> bool:
        """Return the flag, or refuse the value."""
        if type(value) is bool:
            return value
        raise MessageError(f"{name} must be True or False")


@dataclass(frozen=True)
class Text:
    """Text of at most `longest` characters."""

    longest: int = 1000

    def check(self, name: str, value: object) -> str:
        """Return the text, or refuse the value."""
        if type(value) is str and len(value) <= self.longest:
            return value
        raise MessageError(f"{name} must be text of at most {self.longest} characters")


@dataclass(frozen=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]

    def check(self, name: str, value: object) -> str:
        """Return the word, or refuse the value."""
        if type(value) is str and value in self.words:
            return value
        raise MessageError(f"{name} must be one of {', '.join(map(repr, self.words))}")


@dataclass(frozen=True)
class ArrayOf:
    """An array of one kind of value, with this number of axes.

    `kind` is ``"float"`` (finite unless `finite` is False; single precision stays, whole numbers become double),
    ``"whole"`` (becomes int64), ``"flag"``, ``"byte"``, ``"word"`` (uint64) or ``"text"``. Values are at least `least`
    and at most `most`.
    """

    kind: str
    ndim: int
    finite: bool = True
    least: float = -math.inf
    most: float = math.inf

    def check(self, name: str, value: object) -> NDArray[Any]:
        """Return the array in the declared type, or refuse the value."""
        if not isinstance(value, np.ndarray) or value.ndim != self.ndim:
            raise MessageError(f"{name} must be an array with {self.ndim} axes")
        if not value.size and max(value.shape, default=0) > LONGEST_EMPTY_AXIS:
            raise MessageError(f"{name} has no entries, and an axis longer than {LONGEST_EMPTY_AXIS}")
        array = _converted(value, self.kind)
        if array is None:
            raise MessageError(f"{name} must hold {_KINDS[self.kind][1]}")
        if self.kind == "float" and self.finite and not np.isfinite(array).all():
            raise MessageError(f"{name} must hold finite numbers")
        bounded = math.isfinite(self.least) or math.isfinite(self.most)
        if bounded and array.size and not (array.min().item() >= self.least and array.max().item() <= self.most):
            raise MessageError(f"{name} must hold numbers from {self.least:g} to {self.most:g}")
        return array


#: By kind of array: the only type of its values, where there is one, and its name in error messages.
_KINDS: dict[str, tuple[Any, str]] = {
    "float": (None, "real numbers"),
    "whole": (None, "whole numbers"),
    "flag": (np.dtype(np.bool_), "truth values"),
    "byte": (np.dtype(np.uint8), "bytes"),
    "word": (np.dtype(np.uint64), "words of 64 bits"),
    "text": (None, "text"),
}


def _converted(array: NDArray[Any], kind: str) -> NDArray[Any] | None:
    """Return an array in the declared type if that changes no value, else ``None``."""
    given, dtype = array.dtype.kind, _KINDS[kind][0]
    if dtype is not None:
        return array if array.dtype == dtype else None
    if kind == "text":
        return array if given == "U" else None
    if kind == "float" and given == "f":
        return array if array.dtype.itemsize in (4, 8) else array.astype(np.float64)
    most, wanted = (2**53, np.float64) if kind == "float" else (2**62, np.int64)
    exact = given in "iu" and (not array.size or (int(array.min()) >= -most and int(array.max()) <= most))
    return array.astype(wanted) if exact else None


Vector = Annotated[NDArray[np.float64], ArrayOf("float", 1)]
Matrix = Annotated[NDArray[np.float64], ArrayOf("float", 2)]
Stack = Annotated[NDArray[np.float64], ArrayOf("float", 3)]
Indices = Annotated[NDArray[np.int64], ArrayOf("whole", 1)]
Flags = Annotated[NDArray[np.bool_], ArrayOf("flag", 1)]
Labels = Annotated[NDArray[np.str_], ArrayOf("text", 1)]
Positive = Annotated[float, Real(above=0.0)]
NotNegative = Annotated[float, Real(least=0.0)]
Share = Annotated[float, Real(least=0.0, most=1.0)]
Count = Annotated[int, Whole(1, MOST)]
Index = Annotated[int, Whole(0, MOST)]
Passes = Annotated[int, Whole(1, MOST_PASSES)]

_PLAIN: dict[Any, Any] = {int: Whole(-(2**53)), float: Real(), bool: Flag(), str: Text()}

Check = Callable[[str, object], object]


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
    >>> def pull(site, gamma: Positive, rows: int | None = None): ...
    >>> parameters_of(pull).validated({"gamma": 2, "rows": None})
    {'gamma': 2.0, 'rows': None}
    """
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # annotations of a user's own that can't be resolved
        hints = {}
    signature = inspect.signature(function)
    named = list(signature.parameters.values())[skip:]
    # A step with **payload runs another one, which checks that payload.
    any_name = any(one.kind is one.VAR_KEYWORD for one in named)
    named = [one for one in named if one.kind is not one.VAR_KEYWORD]
    checks = {one.name: _check_of(hints.get(one.name)) for one in named}
    declared = {name: check for name, check in checks.items() if check is not None}
    required = frozenset(one.name for one in named if one.default is one.empty)
    return Parameters(
        declared, len(declared) == len(named), signature, required, None if any_name else frozenset(checks)
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
    plain = _PLAIN.get(hint)
    return None if plain is None else plain.check

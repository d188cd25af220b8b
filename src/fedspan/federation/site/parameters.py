"""Types, ranks and ranges of the parameters of steps and transforms, declared in their signatures.

A payload comes from outside. Each parameter is checked once, at the site, before rules, ledger or step see it::

    @step("landmarks.pull", reveals="sums")
    def local_pull(site: Site, Y: Matrix, gamma: Positive, device: Annotated[str, Text(20)] = "") -> ...

A number must arrive as a plain number: no array, of whatever shape or type, is taken for one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import MessageError
from fedspan.wire import LONGEST_EMPTY_AXIS

#: The largest number of rows, columns or products; and the most passes over its rows that one call takes of a site.
MOST, MOST_PASSES = 2**40, 10_000


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
    and at most `most`. With `distinct` none occurs twice.
    """

    kind: str
    ndim: int
    finite: bool = True
    least: float = -math.inf
    most: float = math.inf
    distinct: bool = False

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
        if self.distinct and len(np.unique(array)) < array.size:
            raise MessageError(f"{name} must hold no value twice")
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
#: Names of groups, sites or columns. One that occurred twice would count the same rows twice.
Labels = Annotated[NDArray[np.str_], ArrayOf("text", 1, distinct=True)]
Positive = Annotated[float, Real(above=0.0)]
PositiveVector = Annotated[NDArray[np.float64], ArrayOf("float", 1, least=1e-300, most=1e300)]
NotNegative = Annotated[float, Real(least=0.0)]
Share = Annotated[float, Real(least=0.0, most=1.0)]
Count = Annotated[int, Whole(1, MOST)]
Index = Annotated[int, Whole(0, MOST)]
Passes = Annotated[int, Whole(1, MOST_PASSES)]

#: The checks of plain annotations.
PLAIN: dict[Any, Any] = {int: Whole(-(2**53)), float: Real(), bool: Flag(), str: Text()}

Check = Callable[[str, object], object]

"""Reading the cells of mixed tables: what is a number, what is a name, what is missing.

The rules are the same at every site, so that a table gives the same cells however it is split and stored:

- Missing: NaN, ``None``, empty text, the marks in `MISSING` in any case ("-", "NA", "null", ...), what is infinite, and
  numbers beyond `LARGEST` in magnitude, whose powers would overflow.
- A number: numbers, booleans (1 and 0), dates and durations (seconds), and text that reads as one: ``"12"``,
  ``" 1e3"``, ``"0x1f"``, ``"true"``.
- A name: any cell that is not missing, with white space made single. Whole numbers are written without a fraction, so
  80, 80.0 and ``"80.0"`` are one name.

A column is a numpy array or a pandas series (n,). Python loops go over distinct cells, never over rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.protocols.blocks import width
from fedspan.wire import is_plain_text

Array = NDArray[Any]
Vector = NDArray[np.float64]

_INFINITE = ("inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")
MISSING = frozenset(
    ("", "-", "--", "?", "na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "+nan", "nat", "null", "none", *_INFINITE)
)
#: No measurement is larger, and the fourth powers of a billion such numbers can still be added up.
LARGEST = 1e70

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"([+-]?\d+)\.0*", re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-f]{1,16}", re.ASCII)
_WORDS = {"true": 1.0, "false": 0.0}
_NUMBER_TYPES = {int, float, bool, np.bool_, *(np.dtype(code).type for code in "bhilqBHILQefd")}
_BLOCK_CELLS = 2**19


def tables(site: Site) -> Iterator[Any]:
    """Yield the site's rows as they are: its data frame as a whole, or blocks of an array."""
    frame = site.frame
    if hasattr(frame, "iloc"):
        yield frame
        return
    for batch in site.batches(max(1, _BLOCK_CELLS // max(1, width(site)))):
        yield batch.X


def columns(rows: Any, wanted: Iterable[Any] | None = None) -> Iterator[Any]:
    """Yield the columns of a data frame or an array (n, d), or those whose numbers are `wanted`."""
    for j in range(rows.shape[1]) if wanted is None else wanted:
        yield rows.iloc[:, j] if hasattr(rows, "iloc") else rows[:, j]


def numbers(column: Any) -> Vector:
    """Return the cells as numbers (n,), NaN for those that are missing or do not read as one.

    Examples
    --------
    >>> numbers(np.array([2, "1e3", "-", "tcp", None, True], dtype=object))
    array([   2., 1000.,   nan,   nan,   nan,    1.])
    """
    return read(column)[0]


def read(column: Any) -> tuple[Vector, int]:
    """Return the cells as `numbers` does, and how many of them are missing."""
    cells = _array(column)
    plain = _plain_numbers(cells)
    if plain is not None:
        values = np.where(np.abs(plain) <= LARGEST, plain, np.nan)
        return values, int(np.count_nonzero(np.isnan(values)))
    texts, codes = _distinct(cells)
    values = np.array([_number(text) for text in texts], dtype=np.float64)
    values[~(np.abs(values) <= LARGEST)] = np.nan
    missing = np.array([not name(text) for text in texts], dtype=bool)
    return values[codes], int(np.count_nonzero(missing[codes]))


def names(column: Any) -> tuple[list[str], NDArray[np.intp]]:
    """Return the distinct names of a column and the number of each cell's name (n,); a missing cell has the name "".

    Examples
    --------
    >>> names(np.array(["tcp", " udp", "-", "tcp"]))
    (['tcp', 'udp', ''], array([0, 1, 2, 0]))
    """
    cells = _array(column)
    if cells.dtype.kind in "OUS":
        distinct, codes = _distinct(cells)
    else:
        found, codes = np.unique(cells if cells.dtype.kind in "biu" else numbers(cells), return_inverse=True)
        distinct = [str(value) for value in found.tolist()]
    return _merged([name(text) for text in distinct], codes)


def name(text: str) -> str:
    """Return the name that a cell's text stands for, "" for a missing one.

    Examples
    --------
    >>> name("  Mozilla   5.0 "), name("80.0"), name("N/A")
    ('Mozilla 5.0', '80', '')
    """
    text = " ".join(text.split())
    if not is_plain_text(text):  # bytes that were no text
        text = text.encode("utf-8", "replace").decode()
    lower = text.lower()
    if lower in MISSING:
        return ""
    if lower in _WORDS:
        return text.capitalize()
    if whole := _WHOLE.fullmatch(text):
        return "0" if whole[1] in ("-0", "+0") else whole[1]
    return text


def is_declared_category(column: Any) -> bool:
    """Whether a column's own type says that its values are names: a pandas categorical."""
    return getattr(getattr(column, "dtype", None), "name", "") == "category"


def signed_log(values: Vector) -> Vector:
    """Return ``sign(x) log(1 + |x|)``."""
    return np.copysign(np.log1p(np.abs(values)), values)


def _array(column: Any) -> Array:
    """Return the cells as an array; pandas' own types of numbers and dates as numpy's."""
    if isinstance(column, np.ndarray):
        cells: Array = column
    else:
        kind = "O" if isinstance(column.dtype, np.dtype) else getattr(column.dtype, "kind", "O")
        if kind in "buif":
            cells = column.to_numpy(dtype=np.float64, na_value=np.nan)
        elif kind == "M":
            cells = column.to_numpy(dtype="datetime64[ns]")
        else:
            cells = column.to_numpy()
    if cells.dtype.kind not in "buifmMOUS":
        raise InputError(f"a column holds {cells.dtype}, and must hold numbers or text")
    return cells


def _plain_numbers(cells: Array) -> Vector | None:
    """Return the cells as floats where all of them are numbers, as in most columns, or ``None``."""
    kind = cells.dtype.kind
    if kind in "mM":
        seconds = cells.astype(f"{kind}8[ns]").view(np.int64) / 1e9
        return np.where(np.isnat(cells), np.nan, seconds)
    if kind in "US" or (kind == "O" and not set(map(type, cells)) <= _NUMBER_TYPES):
        return None
    try:
        with np.errstate(over="ignore"):  # wide floats
            return cells.astype(np.float64)
    except OverflowError:  # an integer of hundreds of digits
        return None


def _distinct(cells: Array) -> tuple[list[str], NDArray[np.intp]]:
    """Return the distinct texts of cells, in order of appearance, and the number of each cell's text."""
    values = cells.tolist()
    if cells.dtype.kind == "S" or (cells.dtype == object and bytes in set(map(type, values))):
        values = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]
    # By their text, because 1 and True would be one key.
    texts = values if cells.dtype.kind == "U" else list(map(str, values))
    index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return list(index), np.fromiter(map(index.__getitem__, texts), dtype=np.intp, count=len(texts))


def _merged(names: list[str], codes: NDArray[np.intp]) -> tuple[list[str], NDArray[np.intp]]:
    """Return the names without repetition, and the codes in them."""
    index = {text: i for i, text in enumerate(dict.fromkeys(names))}
    return list(index), np.array([index[text] for text in names], dtype=np.intp)[codes]


def _number(text: str) -> float:
    lower = text.strip().lower()
    if _NUMBER.fullmatch(lower):
        return float(lower)
    if _HEXADECIMAL.fullmatch(lower):
        return float(int(lower, 16))
    return _WORDS.get(lower, np.nan)

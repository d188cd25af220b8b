"""Read the cells of mixed tables as numbers and as names.

The rules are the same at every site, so that a table gives the same cells however it is split and stored:

- Text is missing, a number or a name as `fedspan.gateway.cell_text` has it.
- Numbers, booleans (1 and 0), dates and durations (seconds) are numbers; infinities are missing.

Rows are a numpy array (n, d) or a pandas frame, a column is an array or a series (n,). Python loops go over distinct
cells, never over rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.gateway.cell_text import LARGEST, name, number
from fedspan.sums.row_blocks import width

Codes = NDArray[np.intp]

#: Tables are read in blocks of at most this number of cells.
BLOCK_CELLS = 2**19

#: Numbers that are the same read from their text: those of single precision are not, and so always read from it.
_NUMBER_TYPES = {int, float, bool, np.bool_, *(np.dtype(code).type for code in "bhilqBHILQd")}


def signed_log(values: Vector) -> Vector:
    """Return ``sign(x) log(1 + |x|)``."""
    return np.copysign(np.log1p(np.abs(values)), values)


def tables(site: Site) -> Iterator[Any]:
    """Yield the site's rows as they are, in blocks: of its data frame, or of its array."""
    rows = max(1, BLOCK_CELLS // max(1, width(site)))
    frame = site.frame
    if hasattr(frame, "iloc"):
        yield from (frame.iloc[start : start + rows] for start in range(0, len(site), rows))
    else:
        yield from (batch.X for batch in site.batches(rows))


def column(rows: Any, j: int) -> Any:
    """Return column number `j` of a data frame or an array (n, d)."""
    return rows.iloc[:, j] if hasattr(rows, "iloc") else rows[:, j]


def declared_categories(site: Site) -> NDArray[np.bool_]:
    """Return the columns (d,) whose own type declares their values as names: categoricals of pandas."""
    frame = site.frame
    if not hasattr(frame, "iloc"):
        return np.zeros(width(site), dtype=bool)
    return np.array([getattr(dtype, "name", "") == "category" for dtype in frame.dtypes], dtype=bool)


@dataclass(frozen=True)
class Numbers:
    """The cells of some rows as numbers (n, d), NaN for other cells, and the missing cells of each column (d,)."""

    values: Matrix
    missing: NDArray[np.int64]


def number_blocks(site: Site) -> Iterator[Numbers]:
    """Yield the site's cells as numbers, in blocks; a table of one block is read once and kept."""
    if len(site) * width(site) <= BLOCK_CELLS:
        yield from site.cached("cells as numbers", lambda: [read(rows) for rows in tables(site)])
    else:
        yield from map(read, tables(site))


def read(rows: Any, wanted: Sequence[int] | Codes | None = None) -> Numbers:
    """Return the cells of a data frame or an array (n, d), or of the columns `wanted`, as numbers."""
    wanted = range(rows.shape[1]) if wanted is None else wanted
    is_frame = hasattr(rows, "iloc")
    kinds = [getattr(dtype, "kind", "O") for dtype in (rows.dtypes if is_frame else [rows.dtype] * rows.shape[1])]
    plain = [i for i, j in enumerate(wanted) if kinds[j] in "buif"]
    # All at once: a call to pandas for each column would cost more than all the rest at a small site.
    found = _in_range(_plain_columns(rows, [int(wanted[i]) for i in plain]))
    if len(plain) == len(wanted):
        return Numbers(found, np.count_nonzero(np.isnan(found), axis=0))
    values, missing = np.empty((len(rows), len(wanted))), np.zeros(len(wanted), dtype=np.int64)
    for start, stop, at in runs(np.array(plain, dtype=np.intp)):
        values[:, at : at + stop - start] = found[:, start:stop]
    missing[plain] = np.count_nonzero(np.isnan(found), axis=0)
    for i in sorted(set(range(len(wanted))) - set(plain)):
        values[:, i], missing[i] = _read_column(column(rows, int(wanted[i])))
    return Numbers(values, missing)


def runs(places: Codes) -> Iterator[tuple[int, int, int]]:
    """Yield start and stop of each stretch of `places` that counts up by one, and its first place.

    Copying such stretches of columns is many times as fast as an index for each column.
    """
    bounds = [0, *(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]
    yield from ((start, stop, int(places[start])) for start, stop in pairwise(bounds) if stop > start)


def names(cells: Any) -> tuple[list[str], Codes]:
    """Return the distinct names of a column and the number of each cell's name (n,); a missing cell has the name ""."""
    if _is_text(cells) or (array := _array(cells)).dtype.kind in "OUS":
        distinct, codes = _distinct(cells)
    else:
        exact = array.dtype.kind in "biu"
        found, codes = np.unique(array if exact else _read_column(array)[0], return_inverse=True)
        distinct = [str(value) for value in found.tolist()]
    tidy, at = _numbered([name(text) for text in distinct])
    return tidy, at[codes]


def _plain_columns(rows: Any, wanted: list[int]) -> Matrix:
    if not wanted:
        return np.empty((len(rows), 0))
    if not hasattr(rows, "iloc"):
        some: Array = rows if len(wanted) == rows.shape[1] else rows[:, wanted]
        with np.errstate(over="ignore"):  # wide floats
            return some.astype(np.float64)
    values: Matrix = rows.iloc[:, wanted].to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _in_range(values: Matrix) -> Matrix:
    if np.abs(values).max(initial=0.0) <= LARGEST:  # as in most tables; NaN is not
        return values
    return np.where(np.abs(values) <= LARGEST, values, np.nan)


def _read_column(cells: Any) -> tuple[Vector, int]:
    """Return the cells of one column as numbers, and the number of missing ones."""
    plain = None if _is_text(cells) else _plain_numbers(_array(cells))
    if plain is not None:
        values = _in_range(plain)
        return values, int(np.count_nonzero(np.isnan(values)))
    texts, codes = _distinct(cells)
    values = _in_range(np.array([number(text) for text in texts], dtype=np.float64))
    missing = np.array([not name(text) for text in texts], dtype=bool)
    return values[codes], int(np.count_nonzero(missing[codes]))


def _is_text(cells: Any) -> bool:
    """Whether a column has one of pandas' types of text, or is a categorical, and knows its distinct values."""
    return getattr(cells.dtype, "name", "") in ("str", "string", "category") and hasattr(cells, "factorize")


def _array(cells: Any) -> Array:
    """Return a column as an array that can be read."""
    if isinstance(cells, np.ndarray):
        array: Array = cells
    elif getattr(cells.dtype, "kind", "O") == "M":  # also those with a time zone
        array = cells.to_numpy(dtype="datetime64[ns]")
    else:
        array = cells.to_numpy()
    if array.dtype.kind not in "buifmMOUS":
        raise InputError(f"a column holds {array.dtype}, and must hold numbers or text")
    return array


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


def _distinct(cells: Any) -> tuple[list[str], Codes]:
    """Return the distinct texts of a column and the number of each cell's text."""
    if _is_text(cells):
        codes, found = cells.factorize(use_na_sentinel=False)
        return list(map(_text, found)), codes
    array = _array(cells)
    values = array.tolist()
    if array.dtype.kind == "S" or (array.dtype == object and bytes in set(map(type, values))):
        values = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]
    # By their text, because 1 and True would be one key.
    return _numbered(values if array.dtype.kind == "U" else list(map(_text, values)))


def _text(cell: Any) -> str:
    """Return the text of a cell: ``None`` is missing, and the text "None" is a name."""
    return "" if cell is None else str(cell)


def _numbered(texts: list[str]) -> tuple[list[str], Codes]:
    """Return the texts without repetition, and the place of each text among them."""
    index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return list(index), np.fromiter(map(index.__getitem__, texts), dtype=np.intp, count=len(texts))

"""The columns of a CSV file: texts become what all cells of a column are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedspan.datasets.sources.csv_dialect import Dialect

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns of numbers, and of each the words that were taken as missing cells with their counts.
Numbers = dict[str, tuple["pa.ChunkedArray", dict[str, int]]]
#: A cell that makes its column no column of text by itself.
LOOKS_PLAIN = re.compile(r"\s*([-+.\d].*|true|false|inf|infinity|)\s*", re.IGNORECASE)
_TRUTH = ["true", "True", "TRUE", "false", "False", "FALSE"]
#: Words for a missing number.
_MISSING_NUMBERS = (
    *("NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NULL", "null", "None", "none"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
#: Rows of a column whose cells show that it is text, and those that show numbers.
_FIRST_ROWS, _FIRST_LOOK = 50, 8


def _is_word(cell: str | None) -> bool:
    """Return whether a cell makes its column one of text: no number, truth value or word for a missing one."""
    return not (cell is None or cell.strip() in _MISSING_NUMBERS or LOOKS_PLAIN.fullmatch(cell))


class NumberBlocks:
    """The columns of a CSV file that become numbers block by block, unless one contradicts what the first cells show.

    The cells of many columns are cast at once: each cast takes its time, whatever the number of cells.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._whole: dict[str, bool] = {}
        self._with_words: set[str] = set()

    def look(self, first: pa.RecordBatch) -> None:
        """Find the columns whose first cells are numbers, and whether these are whole."""
        if any(LOOKS_PLAIN.fullmatch(word) for word in self._dialect.missing):  # "-9" may be missing
            return
        number = re.compile(rf"[-+]?\d*{re.escape(self._dialect.decimal)}?\d*(e[-+]?\d+)?", re.IGNORECASE)
        cells = {name: list(filter(None, column)) for name, column in first.slice(0, _FIRST_LOOK).to_pydict().items()}
        self._whole = {
            name: all(cell.lstrip("+-").isdigit() for cell in some)
            for name, some in cells.items()
            if some and all(map(number.fullmatch, some))
        }

    def numbers(self, block: pa.RecordBatch) -> Numbers:
        """Return the columns of a block that are numbers, and the words taken as missing cells with their counts."""
        found: Numbers = {}
        for wanted in (True, False):
            names = [name for name, whole in list(self._whole.items()) if whole is wanted]
            plain = self._cast(block, [name for name in names if name not in self._with_words], wanted)
            found |= plain | self._cast_words(block, [name for name in names if name not in plain], wanted)
        return found

    def column(self, name: str, blocks: Sequence[Numbers]) -> tuple[pa.ChunkedArray, dict[str, int]] | None:
        """Return a column with its words; ``None`` where all of its texts must settle what it is."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if name not in self._whole:
            return None
        found = [block[name] for block in blocks]
        numbers = pa.chunked_array([chunk for part, _ in found for chunk in part.chunks])
        counts: Counter[str] = Counter()
        for _, taken in found:
            counts.update(taken)
        if counts and (
            all(word.lower().endswith("nan") for word in counts)
            or (not self._whole[name] and pc.any(pc.is_nan(numbers)).as_py())
        ):
            return None  # "nan" is a word beside other words, and a number where there are none
        return numbers, dict(counts)

    def _cast(self, block: pa.RecordBatch, names: list[str], whole: bool) -> Numbers:
        """Return columns as numbers, or nothing where a cell is none."""
        import pyarrow as pa

        try:
            found = _cast(pa.chunked_array([block.column(name) for name in names], pa.string()), self._dialect, whole)
        except pa.ArrowInvalid:
            return {}
        n = len(block)
        return {name: (found[place * n : (place + 1) * n], {}) for place, name in enumerate(names)}

    def _cast_words(self, block: pa.RecordBatch, names: list[str], whole: bool) -> Numbers:
        """Return columns as numbers without their words. Those that are no numbers are none from here on."""
        import pyarrow as pa

        if not names:
            return {}
        together = pa.concat_arrays([block.column(name) for name in names])
        cells, places, taken = _chunk_without(together, ("", *self._dialect.missing, *_MISSING_NUMBERS))
        try:
            found = _cast(pa.chunked_array([cells]), self._dialect, whole)
        except pa.ArrowInvalid:
            if len(names) == 1:
                self._whole.pop(names[0], None)
                return {}
            half = len(names) // 2
            return self._cast_words(block, names[:half], whole) | self._cast_words(block, names[half:], whole)
        n = len(block)
        counts: list[dict[str, int]] = [{} for _ in names]
        for (place, word), times in Counter(zip((places // n).tolist(), taken, strict=True)).items():
            self._with_words.add(names[place])
            counts[place][word] = times
        return {name: (found[place * n : (place + 1) * n], counts[place]) for place, name in enumerate(names)}


def settled(column: pa.ChunkedArray, dialect: Dialect) -> tuple[pa.ChunkedArray, dict[str, int]]:
    """Return a column of texts as what all of its cells are, and the words taken as missing cells with their counts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first, whole = column.slice(0, _FIRST_ROWS), True
    try:
        whole = pa.types.is_integer(_as_numbers(first, dialect, whole).type)
    except pa.ArrowInvalid:
        if any(map(_is_word, _without(first, dialect.missing)[0].to_pylist())):
            return _without(column, dialect.missing)
        shown = settled(first, dialect)[0].type if len(column) > _FIRST_ROWS else None
        if shown is not None and pa.types.is_string(shown):
            return _without(column, dialect.missing)  # such as dates
        whole = shown is None or not pa.types.is_floating(shown)  # a cast that fails takes as long as one that does not
    else:
        if not any(LOOKS_PLAIN.fullmatch(word) for word in dialect.missing):  # else "-9" may be missing
            with suppress(pa.ArrowInvalid):
                return _as_numbers(column, dialect, whole), {}
    words = (*dialect.missing, *_MISSING_NUMBERS)
    # A cell with groups of digits casts to no number, and finding that out takes longer than a cast that does.
    shown_cells = _without(first, words)[0]
    grouped = dialect.groups is not None and pc.any(pc.match_substring(shown_cells, dialect.groups)).as_py()
    for tidied in (lambda cells: cells, pc.utf8_trim_whitespace, _without_percent_signs):
        cells, taken = _without(tidied(column), ("", *words))
        if not grouped:
            with suppress(pa.ArrowInvalid):
                return _as_numbers(cells, dialect, whole), taken
            if pc.all(pc.is_in(cells.drop_null(), value_set=pa.array(_TRUTH))).as_py():
                return cells.cast(pa.bool_()), taken
        with suppress(pa.ArrowInvalid):
            return _as_numbers(_ungrouped(cells, dialect), Dialect(), whole=True), taken
    return _without(column, dialect.missing)


def _as_numbers(texts: pa.ChunkedArray, dialect: Dialect, whole: bool) -> pa.ChunkedArray:
    """Return texts as numbers, as whole ones if they may be and are; or raise `ArrowInvalid`."""
    import pyarrow as pa

    with suppress(pa.ArrowInvalid):
        if whole:
            return _cast(texts, dialect, whole)
    return _cast(texts, dialect, whole=False)


def _cast(texts: pa.ChunkedArray, dialect: Dialect, whole: bool) -> pa.ChunkedArray:
    """Return texts as whole numbers, or as numbers with decimals; or raise `ArrowInvalid`."""
    import pyarrow as pa

    if whole:
        return texts.cast(pa.int64())
    if dialect.decimal == ",":
        texts = pa.chunked_array(map(_with_points, texts.chunks), pa.string())
    return texts.cast(pa.float64())


def _ungrouped(texts: pa.ChunkedArray, dialect: Dialect) -> pa.ChunkedArray:
    """Return texts such as ``1.250,5`` as ``1250.5``; beside decimal commas also those that have only points.

    Raise `ArrowInvalid` where other texts are among them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def all_are(pattern: str) -> bool:
        return pc.all(pc.match_substring_regex(texts, f"^(?:{pattern})$")).as_py() is not False

    point = re.escape(dialect.decimal)
    if dialect.groups and all_are(rf"{dialect.grouped}|[+-]?[0-9]+(?:{point}[0-9]+)?"):
        texts = pc.replace_substring(texts, dialect.groups, "")
        return pc.replace_substring(texts, dialect.decimal, ".")
    if dialect.decimal == "," and not pc.any(pc.match_substring(texts, ",")).as_py():
        return texts
    raise pa.ArrowInvalid("neither groups of three digits nor points")


def _without_percent_signs(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts such as ``97 %`` as ``97``."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"([0-9])\s*%$", r"\1")


def _with_points(texts: pa.Array) -> pa.Array:
    """Return texts with a point in place of every comma; or raise `ArrowInvalid` where they have points already."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing, offsets, letters = texts.buffers()
    if letters is None:  # no text at all
        return texts
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    own = np.frombuffer(letters, dtype=np.uint8)[ends[0] : ends[-1]]
    if (own == ord(".")).any() and pc.any(pc.match_substring(texts, ".")).as_py():  # not only in a missing cell
        raise pa.ArrowInvalid("points beside decimal commas")
    points = own + np.uint8(ord(".") - ord(",")) * (own == ord(","))
    changed = [missing, pa.py_buffer(ends - ends[0]), pa.py_buffer(points)]
    if texts.offset:
        changed[0] = pa.py_buffer(np.packbits(texts.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(texts), changed)


def _without(cells: pa.ChunkedArray, words: Sequence[str]) -> tuple[pa.ChunkedArray, dict[str, int]]:
    """Return texts in which the cells that hold one of `words` are missing, and the number of these by word."""
    import pyarrow as pa

    if not words:
        return cells, {}
    counts: Counter[str] = Counter()
    together = cells.combine_chunks()  # still in parts if one array can't hold it
    parts = together.chunks if isinstance(together, pa.ChunkedArray) else [together]
    chunks = []
    for part in parts:
        cells, _, taken = _chunk_without(part, words)
        chunks.append(cells)
        counts.update(taken)
    del counts[""]
    return pa.chunked_array(chunks, pa.string()), dict(counts)


def _chunk_without(cells: pa.Array, words: Sequence[str]) -> tuple[pa.Array, NDArray[np.int64], list[str]]:
    """Return a part of a column without the cells that hold one of `words`, and the places and words of these.

    Only cells that are as short as a word and end with the last letter of one are compared: of numbers, hardly any.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    _, offsets, letters = cells.buffers()
    n = len(cells)
    if not n or letters is None:
        return cells, np.zeros(0, dtype=np.int64), []
    ends = np.frombuffer(offsets, dtype=np.int32)[cells.offset : cells.offset + n + 1]
    sizes = np.diff(ends)
    places = np.flatnonzero((sizes <= max(len(word.encode()) for word in words)) & (sizes >= min(map(len, words))))
    last = np.zeros(256, dtype=bool)
    last[[word.encode()[-1] for word in words if word]] = True
    if letters.size:
        ended = last[np.frombuffer(letters, dtype=np.uint8)[ends[places + 1] - 1]]
        places = places[ended | (sizes[places] == 0)]
    near = cells.take(pa.array(places))
    found = pc.is_in(near, value_set=pa.array(words, pa.string()))
    places = places[found.to_numpy(zero_copy_only=False)]
    if not len(places):
        return cells, places, []
    valid = cells.is_valid().to_numpy(zero_copy_only=False).copy()
    valid[places] = False
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    kept = pa.Array.from_buffers(pa.string(), n, [bits, pa.py_buffer(ends), letters])
    return kept, places, near.filter(found).to_pylist()

"""All that sites sent in a run, of whatever protocol: every array, number and text of every reply in its journals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedspan.arrays import Array, Matrix
from fedspan.audit.parts.encodings import decoded, floats_in, numbers_in, of_bits, text_of, unpacked
from fedspan.errors import FedspanError
from fedspan.federation.journal import read_journal
from fedspan.federation.record import RunRecord

#: The most numbers and characters that are kept for a search. Of larger journals the first part of each long value is.
MOST_NUMBERS = 20_000_000
#: Columns that an array may have besides those of the rows, such as an intercept or a target.
_MORE = 8
#: The key of a value that has the names of a reply's keys.
NAMES_OF_KEYS = "names of keys"
#: The key of a value that is the reason why a site did not reply.
REASON = "reason of a failure"


@dataclass(frozen=True)
class Place:
    """Where a value was found; the `site` of a total is empty."""

    run: str
    call: int
    step: str
    key: str
    site: str

    def __str__(self) -> str:
        source = f"site {self.site}" if self.site else "total"
        return f"{self.run}, call {self.call}, step {self.step}, key {self.key!r}, {source}"


@dataclass(frozen=True)
class SentValue:
    """One value of a reply: its numbers, if it has any (also those written in a text), and its texts.

    `readings` are numbers that its texts or bytes may encode.
    """

    place: Place
    numbers: Array = field(repr=False)
    texts: tuple[str, ...] = field(default=(), repr=False)
    readings: tuple[Array, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Sent:
    """The values that were sent, the number of replies, each site's number of rows where a journal has it, and a cut.

    `longest` is the number of entries to which values were cut, 0 where none was.
    """

    values: tuple[SentValue, ...]
    replies: int
    sizes: dict[str, int]
    longest: int = 0


def sent_values(journals: Sequence[Path]) -> Sent:
    """Read all values of the journals, at most about `MOST_NUMBERS` numbers and characters altogether."""
    longest = 0
    if sum(path.stat().st_size for path in journals) > 8 * MOST_NUMBERS:
        sizes = np.sort([_length(raw) for path in journals for _, raw in _raw(path)])
        # The length to which values are cut so that all together have `MOST_NUMBERS` entries.
        left = MOST_NUMBERS - np.concatenate([[0], np.cumsum(sizes)[:-1]])
        fits = np.flatnonzero(sizes * np.arange(len(sizes), 0, -1) > left)
        longest = int(max(1, left[fits[0]] // (len(sizes) - fits[0]))) if len(fits) else 0
    values, rows, replies = [], dict[str, int](), set()
    for path in journals:
        rows |= {str(site): int(count) for site, count in read_journal(path)[0].get("rows", {}).items()}
        for place, raw in _raw(path):
            replies.add((place.run, place.call, place.site))
            values.append(SentValue(place, *_parts(raw, longest)))
    return Sent(tuple(values), len(replies), rows, longest)


def _raw(path: Path) -> Iterator[tuple[Place, Any]]:
    """Yield each value of each reply of a journal. The names of keys and the reasons of failures are values, too."""
    steps = _steps(path.with_name("record.jsonl"))
    for entry in read_journal(path)[1]:
        for site, reply in entry.collected.replies.items():
            for key, value in reply.items():
                yield Place(path.parent.name, entry.number, steps.get(entry.number, "unknown"), key, site), value
            place = Place(path.parent.name, entry.number, steps.get(entry.number, "unknown"), NAMES_OF_KEYS, site)
            yield place, np.array(list(reply), dtype=str)
        for site, failure in entry.collected.failed.items():
            yield Place(path.parent.name, entry.number, steps.get(entry.number, "unknown"), REASON, site), str(failure)


def _steps(path: Path) -> dict[int, str]:
    """Return the step of each call from a run's record, where that can be read."""
    try:
        record = RunRecord.from_lines(path.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError, FedspanError):
        return {}
    return {call.number: call.step for call in record.calls}


def _length(raw: Any) -> int:
    return max(1, raw.size if isinstance(raw, np.ndarray) else len(raw) if isinstance(raw, str) else 1)


def _parts(raw: Any, longest: int) -> tuple[Array, tuple[str, ...], tuple[Array, ...]]:
    """Return the numbers and the texts of a value, and the numbers that its bytes or texts may encode."""
    most = longest or None
    if isinstance(raw, str) or (isinstance(raw, np.ndarray) and raw.dtype.kind in "US"):
        texts = [raw[:most]] if isinstance(raw, str) else [_text(one) for one in raw.ravel()[:most].tolist()]
        numbers = np.array([number for text in texts for number in numbers_in(text)])
        blocks = list(decoded(texts))
    elif raw is None or isinstance(raw, complex):
        return np.array([] if raw is None else [raw.real, raw.imag]), (), ()
    else:
        numbers = np.asarray(raw)
        if numbers.dtype.kind == "c":
            numbers = np.stack([numbers.real, numbers.imag])
        if longest and numbers.size > longest:
            inner = max(1, numbers.size // max(1, len(numbers)))
            numbers = numbers[: max(1, longest // inner)]
        integers = numbers.ndim and numbers.dtype.kind in "ui"
        texts, blocks = [], list(unpacked(numbers.tobytes())) if integers else []
        blocks += of_bits(numbers) if numbers.dtype.kind in "buif" else ()
        for width in (1, 2, 4):  # bytes, or bits of floats, that an array of wider integers holds
            if integers and numbers.size and numbers.dtype.itemsize > width:
                low, high = int(numbers.min()), int(numbers.max())
                fits = high < 2 ** (8 * width) if low >= 0 else low >= -(2 ** (8 * width - 1)) > -high - 1
                blocks += list(unpacked(numbers.astype(f"<i{width}").tobytes())) if fits else []
    written = [text_of(block) for block in blocks]
    readings = [one for block in blocks for one in floats_in(block)]
    readings += [np.array(found) for text in written if len(found := numbers_in(text)) > 1]
    return numbers, (*texts, *written), tuple(readings)


def _text(one: str | bytes) -> str:
    return one if isinstance(one, str) else one.decode("utf-8", "replace")


def vectors_of(value: SentValue, m: int) -> Iterator[Matrix]:
    """Yield the vectors of `m` numbers that a value may stand for, as arrays (v, m).

    Along each axis of that length or a little more. Then the diagonals of squares and packed triangles, consecutive
    entries of other arrays, and numbers that a text or bytes encode.
    """
    for numbers in (value.numbers, *value.readings):
        yield from _vectors_of(numbers, m)


def _vectors_of(numbers: Array, m: int) -> Iterator[Matrix]:
    if m in numbers.shape:
        for axis, extent in enumerate(numbers.shape):
            if extent == m:
                yield _doubles(np.moveaxis(numbers, axis, -1).reshape(-1, m))
        if numbers.shape[-2:] == (m, m):
            yield _doubles(np.diagonal(numbers, axis1=-2, axis2=-1).reshape(-1, m))
    elif numbers.size >= m:
        flat = numbers.ravel()
        for axis, extent in enumerate(numbers.shape if numbers.ndim > 1 else ()):
            if m < extent <= m + _MORE:
                windows = np.lib.stride_tricks.sliding_window_view(np.moveaxis(numbers, axis, -1), m, axis=-1)
                yield _doubles(windows.reshape(-1, m))
        yield _doubles(flat[: len(flat) // m * m].reshape(-1, m))
        if len(flat) <= 4 * m:
            yield _doubles(np.lib.stride_tricks.sliding_window_view(flat, m))
        if numbers.shape[-1:] == (m * (m + 1) // 2,):
            rows, columns = np.triu_indices(m)
            yield _doubles(numbers[..., rows == columns].reshape(-1, m))


def _doubles(values: Array) -> Matrix:
    with np.errstate(invalid="ignore"):
        return np.asarray(values, dtype=np.float64)

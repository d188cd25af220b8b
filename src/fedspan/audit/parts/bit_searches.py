"""Searches for rows that lost their look but not their bits: digests of rows and numbers, and XOR with a constant."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedspan.arrays import Array, Matrix
from fedspan.audit.parts.encodings import decoded, digests_of
from fedspan.audit.parts.row_chances import LEVEL
from fedspan.audit.parts.search_task import Findings
from fedspan.audit.sent_values import Sent, SentValue

#: Rows whose digests, and triples of neighbouring cells whose bits, are looked for, at most.
_MOST_ROWS, _MOST_TRIPLES = 20_000, 2_000_000
_DIGEST = re.compile(r"[0-9a-f]{8,128}")


def search_digests(sent: Sent, rows: Matrix, findings: Findings) -> None:
    """Look for usual digests of rows and of their cells, and for CRC-32 of rows as whole numbers."""
    values = [(value, set(_DIGEST.findall(" ".join(value.texts).lower())), _whole(value)) for value in sent.values]
    hexadecimal = any(tokens for _, tokens, _ in values)
    whole = sum(len(numbers) for _, _, numbers in values)
    findings.limit("digests", len(rows), _MOST_ROWS, "rows")
    if not hexadecimal and not whole:
        return
    digests: dict[str, int] = {}
    checks: dict[int, int] = {}
    for i, row in enumerate(rows[:_MOST_ROWS]):
        forms = list(_forms(row))
        checks |= {zlib.crc32(form): i for form in forms}
        cells = [form for cell in row for form in (cell.tobytes(), repr(cell.item()).encode())]
        for form in (*forms, *cells) if hexadecimal else ():
            digests |= dict.fromkeys(digests_of(form), i)
    sure = whole * len(checks) * 2.0**-32 < LEVEL
    for value, tokens, numbers in values:
        found = {digests[token] for token in tokens if token in digests}
        found |= {checks[number] for number in numbers.tolist() if number in checks} if sure else set()
        if found:
            findings.found["digests"].add(value.place, found)


def _forms(row: Matrix) -> Iterator[bytes]:
    """Yield the bytes of a row that a digest may be of."""
    yield row.tobytes()
    with np.errstate(over="ignore"):
        yield row.astype(np.float32).tobytes()
    cells = [repr(cell) for cell in row.tolist()]
    for between in (",", ", ", " ", ";", "|"):
        yield between.join(cells).encode()
    yield str(row.tolist()).encode()


def _whole(value: SentValue) -> Array:
    """Return the whole numbers of a value that may be digests of 32 bits."""
    numbers = value.numbers.ravel()
    if numbers.dtype.kind not in "fiu":
        return np.empty(0, dtype=np.int64)
    with np.errstate(invalid="ignore"):
        large = (numbers >= 2**16) & (numbers < 2**32) & (numbers == np.floor(numbers))
    return np.unique(numbers[large]).astype(np.int64)


def search_xor(sent: Sent, rows: Matrix, findings: Findings) -> None:
    """Look for rows whose bits were combined with one constant: neighbouring cells then keep their XOR."""
    if rows.shape[1] < 3:
        findings.cut["XOR"] = "XOR: not possible with fewer than three columns"
        return
    most = _MOST_TRIPLES // rows.shape[1]
    findings.limit("XOR", len(rows), most, "rows")
    with np.errstate(over="ignore"):
        kinds = ((rows[:most].view(np.uint64), 2**32 - 1), (rows[:most].astype(np.float32).view(np.uint32), 2**12 - 1))
    for words, low in kinds:
        apart = words[:, 1:] ^ words[:, :-1]
        fine = ((apart[:, 1:] & low) > 0) & ((apart[:, :-1] & low) > 0)  # cells of a coarse grid agree by chance
        which, at = np.nonzero(fine)
        known: dict[tuple[int, int], tuple[int, int]] = {}
        pairs = zip(apart[which, at].tolist(), apart[which, at + 1].tolist(), strict=True)
        for pair, place in zip(pairs, zip(which.tolist(), at.tolist(), strict=True), strict=True):
            known.setdefault(pair, place)
        firsts = np.unique(apart[which, at])
        for value in sent.values if len(firsts) else ():
            for sent_words in _words(value, words.dtype):
                seen = sent_words[1:] ^ sent_words[:-1]
                found = set()
                for k in np.flatnonzero(np.isin(seen[:-1], firsts)).tolist():
                    spot = known.get((int(seen[k]), int(seen[k + 1])))
                    if spot is not None and sent_words[k] != words[spot]:
                        found.add(spot[0])
                if found:
                    findings.found["XOR"].add(value.place, found)


def _words(value: SentValue, kind: Any) -> Iterator[Array]:
    """Yield the bits of a value as whole numbers of one size."""
    numbers, size = value.numbers, np.dtype(kind).itemsize
    blocks = list(decoded(value.texts))
    if numbers.dtype.kind in "fiu" and numbers.ndim and numbers.dtype.itemsize in (1, size):
        blocks.append(np.ascontiguousarray(numbers).tobytes())
    for block in blocks:
        if len(block) >= 3 * size:
            yield np.frombuffer(block[: len(block) // size * size], dtype=kind)

"""Which rows a site has answered about: the moments of two tables that differ in few rows would reveal these rows.

The file holds a secret key, and keyed digests of the cells of every table that the site has answered about.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_KEY_BYTES = 32


class FewRowsChangedError(InputError):
    """A table that differs from an earlier one in too few rows."""


@dataclass(frozen=True)
class _Table:
    """One table: digests of the names of its columns (d,), and of its cells (n, d)."""

    columns: NDArray[np.uint64]
    cells: NDArray[np.uint32]

    def of(self, columns: NDArray[np.uint64]) -> Counter[bytes]:
        """Return the rows, seen in some of the columns, with how often each occurs."""
        places = [int(np.flatnonzero(self.columns == column)[0]) for column in columns]
        rows = np.ascontiguousarray(self.cells[:, places])
        return Counter(rows.view(f"V{rows.shape[1] * rows.itemsize}")[:, 0].tolist())


def left_over(tables: Sequence[Counter[bytes]]) -> float:
    """Return the size of the smallest set of rows that a combination of all tables leaves over, or infinity.

    Rows that are in the same tables are one set: no combination tells them apart.

    Examples
    --------
    >>> tables = [Counter(rows) for rows in ("", "abcdefghij", "abcde", "fghijk")]
    >>> left_over(tables[:3]), left_over(tables)
    (5, 1)
    """
    sizes: Counter[tuple[bool, ...]] = Counter()
    for row in set().union(*tables):
        counts = [table[row] for table in tables]
        sizes.update(tuple(count > k for count in counts) for k in range(max(counts)))
    if not sizes:
        return float("inf")
    _, lengths, directions = np.linalg.svd(np.array(list(sizes), dtype=np.float64).T, full_matrices=False)
    inside = np.square(directions[lengths > 1e-9 * lengths[0]]).sum(axis=0)  # of each set's axis, in the tables' span
    return min(
        (size for size, part in zip(sizes.values(), inside, strict=True) if part > 1 - 1e-9), default=float("inf")
    )


class PublishedRows:
    """The tables that a site has answered about.

    Parameters
    ----------
    path : path
        Made with the first table; only its owner may read it. It has 4 bytes for each cell.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.key = secrets.token_bytes(_KEY_BYTES)
        self._tables: list[_Table] = []
        if path.exists():
            self._load()

    def publish(self, frame: pd.DataFrame, least_set: int) -> None:
        """Note a table, or refuse one that differs from an earlier one in fewer rows than `least_set`.

        Tables with other columns are compared in those that they share: their moments could be subtracted, too. A
        column with a new name counts as an earlier one if most of its cells, of many values, are those of that one.
        """
        table, noted = self._renamed(self._digested(frame), 2 * least_set), False
        compared = {table.columns.tobytes(): table.columns}
        for earlier in self._tables:
            shared = np.intersect1d(earlier.columns, table.columns)
            if not len(shared):
                continue
            compared[shared.tobytes()] = shared
            rows, before = table.of(shared), earlier.of(shared)
            changed = (rows - before).total() + (before - rows).total()
            if 0 < changed < least_set:
                raise FewRowsChangedError(
                    f"the data differ from those of earlier answers in {changed} rows, which the difference of two "
                    f"answers would reveal: change at least {least_set} rows (least_set in [rules]) at a time"
                )
            noted = noted or (changed == 0 and len(shared) == len(table.columns))
        if noted:
            return
        for columns in compared.values():
            same = [one for one in self._tables if np.isin(columns, one.columns).all()]
            left = left_over([one.of(columns) for one in (*same, table)])
            if same and left < least_set:
                raise FewRowsChangedError(
                    f"the data and those of several earlier answers differ in such a way that all answers together "
                    f"would reveal {left} rows: change at least {least_set} rows (least_set in [rules]) at a time"
                )
        self._tables.append(table)
        self._save()

    def _digested(self, frame: pd.DataFrame) -> _Table:
        values = frame.to_numpy(dtype=np.float64) + 0.0  # one zero
        columns = np.array([self._number(f"column {name}") for name in frame.columns], dtype=np.uint64)
        mixed = values.view(np.uint64) ^ np.uint64(self._number("cells"))  # a keyed mixture of bits
        for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(factor)
        return _Table(columns, (mixed >> np.uint64(32)).astype(np.uint32))

    def _renamed(self, table: _Table, values: int) -> _Table:
        """Return the table with the earlier names of columns that no earlier table has under theirs."""
        known = {int(number) for one in self._tables for number in one.columns}
        columns = table.columns.copy()
        for j in np.flatnonzero([int(number) not in known for number in columns]):
            cells, counts = np.unique(table.cells[:, j], return_counts=True)
            for one in self._tables[::-1]:
                for k in np.flatnonzero(~np.isin(one.columns, columns)):
                    before, times = np.unique(one.cells[:, k], return_counts=True)
                    both, here, there = np.intersect1d(cells, before, assume_unique=True, return_indices=True)
                    shared = int(np.minimum(counts[here], times[there]).sum())
                    if len(both) >= values and 2 * shared > min(len(table.cells), len(one.cells)):
                        columns[j] = one.columns[k]
                        break
                if columns[j] != table.columns[j]:
                    break
        return _Table(columns, table.cells)

    def _number(self, text: str) -> int:
        return int.from_bytes(blake2b(text.encode(), key=self.key, digest_size=8).digest(), "little")

    def _load(self) -> None:
        data = self._path.read_bytes()
        self.key, body = data[:_KEY_BYTES], data[_KEY_BYTES:]
        at = 0
        while at < len(body) or len(self.key) < _KEY_BYTES:
            n, d = (int.from_bytes(body[at + k : at + k + 8], "little") for k in (0, 8))
            columns, cells = body[at + 16 : at + 16 + 8 * d], body[at + 16 + 8 * d : at + 16 + 8 * d + 4 * n * d]
            if len(columns) + len(cells) != 8 * d + 4 * n * d or not d:
                raise InputError(f"{self._path} is damaged: restore it from a backup")
            table = np.frombuffer(cells, dtype="<u4").astype(np.uint32).reshape(n, d)
            self._tables.append(_Table(np.frombuffer(columns, dtype="<u8").astype(np.uint64), table))
            at += 16 + len(columns) + len(cells)

    def _save(self) -> None:
        parts = [self.key]
        for table in self._tables:
            parts += [size.to_bytes(8, "little") for size in table.cells.shape]
            parts += [table.columns.astype("<u8").tobytes(), table.cells.astype("<u4").tobytes()]
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"".join(parts))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)

"""Which rows a site has answered about: the moments of two tables that differ in few rows would reveal these rows.

The file holds a secret key, and keyed digests of the rows of every table that the site has answered about.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_KEY_BYTES, _DIGEST = 32, 8


class FewRowsChangedError(InputError):
    """A table that differs from an earlier one in too few rows."""


class PublishedRows:
    """The tables that a site has answered about.

    Parameters
    ----------
    path : path
        Made with the first table; only its owner may read it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.key = secrets.token_bytes(_KEY_BYTES)
        self._tables: list[Counter[bytes]] = []
        if path.exists():
            self._load()

    def publish(self, frame: pd.DataFrame, least_set: int) -> None:
        """Note a table, or refuse one that differs from an earlier one in fewer rows than `least_set`."""
        rows = self._digests(frame)
        for earlier in self._tables:
            changed = (rows - earlier).total() + (earlier - rows).total()
            if changed == 0:
                return
            if changed < least_set:
                raise FewRowsChangedError(
                    f"the data differ from those of earlier answers in {changed} rows, which the difference of two "
                    f"answers would reveal: change at least {least_set} rows (least_set in [rules]) at a time"
                )
        self._tables.append(rows)
        self._save()

    def _digests(self, frame: pd.DataFrame) -> Counter[bytes]:
        values = np.ascontiguousarray(frame.to_numpy(dtype=np.float64))
        names = repr(list(frame.columns)).encode()
        keyed = blake2b(names, key=self.key, digest_size=_DIGEST)
        found: Counter[bytes] = Counter()
        for row in values:
            digest = keyed.copy()
            digest.update(row.tobytes())
            found[digest.digest()] += 1
        return found

    def _load(self) -> None:
        data = self._path.read_bytes()
        self.key, body = data[:_KEY_BYTES], data[_KEY_BYTES:]
        at = 0
        while at < len(body):
            count = int.from_bytes(body[at : at + 8], "little")
            at += 8
            part = body[at : at + count * _DIGEST]
            if len(part) != count * _DIGEST or len(self.key) != _KEY_BYTES:
                raise InputError(f"{self._path} is damaged: restore it from a backup")
            self._tables.append(Counter(part[k : k + _DIGEST] for k in range(0, len(part), _DIGEST)))
            at += len(part)

    def _save(self) -> None:
        parts = [self.key]
        for table in self._tables:
            parts += [table.total().to_bytes(8, "little"), *sorted(table.elements())]
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"".join(parts))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)

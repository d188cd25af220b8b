"""Rows that stand for a site's moments: the same number, sums and second moments, and none of the site's rows.

At the level ``aggregate`` requests see these rows and no others. Whatever the step, its parameters and the rounding of
its arithmetic. A reply can depend on the site's rows only through their moments and a key that stays at the site.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Matrix = NDArray[np.float64]

#: A column in which fewer than `least_set` rows carry this share of the spread is about these rows.
_DOMINANT = 0.9


def moment_rows(rows: Matrix, key: bytes) -> Matrix:
    """Return rows (n, d) with the same column sums and products of columns, drawn with a secret key.

    Examples
    --------
    >>> rows = np.array([[1.0, 5.0], [2.0, 0.0], [4.0, 1.0], [9.0, 3.0]])
    >>> drawn = moment_rows(rows, b"secret")
    >>> bool(np.allclose(drawn.T @ drawn, rows.T @ rows) and np.allclose(drawn.sum(axis=0), rows.sum(axis=0)))
    True
    """
    n, d = rows.shape
    seed = blake2b(np.ascontiguousarray(rows).tobytes(), key=key, digest_size=32).digest()
    rng = np.random.default_rng(np.frombuffer(seed, dtype=np.uint32))
    mean = rows.mean(axis=0)
    rank = min(n - 1, d)  # of the centred rows, at most
    _, lengths, axes = np.linalg.svd(np.linalg.qr(rows - mean, mode="r"))
    root = lengths[:rank, None] * axes[:rank]
    drawn = rng.normal(size=(n, rank))
    drawn -= drawn.mean(axis=0)
    basis = np.linalg.qr(drawn)[0]
    return np.asarray(basis @ root + mean)


def problems(frame: pd.DataFrame, least_set: int) -> list[str]:
    """Return why the moments of a table would reveal single rows, or do not exist: a sentence for each column."""
    found = []
    for name in frame.columns:
        column = frame[name]
        if getattr(column.dtype, "kind", "O") not in "buif":
            found.append(f"column {name!r} holds no numbers")
            continue
        values = column.to_numpy(dtype=np.float64)
        if not np.isfinite(values).all():
            found.append(f"column {name!r} has missing or infinite cells")
            continue
        _, counts = np.unique(values, return_counts=True)
        others = len(values) - counts.max()
        if 0 < others < least_set:
            found.append(f"column {name!r} has one value in all but {others} rows")
            continue
        spread = np.sort((values - values.mean()) ** 2)
        few = spread[len(spread) - least_set + 1 :]  # of the rows that are farthest from the mean, one less than a set
        if few.sum() > _DOMINANT * spread.sum() > 0:
            found.append(f"column {name!r} has nearly all of its spread in fewer than {least_set} rows")
    return found


def as_moments(frame: pd.DataFrame, key: bytes) -> pd.DataFrame:
    """Return a table of numbers with its rows replaced by `moment_rows`."""
    import pandas as pd

    if len(frame) < 3:
        raise InputError("the moments of fewer than three rows are these rows")
    drawn = moment_rows(frame.to_numpy(dtype=np.float64), key)
    return pd.DataFrame(drawn, columns=frame.columns)

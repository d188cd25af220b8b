"""Rows that stand for a site's moments: the same number, sums and second moments, and none of the site's rows.

At the level ``aggregate`` requests see these rows and no others. Whatever the step, its parameters and the rounding of
its arithmetic. A reply can depend on the site's rows only through their moments and a key that stays at the site.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix
from fedspan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


#: A column in which fewer than `least_set` rows carry this share of the spread is about these rows.
_DOMINANT = 0.9
#: Columns of which neither is about few rows, and whose sum or difference is, have at least this correlation.
_ALIKE = 0.2
#: A combination of columns with this share of its squares in a few rows is about these rows.
_EXACT = 0.99
#: Passes of the search for such rows, and the products of two rows that it holds at a time.
_PASSES, _CELLS = 4, 2**22
#: A column with less than this part of the largest coefficient is not named; at most so many columns are.
_MATTERS, _MOST_NAMED = 0.05, 6


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
        elif _dominated(values - values.mean(), least_set):
            found.append(f"column {name!r} has nearly all of its spread in fewer than {least_set} rows")
    return found or _combinations(frame, least_set)


def _combinations(frame: pd.DataFrame, least_set: int) -> list[str]:
    """Return what combinations of columns would reveal: they have moments, too, with all other columns.

    The difference of two columns that agree in all but a few rows is about these rows. So is what is left of a column
    beside its regression on all others, where that is nearly exact but for a few rows. A row of high leverage is nearly
    alone in some combination. An attacker that knows part of the row finds that combination, and by its moments the
    rest.
    """
    X, names = frame.to_numpy(dtype=np.float64), list(frame.columns)
    centred = X - X.mean(axis=0)
    lengths = np.linalg.norm(centred, axis=0)
    varies = np.flatnonzero(lengths > 0)
    units = centred[:, varies] / lengths[varies]
    found = []
    for a, b in np.argwhere(np.triu(np.abs(units.T @ units) >= _ALIKE, 1)):
        for both in (X[:, varies[a]] - X[:, varies[b]], X[:, varies[a]] + X[:, varies[b]]):
            others = np.count_nonzero(both != np.median(both[: 2 * least_set - 1]))
            if 0 < others < least_set:
                pair = f"{names[varies[a]]!r} and {names[varies[b]]!r}"
                found.append(f"columns {pair} differ by one number, or add up to one, in all but {others} rows")
    if found:
        return found
    left, values, axes = np.linalg.svd(units, full_matrices=False)
    known = values > 1e-12 * values.max(initial=0.0)  # without relations that hold in every row
    alone = np.count_nonzero(np.square(left[:, known]).sum(axis=1) + 1 / len(X) > _DOMINANT)
    if alone and least_set > 1:
        return [
            f"{len(varies)} columns have a combination that is nearly one row alone, for {alone} of {len(X)} rows, "
            "and its moments with a column are that row's cell"
        ]
    rest = (left[:, known] / values[known]) @ axes[known]
    found = [
        f"column {names[k]!r} follows from the others in all but fewer than {least_set} rows"
        for k, column in zip(varies, rest.T, strict=True)
        if _dominated(column, least_set)
    ]
    if found:
        return found
    combination = _few_rows_alone(left[:, known], least_set - 1)
    if combination is None:
        return []
    shares = np.abs((combination / values[known]) @ axes[known])
    largest = np.argsort(-shares, kind="stable")[: np.count_nonzero(shares > _MATTERS * shares.max())]
    some = ", ".join(repr(names[varies[k]]) for k in sorted(largest[:_MOST_NAMED]))
    return [f"columns {some} have a combination that is nearly one number in all but fewer than {least_set} rows"]


def _few_rows_alone(axes: Matrix, few: int) -> Matrix | None:
    """Return a combination (p,) of centred orthonormal columns (n, p) that is nearly one number but in `few` rows.

    Of the combinations that live on a set of rows, the first eigenvector of these rows' block of the projection is the
    one to look for. The set is found from its row of most weight: the rows whose projections on that one are largest,
    improved a few times. By the Cauchy-Schwarz inequality other rows need not be tried.
    """
    n = len(axes)
    if not 0 < few < n:
        return None
    Q = np.column_stack([np.full(n, n**-0.5), axes])
    candidates = np.flatnonzero(np.square(Q).sum(axis=1) >= _EXACT / few)
    for start in range(0, len(candidates), size := max(1, _CELLS // n)):
        near = Q[candidates[start : start + size]]
        for _ in range(_PASSES):
            products = np.abs(near @ Q.T)
            rows = np.argpartition(products, n - few, axis=1)[:, n - few :]
            enough = np.square(np.take_along_axis(products, rows, axis=1)).sum(axis=1) >= _EXACT**2 / few
            if not enough.any():
                break
            some = Q[rows[enough]]
            lengths, vectors = np.linalg.eigh(some @ some.transpose(0, 2, 1))
            near = (vectors[:, None, :, -1] @ some)[:, 0] / np.sqrt(lengths[:, -1:])
            best = int(np.argmax(lengths[:, -1]))
            if lengths[best, -1] > _EXACT:
                return np.asarray(near[best, 1:])
    return None


def _dominated(values: NDArray[np.float64], least_set: int) -> bool:
    """Return whether fewer rows than `least_set` have nearly all of the squares of centred values."""
    squares = np.sort(values**2)
    few = squares[len(squares) - least_set + 1 :]
    return bool(few.sum() > _DOMINANT * squares.sum() > 0)


def as_moments(frame: pd.DataFrame, key: bytes) -> pd.DataFrame:
    """Return a table of numbers with its rows replaced by `moment_rows`."""
    import pandas as pd

    if len(frame) < 3:
        raise InputError("the moments of fewer than three rows are these rows")
    drawn = moment_rows(frame.to_numpy(dtype=np.float64), key)
    return pd.DataFrame(drawn, columns=frame.columns)

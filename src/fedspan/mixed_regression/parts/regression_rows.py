"""The rows of a site as a regression sees them: numbers in double precision, and few of them where few will do.

Squared errors of n rows in d columns are those of at most d rows (`fedspan.linalg.compressed`), so that a step costs
O(min(n, d) d) however many rows a site has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.linalg import compressed, descent_operator, proximal_operator
from fedspan.sums.row_blocks import n_columns

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

_BLOCK_BYTES = 2**22


@dataclass(frozen=True, eq=False)
class Rows:
    """At most d rows (X, y) that have the squared errors of all n rows of a site, but for a constant `rest`."""

    X: Matrix
    y: Vector
    rest: float
    n: int
    largest: float  # eigenvalue of X'X / n

    def losses(self, models: Matrix) -> tuple[Matrix, Vector]:
        """Return the residuals (k, m) and the squared errors (k,) of `models` (k, d)."""
        E = self.y - models.dot(self.X.T)  # at a site of ten rows ``dot`` takes half the time of ``@``
        losses: Vector = np.vecdot(E, E)
        return E, losses + self.rest if self.rest else losses


def rows_of(site: Site) -> Rows:
    """Return the (compressed) rows of a site; computed once."""
    return site.cached("regression rows", lambda: _rows(site))


def target(site: Site, *, finite: bool = True) -> Vector:
    """Return the targets of a site as (finite) numbers, or refuse."""
    y = site.y
    if y is None:
        raise InputError(f"site {site.name!r} has no y, and a regression needs the target of each row")
    if y.ndim != 1 or y.dtype.kind not in "buif":
        raise InputError(f"site {site.name!r}: y must be a vector of numbers, not {y.dtype} of shape {y.shape}")
    values = np.asarray(y, dtype=np.float64)
    if finite and not np.isfinite(values).all():
        raise InputError(f"site {site.name!r}: y contains NaN or infinity in {int((~np.isfinite(values)).sum())} rows")
    return values


def row_blocks(site: Site, columns: int = 1) -> Iterator[tuple[Matrix, Vector]]:
    """Yield features (n_b, d) and targets (n_b,) in blocks that stay small with `columns` numbers beside each row."""
    y, at = target(site), 0
    size = max(1, _BLOCK_BYTES // (8 * max(1, n_columns(site), columns)))
    if len(site) <= size:
        yield np.asarray(site.X, dtype=np.float64), y
        return
    for batch in site.batches(size):
        yield np.asarray(batch.X, dtype=np.float64), y[at : at + len(batch.X)]
        at += len(batch.X)


def local_operator(site: Site, update: str, rate: float, local_steps: int) -> Matrix:
    """Return n times the Z of a site's own steps (see `fedspan.linalg.descent_operator`); computed once.

    Several gradient steps in a row must not overshoot: no site takes longer ones than one over its own largest
    eigenvalue.
    """

    def make() -> Matrix:
        rows = rows_of(site)
        if update == "fedprox":
            return rows.n * proximal_operator(rows.X, rate, rows.n)
        stable = min(rate, 1.0 / rows.largest) if local_steps > 1 and rows.largest > 0.0 else rate
        return rows.n * descent_operator(rows.X, stable, local_steps, rows.n)

    return site.cached(f"{update} {rate!r} {local_steps}", make)


def _rows(site: Site) -> Rows:
    d, n = n_columns(site), len(site)
    X, y, rest = compressed(row_blocks(site), d)
    largest = float(np.linalg.norm(X, 2)) ** 2 / n if X.size else 0.0
    return Rows(X, y, rest, n, largest)


def of_halves(site: Site, **_: Any) -> int:
    """Return the rows of the smaller half."""
    return len(site) // 2

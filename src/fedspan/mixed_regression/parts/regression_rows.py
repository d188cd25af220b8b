"""The rows of a site for a regression: in double precision, and compressed to at most d rows.

Squared errors of n rows in d columns are those of at most d rows (`fedspan.linalg.compressed`). A step costs
O(min(n, d) d), however many rows a site has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.linalg import compressed, descent_operator, proximal_operator
from fedspan.linalg.regression.local_steps import row_spectrum
from fedspan.sums.row_blocks import n_columns

_BLOCK_BYTES = 2**22


@dataclass(frozen=True, eq=False)
class RegressionRows:
    """At most d rows (X, y) that have the squared errors of all n rows of a site, up to a constant `rest`."""

    X: Matrix
    y: Vector
    rest: float
    n: int

    @cached_property
    def spectrum(self) -> tuple[Vector, Matrix]:
        """Eigenvalues and eigenvectors of ``X X'`` or ``X'X``, which every operator of local steps needs."""
        return row_spectrum(self.X)

    @property
    def largest(self) -> float:
        """The largest eigenvalue of ``X'X / n``."""
        return float(self.spectrum[0][-1]) / self.n if self.X.size else 0.0

    def descended(self, residual: Vector, rate: float, steps: int) -> Vector:
        """Return n times the change (d,) of a model with this `residual` (m,) by gradient steps, taken one by one.

        As `local_operator`, which prepares for many rounds: a step is at most one over the largest eigenvalue. Of most
        sites a bound of that shows it: the root of the eighth order of the sum of all eigenvalues to the eighth.
        """
        G, scale = self.X.dot(self.X.T), rate / self.n
        if steps > 1 and self.X.size:
            squared = G.dot(G)
            fourth = squared.dot(squared)
            if not 0.0 < scale * float(np.vdot(fourth, fourth)) ** 0.125 <= 1.0:
                scale = min(scale, 1.0 / max(float(self.spectrum[0][-1]), np.finfo(np.float64).tiny))
        G *= scale
        left, taken = residual, residual.copy()
        for _ in range(steps - 1):
            left = left - G.dot(left)
            taken += left
        taken *= self.n * scale
        change: Vector = taken.dot(self.X)
        return change

    def losses(self, models: Matrix) -> tuple[Matrix, Vector]:
        """Return the residuals (k, m) and the squared errors (k,) of `models` (k, d)."""
        E = self.y - models.dot(self.X.T)  # for ten rows, ``dot`` takes half the time of ``@``
        losses: Vector = np.vecdot(E, E)
        return E, losses + self.rest if self.rest else losses


def rows_of(site: Site) -> RegressionRows:
    """Return the compressed rows of a site, computed once."""

    def make() -> RegressionRows:
        d = n_columns(site)
        X, y, rest = compressed(row_blocks(site, d), d)
        return RegressionRows(X, y, rest, len(site))

    return site.cached("regression rows", make)


def target(site: Site, *, finite: bool = True) -> Vector:
    """Return the targets of a site as (finite) numbers, or refuse them."""
    y = site.y
    if y is None:
        raise InputError("the site has no y: a regression needs the target of each row, as in federate(X, y)")
    if y.ndim != 1 or y.dtype.kind not in "buif":
        raise InputError(f"y must be a vector of numbers, not {y.dtype} of shape {y.shape}")
    values = np.asarray(y, dtype=np.float64)
    if finite and not math.isfinite(np.vdot(values, values)) and not np.isfinite(values).all():
        raise InputError(f"y contains NaN or infinity in {int((~np.isfinite(values)).sum())} rows")
    return values


def row_blocks(site: Site, columns: int = 1) -> Iterator[tuple[Matrix, Vector]]:
    """Yield features (n_b, d) and targets (n_b,) in blocks that stay small with `columns` numbers beside each row."""
    y, at = target(site), 0
    size = max(1, _BLOCK_BYTES // (8 * max(1, n_columns(site), columns)))
    if len(site) <= size and not site.streamed:
        yield np.asarray(site.X, dtype=np.float64), y
        return
    for batch in site.batches(size):
        yield np.asarray(batch.X, dtype=np.float64), y[at : at + len(batch.X)]
        at += len(batch.X)


def local_operator(site: Site, update: str, rate: float, local_steps: int) -> Matrix:
    """Return n times the Z of a site's own steps (see `fedspan.linalg.descent_operator`), computed once.

    Several gradient steps in a row must not overshoot: a site's step size is at most one over its own largest
    eigenvalue.
    """

    def make() -> Matrix:
        rows = rows_of(site)
        if update == "fedprox":
            return rows.n * proximal_operator(rows.X, rate, rows.n, rows.spectrum)
        stable = min(rate, 1.0 / rows.largest) if local_steps > 1 and rows.largest > 0.0 else rate
        return rows.n * descent_operator(rows.X, stable, local_steps, rows.n, rows.spectrum)

    return site.cached(f"{update} {rate!r} {local_steps}", make)


def ridge_solution(gram: Matrix, moment: Vector, n: int) -> Vector:
    """Return least squares of n rows with one pseudo-row of average size, which keeps few rows solvable."""
    k = len(moment)
    ridge = max(float(np.trace(gram)) / (k * max(n, 1)), np.finfo(np.float64).tiny)
    return np.asarray(np.linalg.solve(gram + ridge * np.eye(k), moment), dtype=np.float64)


def of_halves(site: Site, **_: Any) -> int:
    """Return the number of rows in the smaller half of a site."""
    return len(site) // 2

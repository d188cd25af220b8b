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
#: Larger tables are read in blocks, and their transforms' rows are not held.
_ONCE_BYTES = 2**26
#: So few steps take no longer than what a site prepares, however few its rows.
_FEW_STEPS = 24


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


def once_descended(site: Site, models: Matrix, rate: float, steps: int) -> tuple[int, Vector, float] | None:
    """Take a site's gradient steps one by one on its rows as they are: nothing is prepared for later rounds.

    Return the cluster, n times the change (d,) of its model, and its loss; ``None`` where preparing (`local_operator`)
    costs less, or where a gradient's product with the previous one is smaller than its own square: a step was longer
    than one over the largest eigenvalue. Without that sign, no direction moves by more than half the step before it.
    """
    n, d = len(site), n_columns(site)
    m = min(n, d)
    many = steps > _FEW_STEPS and 4 * steps * n * d > 2 * n * d * m + 9 * m**3
    if site.streamed or many or 8 * n * d > _ONCE_BYTES:
        return None
    X, y = np.asarray(next(site.batches(max(1, n))).X, dtype=np.float64), target(site)
    E = [y - X.dot(model) for model in models]  # a product with few columns takes twice as long
    losses = [float(residual.dot(residual)) for residual in E]
    label = losses.index(min(losses))
    left = E[label]
    gradient = left.dot(X)
    taken: Vector = gradient.copy()
    for _ in range(steps - 1):
        before, move = gradient, X.dot(gradient)
        move *= rate / n
        left -= move
        gradient = left.dot(X)
        if not gradient.dot(before) >= gradient.dot(gradient):
            return None
        taken += gradient
    taken *= rate
    return label, taken, losses[label]


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

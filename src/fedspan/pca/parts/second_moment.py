"""A site's second moment ``C = X'X / rows`` for steps that multiply with it many times.

As a matrix (d, d), computed once, or through the rows at every product, by the lower cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh
from scipy.linalg.blas import dgemm
from scipy.sparse.linalg import LinearOperator, eigsh

from fedspan.federation import Site
from fedspan.federation.site.parameters import Matrix
from fedspan.sums.row_blocks import blocks

#: The most entries of a matrix d x d (128 MiB), however cheap it would make the products.
_MOST_ENTRIES = 2**24
#: The fixed cost of reading the rows once, in multiplications: blocks, centring, calls.
_WALK = 50_000


@dataclass(frozen=True)
class SecondMoment:
    """The matrix ``C = X'X / rows`` (d, d) of a site's rows, its trace, and its largest eigenvalue `top`.

    ``add_product(A, factor, U)`` returns a new matrix ``A + factor * C U`` (d, k), in Fortran's order.
    """

    add_product: Callable[[Matrix, float, Matrix], Matrix]
    trace: float
    top: float

    def product(self, U: Matrix) -> Matrix:
        """Return ``C U``."""
        return self.add_product(np.zeros(U.shape, order="F"), 1.0, U)

    def captured(self, U: Matrix) -> float:
        """Return ``trace(U' C U)``: the part of the trace of C in the span of an orthonormal U."""
        return float(np.vdot(U.T, self.product(U).T))


def second_moment(site: Site, rows: float, shape: tuple[int, int], products: int) -> SecondMoment:
    """Return ``C = X'X / rows`` in the cheapest form for `products` products with matrices (d, k) of this shape.

    Memory beyond the data: d^2, at most twice the size of the rows and 128 MiB, or one block of rows.
    """
    d, k = shape
    if is_matrix_cheaper(len(site), d, k, products):
        gram, trace, top = site.cached("second moment", lambda: _gram(site, d))

        def add_product(A: Matrix, factor: float, U: Matrix) -> Matrix:
            result: Matrix = dgemm(factor / rows, gram, U, 1.0, A)
            return result
    else:
        trace, top = site.cached("second moment, by rows", lambda: _spectrum(site, d))

        def add_product(A: Matrix, factor: float, U: Matrix) -> Matrix:
            result = np.array(A, order="F")
            for X in blocks(site):
                result += X.T @ ((factor / rows) * (X @ U))
            return result

    return SecondMoment(add_product, trace / rows, top / rows)


def is_matrix_cheaper(n: int, d: int, k: int, products: int) -> bool:
    """Whether to compute ``X'X`` of n rows once and multiply by it, rather than by X and X' each time.

    Counts multiplications: ``n d^2 / 2`` once and ``d^2 k`` per product, against ``2 n d k`` and a fixed cost per
    product. So the matrix is small, or at most twice as large as the rows.
    """
    by_matrix = n * d * d / 2 + products * d * d * k
    by_rows = products * (2 * n * d * k + n * d + _WALK)
    return d * d <= _MOST_ENTRIES and by_matrix <= by_rows


def _gram(site: Site, d: int) -> tuple[Matrix, float, float]:
    """Return ``X'X``, its trace and its largest eigenvalue."""
    S = np.zeros((d, d), order="F")
    for X in blocks(site):
        S += X.T @ X
    top = eigvalsh(S, subset_by_index=[d - 1, d - 1])[0]
    return S, float(np.trace(S)), max(0.0, float(top))


def _spectrum(site: Site, d: int) -> tuple[float, float]:
    """Return the trace and the largest eigenvalue of ``X'X`` without forming it."""
    trace = sum(float(np.vdot(X, X)) for X in blocks(site))
    if trace == 0.0 or d == 1:
        return trace, trace

    def product(v: Matrix) -> Matrix:
        return np.asarray(sum(X.T @ (X @ v.ravel()) for X in blocks(site)))

    operator = LinearOperator((d, d), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(d)  # a fixed start: the result depends on the data alone
    top = eigsh(operator, k=1, v0=start, tol=1e-12, return_eigenvectors=False)[0]
    return trace, float(top)

"""Local steps of linear models in closed form: the cost of a round does not depend on their number.

Gradient descent on ``||y - X theta||^2 / (2 n)`` with step `rate` is affine in theta, and so is the proximal step. Both
are ``theta + Z' (y - X theta)`` with an (n, d) matrix Z that depends on X alone: Lemma 1 of L. Su, J. Xu and P. Yang,
"Global convergence of federated learning for mixed regression", NeurIPS 2022, with ``Z = (rate / n) P X``. A
`SiteStack` simulates rounds of many sites whose rows are in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.lapack import dsyevd

from fedspan.arrays import Floats
from fedspan.checks import real_number, whole_number
from fedspan.errors import InputError

Weights = Literal["cluster", "total"]
Spectrum = tuple[Floats, Floats]

#: A sum of so few powers is faster term by term.
_FEW_STEPS = 24


def descent_operator(
    X: Floats, rate: float, steps: int, rows: int | None = None, spectrum: Spectrum | None = None
) -> Floats:
    """Return Z (n, d): `steps` gradient steps of size `rate` lead from theta to ``theta + Z' (y - X theta)``.

    The steps shrink the residual if `rate` is below two over the largest eigenvalue of ``X'X / n``. Where X (n, d)
    represents more rows than n (see `compressed`), `rows` is their number. The cost is one eigendecomposition of
    ``X X'`` or ``X'X``, whichever is smaller, unless that is known (`row_spectrum`).
    """
    whole_number("steps", steps, 1)
    return _operator(X, rate, rows, lambda x: _geometric_sum(x, steps), spectrum)


def proximal_operator(X: Floats, rate: float, rows: int | None = None, spectrum: Spectrum | None = None) -> Floats:
    """Return Z (n, d) such that ``theta + Z' (y - X theta)`` minimises the local loss plus a pull back to theta.

    That is ``||y - X t||^2 / (2 n) + ||t - theta||^2 / (2 rate)``; parameters as in `descent_operator`.
    """
    return _operator(X, rate, rows, lambda x: 1.0 / (1.0 + x), spectrum)


def row_spectrum(X: Floats) -> Spectrum:
    """Return eigenvalues, ascending, and eigenvectors of ``X X'`` or ``X'X`` (n, d), whichever is smaller."""
    # LAPACK itself: for the ten rows of a small site its wrappers take longer than it does.
    values, vectors, failed = dsyevd(X @ X.T if len(X) <= X.shape[1] else X.T @ X, lower=1)
    if failed:
        raise InputError("the eigenvalues of the rows' products were not found: scale the columns")
    return np.maximum(values, 0.0), vectors


def compressed(blocks: Iterable[tuple[Floats, Floats]], width: int) -> tuple[Floats, Floats, float]:
    """Return at most `width` rows (R, c) and a rest that have the squared errors of all given rows, for every model.

    ``||y - X theta||^2 = ||c - R theta||^2 + rest``, ``X'X = R'R`` and ``X'y = R'c``: R and c are triangular factors.
    Up to `width` rows in all stay as they are. The `blocks` are pairs of (n_b, width) and (n_b,) arrays; memory is that
    of one block and of ``width^2`` numbers.
    """
    held, rest, left = np.zeros((0, width + 1)), 0.0, iter(blocks)
    first, second = next(left, None), next(left, None)
    if first is not None and second is None and len(first[0]) <= width:
        return np.ascontiguousarray(first[0]), np.ascontiguousarray(first[1]), rest
    for X, y in chain((block for block in (first, second) if block is not None), left):
        held = np.vstack([held, np.column_stack([X, y])])
        if len(held) > width:
            triangle = scipy.linalg.qr(held, mode="r", check_finite=False)[0]
            held, last = triangle[:width], triangle[width : width + 1]
            rest += float(np.sum(last[:, -1] ** 2))
    return np.ascontiguousarray(held[:, :-1]), np.ascontiguousarray(held[:, -1]), rest


@dataclass(frozen=True, eq=False)
class SiteStack:
    """The rows of all sites, one site after the other: a round of clustered local steps is two matrix products.

    X (N, d) and y (N,) are the rows of all sites, `sizes` (M,) the number of rows of each, at least 1.
    """

    X: Floats
    y: Floats
    sizes: NDArray[np.intp]

    def __post_init__(self) -> None:
        if len(self.X) != len(self.y) or len(self.X) != self.sizes.sum() or not (self.sizes > 0).all():
            raise InputError(
                f"sizes must be positive and add up to the {len(self.X)} rows of X and {len(self.y)} of y, "
                f"not to {self.sizes.sum()}"
            )

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """The first row of each site (M,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    @cached_property
    def site_of_row(self) -> NDArray[np.intp]:
        """The site of each row (N,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def rows(self, site: int) -> slice:
        """Return the slice of a site's rows."""
        return slice(int(self.starts[site]), int(self.starts[site] + self.sizes[site]))

    def largest_eigenvalue(self) -> float:
        """Return the largest eigenvalue of ``X_i'X_i / n_i`` over all sites."""
        parts = (self.X[self.rows(i)] for i in range(len(self.sizes)))
        return max(float(np.linalg.norm(part, 2) ** 2 / len(part)) for part in parts)

    def descent(self, rate: float, steps: int) -> Floats:
        """Return the stacked operators Z (N, d) of `steps` gradient steps; see `descent_operator`."""
        return np.vstack([descent_operator(self.X[self.rows(i)], rate, steps) for i in range(len(self.sizes))])

    def proximal(self, rate: float) -> Floats:
        """Return the stacked operators Z (N, d) of a proximal step; see `proximal_operator`."""
        return np.vstack([proximal_operator(self.X[self.rows(i)], rate) for i in range(len(self.sizes))])

    def losses(self, models: Floats) -> Floats:
        """Return the squared errors (M, k) of the `models` (k, d) at every site."""
        return self._losses(self.y[:, None] - self.X @ models.T)

    def labels(self, models: Floats) -> NDArray[np.intp]:
        """Return the model (M,) with the smallest squared error at every site."""
        return np.asarray(self.losses(models).argmin(axis=1))

    def refined(
        self, models: Floats, Z: Floats, weights: Weights = "cluster", labels: NDArray[np.intp] | None = None
    ) -> Floats:
        """Return the models (k, d) after one round: every site's steps on its own model, then their weighted mean.

        Weights are ``n_i / N_j``, over the rows of the cluster, or ``n_i / N``, over all rows. A model without sites
        stays. The default `labels` (M,) are those of smallest error.
        """
        E = self.y[:, None] - self.X @ models.T
        if labels is None:
            labels = self._losses(E).argmin(axis=1)
        k = len(models)
        label = labels[self.site_of_row]
        size = self.sizes[self.site_of_row]
        E *= np.where(label[:, None] == np.arange(k), size[:, None], 0)
        rows = np.bincount(labels, weights=self.sizes, minlength=k)
        total = np.maximum(rows, 1.0) if weights == "cluster" else np.full(k, rows.sum())
        return np.asarray(models + (E.T @ Z) / total[:, None])

    def fitted(self, labels: NDArray[np.intp], models: Floats) -> Floats:
        """Return the least-squares models (k, d) of the clusters `labels` (M,); without sites, the given `models`."""
        found = models.copy()
        for j in range(len(models)):
            rows = labels[self.site_of_row] == j
            if rows.any():
                found[j] += np.linalg.lstsq(self.X[rows], self.y[rows] - self.X[rows] @ models[j], rcond=None)[0]
        return found

    def _losses(self, E: Floats) -> Floats:
        return np.add.reduceat(E * E, self.starts, axis=0)


def _operator(
    X: Floats, rate: float, rows: int | None, factor: Callable[[Floats], Floats], spectrum: Spectrum | None
) -> Floats:
    """Return ``(rate / n) P X`` with ``P = factor(rate X X' / n)``, a function of a symmetric matrix."""
    real_number("rate", rate, above=0)
    n, d = X.shape
    if n == 0:
        return np.zeros((0, d))
    scale = rate / max(1, n if rows is None else rows)
    values, V = row_spectrum(X) if spectrum is None else spectrum
    factors = scale * factor(scale * values)
    return np.asarray((V * factors) @ (V.T @ X) if n <= d else (X @ V) * factors @ V.T)


def _geometric_sum(x: Floats, steps: int) -> Floats:
    """Return ``1 + (1 - x) + ... + (1 - x)^(steps - 1) = (1 - (1 - x)^steps) / x`` without cancellation near 0."""
    if steps <= _FEW_STEPS:
        found, rest = np.ones_like(x), 1.0 - x
        for _ in range(steps - 1):
            found *= rest
            found += 1.0
        return found
    small = x < 0.5
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        near = np.where(x > 0.0, -np.expm1(steps * np.log1p(-np.where(small, x, 0.0))) / x, float(steps))
        far = (1.0 - (1.0 - x) ** steps) / x
    return np.where(small, near, far)

"""Many sites' regressions as one stack of rows: a round of clustered local steps in two matrix products.

For simulations: what a federation computes site by site, with all sites' rows in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.linalg.regression.local_steps import Array, descent_operator, proximal_operator

Weights = Literal["cluster", "total"]


@dataclass(frozen=True, eq=False)
class SiteStack:
    """The rows of all sites, one site after the other.

    Attributes
    ----------
    X : (N, d) array
    y : (N,) array
    sizes : (M,) array
        Rows of each site, at least 1.

    Examples
    --------
    >>> stack = SiteStack(np.array([[1.0], [1.0], [2.0]]), np.array([1.0, 1.2, -2.0]), np.array([2, 1]))
    >>> models = np.array([[1.0], [-1.0]])
    >>> stack.labels(models)
    array([0, 1])
    >>> stack.refined(models, stack.descent(rate=0.5, steps=1))     # the first model moves to 1.05
    array([[ 1.05],
           [-1.  ]])
    """

    X: Array
    y: Array
    sizes: NDArray[np.intp]

    def __post_init__(self) -> None:
        if len(self.X) != len(self.y) or len(self.X) != self.sizes.sum() or not (self.sizes > 0).all():
            raise InputError(
                f"sizes must be positive and add up to the {len(self.X)} rows of X and {len(self.y)} of y, "
                f"not to {self.sizes.sum()}"
            )

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where each site's rows begin (M,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    @cached_property
    def site_of_row(self) -> NDArray[np.intp]:
        """The site of each row (N,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def rows(self, site: int) -> slice:
        """Return where the rows of a site are."""
        return slice(int(self.starts[site]), int(self.starts[site] + self.sizes[site]))

    def largest_eigenvalue(self) -> float:
        """Return the largest eigenvalue of ``X_i'X_i / n_i`` over all sites."""
        parts = (self.X[self.rows(i)] for i in range(len(self.sizes)))
        return max(float(np.linalg.norm(part, 2) ** 2 / len(part)) for part in parts)

    def descent(self, rate: float, steps: int) -> Array:
        """Return the stacked operators Z (N, d) of `steps` gradient steps; see `descent_operator`."""
        return np.vstack([descent_operator(self.X[self.rows(i)], rate, steps) for i in range(len(self.sizes))])

    def proximal(self, rate: float) -> Array:
        """Return the stacked operators Z (N, d) of a proximal step; see `proximal_operator`."""
        return np.vstack([proximal_operator(self.X[self.rows(i)], rate) for i in range(len(self.sizes))])

    def losses(self, models: Array) -> Array:
        """Return the squared errors (M, k) of the `models` (k, d) at every site."""
        return self._losses(self.y[:, None] - self.X @ models.T)

    def labels(self, models: Array) -> NDArray[np.intp]:
        """Return the model (M,) with the smallest squared error at every site."""
        return np.asarray(self.losses(models).argmin(axis=1))

    def refined(
        self, models: Array, Z: Array, weights: Weights = "cluster", labels: NDArray[np.intp] | None = None
    ) -> Array:
        """Return the models (k, d) after one round: every site's steps on its own model, then their weighted mean.

        Weights are ``n_i / N_j``, over the rows of the cluster, or ``n_i / N``, over all rows. A model without sites
        stays. `labels` (M,) are those of smallest error unless they are given.
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

    def fitted(self, labels: NDArray[np.intp], models: Array) -> Array:
        """Return the least-squares models (k, d) of the clusters that `labels` make; without sites, those given."""
        found = models.copy()
        for j in range(len(models)):
            rows = labels[self.site_of_row] == j
            if rows.any():
                found[j] += np.linalg.lstsq(self.X[rows], self.y[rows] - self.X[rows] @ models[j], rcond=None)[0]
        return found

    def _losses(self, E: Array) -> Array:
        return np.add.reduceat(E * E, self.starts, axis=0)

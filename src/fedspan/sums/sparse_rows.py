"""Sums over sparse rows without a dense copy: a shift of the columns is never added to the zeros.

A site shows its sparse rows x as ``z = (x - shift) / scale``. Sums of z, of squares and of products with z follow from
the entries that are not zero, and from how many are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Site
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.sums.row_moments import RowMoments


@dataclass(frozen=True)
class SparseRows:
    """Rows ``(x - shift) / scale`` of a sparse matrix x (n, d), with the weights of the rows, if they have some."""

    x: Any
    shift: Vector
    scale: Vector
    weights: Vector | None = None

    @property
    def weight(self) -> float:
        """The sum of the rows' weights."""
        return float(self.x.shape[0]) if self.weights is None else float(self.weights.sum())

    @property
    def bad(self) -> NDArray[np.int64]:
        """The number of values of each column that are not finite."""
        return np.bincount(self.x.indices[~np.isfinite(self.x.data)], minlength=self.x.shape[1]).astype(np.int64)

    def sums(self) -> Vector:
        """Return the weighted sum of each column."""
        return np.asarray((self._by_column(self.x.data) - self.weight * self.shift) / self.scale)

    def squares(self, about: Vector) -> Vector:
        """Return the weighted sum of squares of each column about `about` (d,)."""
        centre = self.shift + self.scale * about
        away = self.x.data - centre.take(self.x.indices)
        zeros = self.weight - self._by_column(np.ones(len(away)))
        return np.asarray((self._by_column(away**2) + np.maximum(zeros, 0.0) * centre**2) / self.scale**2)

    def moments(self) -> RowMoments:
        """Return number, weight, mean and squares of the rows."""
        n, d = self.x.shape
        weight = self.weight
        if not weight > 0.0:
            return RowMoments.of_no_rows(d, products=False, n=n)
        mean = self.sums() / weight
        return RowMoments(n, weight, mean, np.zeros(d), self.squares(mean))

    def times(self, V: Matrix) -> Matrix:
        """Return the products (n, k) of the rows with V (d, k)."""
        A = V / self.scale[:, None]
        return np.asarray(self.x @ A - self.shift @ A)

    def transposed_times(self, T: Matrix) -> Matrix:
        """Return the product (d, k) of the transposed rows with T (n, k)."""
        return np.asarray((self.x.T @ T - np.outer(self.shift, T.sum(axis=0))) / self.scale[:, None])

    def _by_column(self, values: Vector) -> Vector:
        """Return the weighted sum of a value of each entry, by column."""
        if self.weights is not None:
            values = values * np.repeat(self.weights, np.diff(self.x.indptr))
        return np.asarray(np.bincount(self.x.indices, values, minlength=self.x.shape[1]), dtype=np.float64)


def sparse_rows(site: Site) -> SparseRows | None:
    """Return the rows of a site with a sparse matrix; ``None`` where rows are dense, or a transform mixes columns."""
    found = site.sparse_rows
    if found is None:
        return None
    x, shift, scale = found
    d = x.shape[1]
    return SparseRows(
        x if x.dtype == np.float64 else x.astype(np.float64),
        np.zeros(d) if shift is None else np.asarray(shift, dtype=np.float64),
        np.ones(d) if scale is None else np.asarray(scale, dtype=np.float64),
        site.sample_weight,
    )

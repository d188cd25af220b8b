"""The centres of a private map: principal axes from sums, and codebooks of federated k-means along them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import real_number, whole_number
from fedspan.clustering.federated_k_means import federated_k_means
from fedspan.errors import InputError
from fedspan.federation import Federation, transform
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.subspace_iteration import subspace_iteration
from fedspan.sums.moments import moments
from fedspan.sums.row_transforms import standardize

#: With more columns subspace iteration replaces the scatter matrix.
_MOST_COLUMNS = 2048


@dataclass(frozen=True)
class MapCentres:
    """Centres of rows, which are seen as ``(x - mean) @ axes.T``.

    Attributes
    ----------
    mean : array (d,)
    axes : array (r, d)
        Principal axes over one number, the root of the variance along them all.
    deviation : float
        Of the rows along the first axis, as they are seen.
    centres : array (L, r)
        Of all codebooks, except those of too few rows.
    counts : array (L,)
        Rows closest to each in its codebook.
    within : array (r,)
        Variance of the rows about the closest centre, along each axis.
    n : int
        Number of all rows.
    """

    mean: Vector
    axes: Matrix
    deviation: float
    centres: Matrix
    counts: NDArray[np.int64]
    within: Vector
    n: int


@dataclass(frozen=True)
class Codebooks:
    """Settings of the centres of a map.

    Attributes
    ----------
    codebooks : int, default=8
        Many coarse ones describe rows better than one fine one, as each cuts them in another way.
    rows_per_centre : float, default=17.0
        On average.
    least_rows : int, default=5
        Centres of fewer are dropped, no sum of fewer rows is requested, and no two sums that differ by fewer.
    axes : int, default=50
        The most principal axes.
    k_means_rounds : int, default=3
        After the start, which has three with all centres. Later ones change few rows, so few sums may be requested.
    """

    codebooks: int = 8
    rows_per_centre: float = 17.0
    least_rows: int = 5
    axes: int = 50
    k_means_rounds: int = 3

    def __post_init__(self) -> None:
        for name, fewest in {"codebooks": 1, "least_rows": 1, "axes": 2, "k_means_rounds": 1}.items():
            whole_number(name, getattr(self, name), fewest)
        least = self.least_rows
        real_number("rows_per_centre", self.rows_per_centre, least=least, why=f", which is least_rows={least}")


@transform("maps.along_axes", affine=True)
def along_axes(X: NDArray[Any], mean: Vector, axes: Matrix) -> NDArray[np.float64]:
    """Return the coordinates ``(X - mean) @ axes.T`` of rows."""
    return np.asarray((X - mean) @ axes.T)


def map_centres(
    fed: Federation, *, books: Codebooks, names: tuple[str, ...] | None = None
) -> tuple[MapCentres, Federation]:
    """Return the centres, and the federation as they see it: rows along the principal axes."""
    fed.log(phase="axes")
    first = moments(fed, names)
    if first.n < books.least_rows:
        raise InputError(f"n_samples={first.n}: a map needs at least least_rows={books.least_rows} rows")
    about = fed.apply(standardize, mean=first.mean, scale=None, double=True)
    d = len(first.mean)
    if d <= _MOST_COLUMNS:
        found, _ = covariance_pca(about, rank=min(books.axes, d))
    else:
        found, _ = subspace_iteration(about, rank=min(books.axes, d), n_columns=d, tol=1e-4)
    # Axes along which the rows hardly differ are rounding errors; equal rows keep one axis.
    kept = max(1, int(np.sum(found.scatter > 1e-12 * max(float(found.scatter[0]), np.finfo(float).tiny))))
    scale = np.sqrt(max(float(found.scatter[:kept].sum()) / max(found.n, 1), np.finfo(float).tiny))
    W = found.components[:kept] / scale
    seen = fed.apply(along_axes, mean=first.mean, axes=W)
    fed.log(phase="codebooks")
    made = federated_k_means(
        seen,
        n_clusters=max(1, round(first.n / books.rows_per_centre)),
        n_init=books.codebooks,
        max_iter=books.k_means_rounds,
        tol=1e-3,
        least_rows=books.least_rows,
    )
    enough = made.counts >= books.least_rows
    if not enough.any():
        raise InputError(f"no centre has least_rows={books.least_rows} rows: a map needs more rows")
    variances = found.scatter[:kept] / max(found.n, 1) / scale**2
    counts = made.counts[..., None]
    between = (counts * made.centres**2).sum(axis=(0, 1)) / max(int(counts.sum()), 1)
    return MapCentres(
        mean=first.mean,
        axes=W,
        deviation=float(np.sqrt(max(variances[0], 0.0))) or 1.0,
        centres=made.centres[enough],
        counts=made.counts[enough],
        within=np.maximum(variances - between, 0.0),
        n=first.n,
    ), seen

"""PCA under differential privacy: the covariance from one sum of products with noise ("Analyze Gauss").

Sites move their rows into the unit ball (`rows_in_bounds`): u. Adding or removing a row moves the reply by its term,
which is for any row at most

    u u' (each pair once, times sqrt 2 off the diagonal), u / 2 and 1 / 2      sqrt(1 + 1/4 + 1/4)

long: the first part has the length ``||u u'||_F = ||u||^2 <= 1``. The noise on the products is a symmetric matrix.
Its eigenvectors and all else are made of the noisy sum (Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", 2014).

Up per site: (d + 1) (d + 2) / 2 numbers, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix, PositiveVector, Vector
from fedspan.linalg import top_eigenpairs
from fedspan.pca.parts.principal_axes import PrincipalAxes
from fedspan.privacy.mechanisms import Bounds, GaussianMoments
from fedspan.privacy.noisy_sums import NoiseShare, NoisySums, charged_noise, in_unit_ball, noisy_sums, rows_in_bounds
from fedspan.sums.plausible_totals import whole
from fedspan.sums.row_moments import packed, unpacked

#: The most columns whose products are summed.
_MOST_COLUMNS = 4096
#: The weight of a row's sum, and of its count, beside its products: more weight is more noise on the rest.
WEIGHT = 0.5
SENSITIVITY = math.sqrt(1 + 2 * WEIGHT**2)
#: A variance below this number of deviations of its noise counts as none.
_CLEAR = 2.0


@step("pca.noisy_gram", reveals="sums", noisy=True)
def local_noisy_gram(
    site: Site, center: Vector, width: PositiveVector, box: bool, **noise: Unpack[NoiseShare]
) -> dict[str, Any]:
    """Leaves the site: the sums of u u', u / 2 and 1 / 2 over its rows, with its share of the noise; charged."""
    noisy = charged_noise(site, SENSITIVITY, noise)
    return noisy_products(noisy, rows_in_bounds(site, center, width, box), len(center))


def noisy_products(noisy: Callable[[Vector], Vector], blocks: Iterable[Matrix], d: int) -> dict[str, Any]:
    """Return the sums of u u', u / 2 and 1 / 2 over blocks of rows u in the unit ball, with noise."""
    S, sums, rows = np.zeros((d, d)), np.zeros(d), 0
    for U in blocks:
        S += U.T @ U
        sums += U.sum(axis=0)
        rows += len(U)
    found = noisy(np.concatenate([pair_weights(d, math.sqrt(2.0)) * packed(S), WEIGHT * sums, [WEIGHT * rows]]))
    return {"products": found[: -d - 1], "sums": found[-d - 1 : -1], "rows": float(found[-1])}


@dataclass(frozen=True)
class NoisyCovariance:
    """Number of rows, mean (d,) and covariance (d, d) of rows within bounds, from sums with noise, and their sites.

    The entry (i, j) of the covariance has noise of the deviation ``noise[i] noise[j]``, or 0.7 times that off the
    diagonal.
    """

    n: int
    mean: Vector
    covariance: Matrix
    noise: Vector
    sites: tuple[str, ...]

    def axes(self, *, center: bool, scale: Vector | None, rank: int | None) -> PrincipalAxes:
        """Return the leading principal axes, of rows about their mean and over `scale` if these are wanted."""
        S = self.covariance if center else self.covariance + np.outer(self.mean, self.mean)
        S = S if scale is None else S / np.outer(scale, scale)
        total = float(np.trace(S))
        if not total > 0:
            raise InputError("the noise hides all variance: use more rows, tighter bounds or a larger epsilon")
        values, vectors = top_eigenpairs(self.n * S, len(S) if rank is None else min(rank, len(S)))
        return PrincipalAxes(vectors.T, np.maximum(values, 0.0), self.n * total, self.n)

    def deviations(self) -> Vector:
        """Return the standard deviations of the columns, 1 where the noise hides them."""
        variance = np.diag(self.covariance)
        return np.sqrt(np.where(variance > _CLEAR * self.noise**2, variance, 1.0))

    def spectral_noise(self, scale: Vector | None) -> float:
        """Return about the largest eigenvalue of the noise, of rows over `scale`."""
        noise = self.noise if scale is None else self.noise / scale
        return math.sqrt(2 * len(noise)) * float(np.mean(noise**2))


def noisy_covariance(fed: Federation, *, privacy: GaussianMoments, n_columns: int) -> NoisyCovariance:
    """Return the covariance of all rows, drawn in to public bounds, from one sum with noise."""
    privacy.check()
    with noisy_sums(privacy, fed, {local_noisy_gram: (1.0, 1)}, "all sums, and so the components") as noisy:
        return covariance_within(noisy, fed, privacy.bounds(n_columns))


def covariance_within(noisy: NoisySums, fed: Federation, bounds: Bounds) -> NoisyCovariance:
    """Return the covariance of all rows within `bounds`, within an account that is open."""
    d, unit = len(bounds.center), bounds.unit
    refuse_many_columns(d)
    total = noisy.sum(fed, local_noisy_gram, center=bounds.center, width=bounds.width, box=bounds.box)
    whole(total, products=(d * (d + 1) // 2,), sums=(d,), rows=())
    n = max(total["rows"] / WEIGHT, 2.0)
    mean = in_unit_ball(total["sums"][None] / WEIGHT / n)[0]
    noise = unit * math.sqrt(noisy.deviation(fed, local_noisy_gram, SENSITIVITY) / n)
    C = np.outer(unit, unit) * about_mean(total["products"] / n, mean)
    return NoisyCovariance(round(n), bounds.center + unit * mean, C, noise, tuple(total.sites))


def about_mean(products: Vector, mean: Vector) -> Matrix:
    """Return the covariance (d, d) from the mean weighted products of `local_noisy_gram`, and the mean."""
    return np.asarray(unpacked(pair_weights(len(mean), math.sqrt(0.5)) * products) - np.outer(mean, mean))


def refuse_many_columns(d: int) -> None:
    """Refuse more columns than products can be summed of."""
    if d > _MOST_COLUMNS:
        raise InputError(f"{d} columns are too many for sums of their products with noise: use at most {_MOST_COLUMNS}")


def pair_weights(d: int, apart: float) -> Vector:
    """Return the weights of pairs of columns: 1 for a column with itself, `apart` for two."""
    return np.where(np.equal(*np.triu_indices(d)), 1.0, apart)

"""Mean and variance of each column under differential privacy: one sum with noise over rows within public bounds.

Sites move their rows into the unit ball (`rows_in_bounds`): u, with entries of at most 1 / sqrt(d) where the bounds are
a box. Adding or removing a row moves the reply by its term, which is for any row at most

    u_j^2 (of a box times sqrt(d)), u_j and 1 / 2      sqrt(1 + 1 + 1/4)

long: ``sum_j u_j^4 <= (sum_j u_j^2)^2 <= 1``, and of a box ``d sum_j u_j^4 <= d d / d^2 = 1``.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import PositiveVector, Vector
from fedspan.privacy.mechanisms import Bounds, GaussianMoments
from fedspan.privacy.noisy_sums import NoiseShare, NoisySums, charged_noise, in_unit_ball, noisy_sums, rows_in_bounds
from fedspan.sums.moments import Moments
from fedspan.sums.plausible_totals import whole

#: The weight of the count beside squares and sums: more weight is more noise on the rest.
WEIGHT = 0.5
SENSITIVITY = math.sqrt(2 + WEIGHT**2)
#: A variance below this number of deviations of its noise counts as none.
_CLEAR = 2.0


@step("sums.noisy_sums", reveals="sums", noisy=True)
def local_noisy_sums(
    site: Site, center: Vector, width: PositiveVector, box: bool, **noise: Unpack[NoiseShare]
) -> dict[str, Any]:
    """Leaves the site: the sums of u^2, u and 1 / 2 over its rows, with its share of the noise; charged."""
    noisy = charged_noise(site, SENSITIVITY, noise)
    d = len(center)
    exact = np.zeros(2 * d + 1)
    for U in rows_in_bounds(site, center, width, box):
        exact += np.concatenate([_factor(d, box) * np.square(U).sum(axis=0), U.sum(axis=0), [WEIGHT * len(U)]])
    found = noisy(exact)
    return {"squares": found[:d], "sums": found[d:-1], "rows": float(found[-1])}


def noisy_moments(fed: Federation, *, privacy: GaussianMoments, n_columns: int) -> Moments:
    """Return the moments of all rows, drawn in to public bounds, from one sum with noise.

    The number of rows is noisy, too. Variances that the noise hides are 0.
    """
    privacy.check()
    bounds = privacy.bounds(n_columns)
    with noisy_sums(privacy, fed, {local_noisy_sums: (1.0, 1)}, "all sums, and so means and deviations") as noisy:
        return moments_within(noisy, fed, bounds)


def moments_within(noisy: NoisySums, fed: Federation, bounds: Bounds) -> Moments:
    """Return the moments of all rows within `bounds`, within an account that is open."""
    d = len(bounds.center)
    total = noisy.sum(fed, local_noisy_sums, center=bounds.center, width=bounds.width, box=bounds.box)
    whole(total, squares=(d,), sums=(d,), rows=())
    n = max(total["rows"] / WEIGHT, 1.0)
    mean = in_unit_ball(total["sums"][None] / n)[0]
    squares = total["squares"] / n / _factor(d, bounds.box)
    noise = noisy.deviation(fed, local_noisy_sums, SENSITIVITY) / n / _factor(d, bounds.box)
    variance = squares - mean**2
    variance = np.where(variance > _CLEAR * noise, variance, 0.0)
    return Moments(round(n), bounds.center + bounds.unit * mean, bounds.unit**2 * variance, tuple(total.sites))


def _factor(d: int, box: bool) -> float:
    """Return the weight of squares beside sums, with which both are at most 1 long."""
    return math.sqrt(d) if box else 1.0

"""Linear regression under differential privacy: least squares from one sum of products with noise.

Sites append the target to their rows and move these into the unit ball. Adding or removing a row then moves the sum by
at most the length that `noisy_covariance` has derived. All else is made of the noisy sum (Wang, "Revisiting
differentially private linear regression", 2018).

Standard errors are those of the rows and of the noise. If E is the noise on the covariance S, coefficients b move by
about ``S^-1 (E_xy - E_xx b)``.

Up per site: (d + 2) (d + 3) / 2 numbers for d features, once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Unpack

import numpy as np

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix, PositiveVector, Vector
from fedspan.pca.noisy_covariance import SENSITIVITY, WEIGHT, about_mean, noisy_products, refuse_many_columns
from fedspan.privacy.mechanisms import GaussianMoments
from fedspan.privacy.noisy_sums import BLOCK_ROWS, NoiseShare, charged_noise, in_bounds, in_unit_ball, noisy_sums
from fedspan.statistics.regression.least_squares import LinearFit
from fedspan.statistics.regression.parts.design_rows import Design, numeric_target
from fedspan.sums.plausible_totals import whole

#: A direction of the features with less variance than this number of deviations of its noise is drawn up to it.
_CLEAR = 2.0


@step("regression.noisy_products", reveals="sums", noisy=True)
def local_noisy_products(
    site: Site, center: Vector, width: PositiveVector, box: bool, **noise: Unpack[NoiseShare]
) -> dict[str, Any]:
    """Leaves the site: the sums of u u', u / 2 and 1 / 2 over its rows with targets, with its share of the noise.

    Charged to the ledger.
    """
    noisy = charged_noise(site, SENSITIVITY, noise)
    return noisy_products(noisy, _bounded(site, center, width, box), len(center))


def _bounded(site: Site, center: Vector, width: Vector, box: bool) -> Iterator[Matrix]:
    """Yield blocks of rows with targets within the unit ball, as `rows_in_bounds` does without targets."""
    if site.y is None:
        raise InputError("the site has no y: a regression needs the target of each row, as in federate(X, y)")
    for batch in site.batches_alone(BLOCK_ROWS):
        y = numeric_target(np.asarray(batch.y))
        yield in_bounds(np.column_stack([np.asarray(batch.X, dtype=np.float64), y]), center, width, box)


def noisy_least_squares(
    fed: Federation, *, privacy: GaussianMoments, n_columns: int, intercept: bool = True, ridge: float = 0.0
) -> LinearFit:
    """Return the linear regression of rows and targets within public bounds, from one sum with noise.

    `n_columns` counts the target, which is the last.
    """
    privacy.check()
    bounds = privacy.bounds(n_columns)
    refuse_many_columns(n_columns)
    with noisy_sums(privacy, fed, {local_noisy_products: (1.0, 1)}, "all sums, and so the coefficients") as noisy:
        sent = {"center": bounds.center, "width": bounds.width, "box": bounds.box}
        total = noisy.sum(fed, local_noisy_products, **sent)
        whole(total, products=(n_columns * (n_columns + 1) // 2,), sums=(n_columns,), rows=())
        n = max(total["rows"] / WEIGHT, 2.0)
        mean = in_unit_ball(total["sums"][None] / WEIGHT / n)[0]
        noise = bounds.unit * math.sqrt(noisy.deviation(fed, local_noisy_products, SENSITIVITY) / n)
        C = np.outer(bounds.unit, bounds.unit) * about_mean(total["products"] / n, mean)
    return _fit(n, bounds.center + bounds.unit * mean, C, noise, intercept, ridge)


def _fit(n: float, mean: Vector, C: Matrix, noise: Vector, intercept: bool, ridge: float) -> LinearFit:
    """Return the regression on the last of the columns with this covariance, whose entries have noise."""
    S = C if intercept else C + np.outer(mean, mean)
    unit = noise[:-1]
    values, vectors = np.linalg.eigh(S[:-1, :-1] / np.outer(unit, unit))
    floor = _CLEAR * math.sqrt(len(unit))  # about the largest eigenvalue of the noise, in these units
    A = np.outer(unit, unit) * ((vectors * np.maximum(values, floor)) @ vectors.T)
    inner = np.linalg.inv(A + ridge / n * np.eye(len(A)))
    b = inner @ S[:-1, -1]
    least = float(noise[-1] ** 2)
    scale = max(float(S[-1, -1] - 2 * b @ S[:-1, -1] + b @ A @ b), least)
    # The noise of an entry off the diagonal has 0.7 times the deviation of one on it.
    half = np.full((len(b), len(b)), 0.5)
    np.fill_diagonal(half, 1.0)
    E = half * np.outer(unit**2, unit**2)
    moved = E * np.outer(b, b)
    np.fill_diagonal(moved, 0.5 * unit**2 * noise[-1] ** 2 + E @ b**2)
    cov = scale / n * inner + inner @ moved @ inner
    m = mean[:-1]
    coef, full = b, cov
    if intercept:
        coef = np.concatenate([[mean[-1] - m @ b], b])
        across = -(cov @ m)
        full = np.block([[np.array([[scale / n + m @ cov @ m]]), across[None]], [across[:, None], cov]])
    rows = round(n)
    loglik = -n / 2 * (math.log(2 * math.pi * scale) + 1)
    design = Design(len(b), intercept, centre=m if intercept else np.zeros(len(b))).plain()
    total = n * max(float(S[-1, -1]), least)
    return LinearFit(design, coef, full, rows, n, loglik, scale, True, 1, None, total, min(n * scale, total))

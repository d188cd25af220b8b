"""How features of all sites are scaled: a linear map after which their rows have no mean and unit covariance.

Means and deviations first (`moments`), then the sum of the standardised rows' Gram matrices: d (d + 1) / 2 numbers up
per site, once. Only sums are needed; with an aggregator, single replies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.linalg import whitening_map
from fedspan.pca.covariance import total_scatter
from fedspan.sums.moments import moments
from fedspan.sums.plausible_totals import refuse_absurd
from fedspan.sums.row_transforms import standardize

SCALINGS = ("whiten", "standardize", "none")
_FLOOR = 0.05  # of the mean: an aggregated covariance is a guess, and no direction may be blown up by it


@dataclass(frozen=True)
class FeatureScaling:
    """Rows x become ``(x - mean) matrix``; `mean` is (d,), `matrix` (d, r) or, where it is diagonal, (d,)."""

    mean: NDArray[np.float64]
    matrix: NDArray[np.float64]


def feature_scaling(
    fed: Federation,
    *,
    scaling: str = "whiten",
    center: bool = True,
    names: tuple[str, ...] | None = None,
    aggregator: Aggregator | None = None,
) -> FeatureScaling:
    """Return the map; `scaling` "standardize" leaves correlations as they are, "none" also the deviations.

    Directions without variance are left out of "whiten". With an aggregator none is, and none is stretched by much.
    """
    if scaling not in SCALINGS:
        raise InputError(f"scaling={scaling!r} must be one of {', '.join(SCALINGS)}")
    found = moments(fed, names, aggregator)
    refuse_absurd(found.n)
    d = len(found.mean)
    mean = found.mean if center else np.zeros(d)
    if scaling == "none":
        return FeatureScaling(mean, np.ones(d))
    second = found.variance + (0.0 if center else found.mean**2)
    rounding = (
        found.n * np.finfo(np.float64).eps * (found.variance + found.n * np.finfo(np.float64).eps * found.mean**2)
    )
    scale = np.where(second <= rounding, 1.0, np.sqrt(second))
    if scaling == "standardize":
        return FeatureScaling(mean, 1.0 / scale)
    prepared = fed.apply(standardize, mean=mean, scale=scale, double=True)
    S, n, _ = total_scatter(prepared, aggregator=aggregator)
    matrix = whitening_map(S / n, floor=0.0 if aggregator is None else _FLOOR)
    return FeatureScaling(mean, matrix / scale[:, None] if matrix.size else 1.0 / scale)

"""A linear map after which the rows of all sites have no mean and the unit matrix as covariance.

Means and deviations first (`moments`), then the sum of the standardised rows' Gram matrices: d (d + 1) / 2 numbers up
per site, once. Only sums are needed; with an aggregator, single replies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from fedspan.aggregation import Aggregator
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.protocols.covariance_pca import total_scatter
from fedspan.protocols.lenses import standardize
from fedspan.protocols.moments import moments

SCALINGS = ("whiten", "standardize", "none")
_FLAT = 1e-9  # relative: directions of less variance are taken for combinations of the others
_FLOOR = 0.05  # of the mean: an aggregated covariance is a guess, and no direction may be blown up by it


@dataclass(frozen=True)
class Whitening:
    """Rows x become ``(x - mean) matrix``; `mean` is (d,), `matrix` (d, r) or, where it is diagonal, (d,)."""

    mean: NDArray[np.float64]
    matrix: NDArray[np.float64]


def whitening(
    fed: Federation,
    *,
    scaling: str = "whiten",
    center: bool = True,
    names: tuple[str, ...] | None = None,
    aggregator: Aggregator | None = None,
) -> Whitening:
    """Return the map; `scaling` "standardize" leaves correlations as they are, "none" also the deviations.

    Directions without variance are left out of "whiten". With an aggregator none is, and none is stretched by much.
    """
    if scaling not in SCALINGS:
        raise InputError(f"scaling={scaling!r} must be one of {', '.join(SCALINGS)}")
    found = moments(fed, names, aggregator)
    d = len(found.mean)
    mean = found.mean if center else np.zeros(d)
    if scaling == "none":
        return Whitening(mean, np.ones(d))
    second = found.variance + (0.0 if center else found.mean**2)
    rounding = (
        found.n * np.finfo(np.float64).eps * (found.variance + found.n * np.finfo(np.float64).eps * found.mean**2)
    )
    scale = np.where(second <= rounding, 1.0, np.sqrt(second))
    if scaling == "standardize":
        return Whitening(mean, 1.0 / scale)
    prepared = fed.apply(standardize, mean=mean, scale=scale, double=True)
    S, n, _ = total_scatter(prepared, aggregator=aggregator)
    values, V = eigh(S / n)
    if aggregator is not None:
        values = np.maximum(values, _FLOOR * max(float(values.mean()), np.finfo(np.float64).tiny))
    seen = values > _FLAT * max(float(values[-1]), np.finfo(np.float64).tiny)
    if not seen.any():
        return Whitening(mean, 1.0 / scale)
    return Whitening(mean, (V[:, seen] / np.sqrt(values[seen])) / scale[:, None])

"""Every site for itself: scaler, principal subspace and threshold from the site's own rows alone. The baseline.

Nothing is combined. What leaves a site is its whole model: k d + 2 d + 2 numbers, in one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.anomaly.scores import subspace_score
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step, transform
from fedspan.linalg import with_fixed_signs
from fedspan.sums.moments import Moments, deviations, some_rows
from fedspan.sums.row_blocks import blocks

Matrix = NDArray[np.float64]

#: Singular values below this part of the largest are rounding, that of single precision included.
_ROUNDING = 1e-7
_ROWS = 8192


@dataclass(frozen=True)
class LocalDetectors:
    """The models of the sites that sent one, in name order.

    Attributes
    ----------
    sites : tuple of str
    mean, scale : array (L, d)
    components : array (L, k, d)
        Orthonormal rows; a site that has fewer than k has zeros instead.
    threshold : array (L,)
        The quantile of the site's own scores.
    rank : array (L,)
        How many components each has.
    """

    sites: tuple[str, ...]
    mean: Matrix
    scale: Matrix
    components: Matrix
    threshold: Matrix
    rank: NDArray[np.int64]


@step("anomaly.detector", reveals="sums")
def local_detector(site: Site, rank: int, level: float, scale: bool) -> dict[str, Any]:
    """Leaves the site: mean and deviation of its columns, its principal axes, and the quantile of its scores."""
    n = some_rows(site)
    X = np.concatenate(list(blocks(site)))
    if not np.isfinite(X).all():
        raise InputError("X contains NaN or infinity")
    mean = X.mean(axis=0)
    Z = X - mean
    width = deviations(Moments(n, mean, np.mean(Z**2, axis=0))) if scale else np.ones(len(mean))
    Z /= width
    # The triangle of QR has the axes of Z, whatever the number of rows.
    _, spread, axes = np.linalg.svd(np.linalg.qr(Z, mode="r"), full_matrices=False)
    own_rank = int(np.count_nonzero(spread > _ROUNDING * spread[0])) if spread[0] > 0 else 0
    k = min(rank, max(own_rank - 1, 0))
    components = np.zeros((rank, len(mean)))
    components[:k] = with_fixed_signs(axes[:k].T).T
    scores = subspace_score(X, mean, width, components, None, 1.0)
    threshold = float(np.quantile(scores, level, method="inverted_cdf"))
    return {"mean": mean, "scale": width, "components": components, "threshold": threshold, "rank": k}


def local_detectors(
    fed: Federation, *, rank: int, level: float, scale: bool = True, n_columns: int | None = None
) -> LocalDetectors:
    """Return the detectors that the sites fit on their own, each with up to `rank` components.

    A site that sends what is no detector has failed; with `n_columns` also one whose detector has not so many columns.

    A site whose rows have a rank r of at most `rank` (it has few of them, or they are alike) keeps r - 1 components, so
    that something is left outside of them; without any, its score is the squared distance from its mean.
    """
    replies = fed.ask(local_detector, rank=rank, level=level, scale=scale)
    replies = fed.accept(replies, lambda reply: _detector(reply, rank, n_columns))
    return LocalDetectors(
        tuple(replies), *(replies.stack(key) for key in ("mean", "scale", "components", "threshold", "rank"))
    )


@transform("anomaly.local_verdicts")
def local_verdicts(X: NDArray[Any], mean: Matrix, scale: Matrix, components: Matrix, threshold: Matrix) -> Matrix:
    """Return the lower median (n, 1), over the models, of a row's residual as a multiple of the model's threshold.

    It is above 1 only if more than half of the models say so: the mean of the middle two, of an even number, would be
    on the side of whichever of them is louder.
    """
    middle = (len(threshold) - 1) // 2
    found = np.empty((len(X), 1))
    for start in range(0, len(X), _ROWS):
        part = X[start : start + _ROWS]
        ratios = np.empty((len(threshold), len(part)))
        for i, limit in enumerate(threshold):
            ratios[i] = subspace_score(part, mean[i], scale[i], components[i], None, 1.0)[:, 0] / limit
        found[start : start + _ROWS, 0] = np.partition(ratios, middle, axis=0)[middle]
    return found


def _detector(reply: Mapping[str, Any], rank: int, n_columns: int | None) -> dict[str, Any]:
    """Return a reply that is a detector of up to `rank` components; refuse others."""
    found = {key: np.asarray(reply.get(key)) for key in ("mean", "scale", "components", "threshold", "rank")}
    d = found["mean"].size if n_columns is None else n_columns
    shapes = {"mean": (d,), "scale": (d,), "components": (rank, d), "threshold": (), "rank": ()}
    for key, value in found.items():
        if value.shape != shapes[key] or value.dtype.kind not in ("iu" if key == "rank" else "iuf"):
            raise InputError(
                f"the {key} of a detector must be numbers of shape {shapes[key]}, not {value.dtype}{value.shape}"
            )
        if not np.isfinite(value).all():
            raise InputError(f"the {key} of a detector must be finite")
    if not (found["scale"] > 0).all():
        raise InputError("the scale of a detector must be above 0 in every column")
    if not found["threshold"] >= 0:
        raise InputError(f"the threshold of a detector must not be negative: {found['threshold']}")
    k, U = int(found["rank"]), found["components"]
    if not 0 <= k <= rank:
        raise InputError(f"the rank of a detector must be from 0 to {rank}, not {k}")
    with np.errstate(over="ignore", invalid="ignore"):
        orthonormal = np.allclose(U @ U.T, np.diag(np.arange(rank) < k), rtol=0, atol=_ROUNDING)
    if not orthonormal:
        raise InputError(f"the components of a detector of rank {k} must be {k} orthonormal rows, then zeros")
    return found

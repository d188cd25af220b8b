"""Rows as their coordinates along the leading principal axes: fewer numbers in each round of FedDL.

The axes are exact (`fedspan.pca.covariance`, or subspace iteration where that sends less), so that only sums leave the
sites. Sites receive them once, in single precision, and keep them for the run. Rounded axes are orthonormal to 1e-7,
and the coordinator and all sites use the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.landmarks.parts.kernel_pull import local_view
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.solvers import cheaper_solver
from fedspan.pca.subspace_iteration import subspace_iteration
from fedspan.sums.moments import Moments
from fedspan.sums.row_transforms import standardize

Array = NDArray[Any]
#: A number of axes, a share of the variance, "auto", or None for the columns themselves.
Reduce = int | float | str | None

#: ``reduce="auto"``: columns above which rows are reduced, the share of the variance that the axes hold, and the fewest
#: and the most axes.
MANY_COLUMNS = 100
SHARE = 0.9
FEWEST_AXES, MOST_AXES = 30, 100
#: Axes with a smaller share of the first one's variance are rounding.
_THIN = 1e-12
_OVERSAMPLING = 8
_TOLERANCE = 1e-4
#: Requests to keep the axes, while sites fail.
_TRIES = 3


@dataclass(frozen=True)
class PrincipalView:
    """Rows as ``(x - mean) @ axes.T``.

    Attributes
    ----------
    mean : array (d,)
    axes : array (k, d)
        In single precision, orthonormal to its rounding.
    variance : array (k,)
        Of the rows along each axis.
    share : float
        The part of the rows' variance that the axes hold.
    """

    mean: Array
    axes: Array
    variance: Array
    share: float

    @property
    def spread(self) -> float:
        """The root of the summed variances along the axes."""
        return float(np.sqrt(self.variance.sum()))

    def lifted(self, Y: Array) -> NDArray[np.float64]:
        """Return the rows (n, d) that have these coordinates (n, k), and no part outside the axes."""
        return np.asarray(self.mean + Y @ self.axes.astype(np.float64))

    def sent_to(self, fed: Federation, precision: str) -> None:
        """Let all sites keep the view, in units of the spread; a site that never answers is in no round."""
        view = {"mean": self.mean, "axes": self.axes, "scale": self.spread, "precision": precision}
        for _ in range(_TRIES):
            if not fed.sum(local_view, **view).failed:
                break


def check_reduce(reduce: Any) -> None:
    """Refuse a value of `reduce` that cannot work."""
    if reduce is None or (isinstance(reduce, str) and reduce == "auto"):
        return
    if isinstance(reduce, str):
        raise InputError(f"reduce={reduce!r} must be 'auto', None, a number of axes, or a share of the variance")
    if isinstance(reduce, float | np.floating):
        real_number("reduce", reduce, above=0, below=1, why=" as a share of the variance, or a whole number of axes")
    else:
        whole_number("reduce", reduce, 1)


def may_reduce(reduce: Reduce, columns: int) -> bool:
    """Return whether rows of this number of columns are reduced."""
    if reduce is None or columns < 2:
        return False
    return columns > MANY_COLUMNS if reduce == "auto" else not isinstance(reduce, int) or reduce < columns


def principal_view(federation: Federation, found: Moments, reduce: Reduce) -> PrincipalView | None:
    """Return the leading axes of all rows, whose moments are `found`; ``None`` where they are not reduced.

    Up per site: d (d + 1) / 2 numbers once, or fewer by subspace iteration.
    """
    d = len(found.mean)
    if not may_reduce(reduce, d):
        return None
    most = min(reduce if isinstance(reduce, int) else d if isinstance(reduce, float) else MOST_AXES, d, found.n)
    about = federation.apply(standardize, mean=found.mean, scale=None, double=True)
    if (
        isinstance(reduce, float)
        or cheaper_solver(d, most + _OVERSAMPLING, federation.policy.max_bytes)[0] == "covariance"
    ):
        axes, _ = covariance_pca(about, rank=most)
    else:
        axes, _ = subspace_iteration(about, rank=most, n_columns=d, tol=_TOLERANCE)
    total = max(axes.total, float(axes.scatter.sum()), np.finfo(float).tiny)
    held = np.cumsum(axes.scatter) / total
    kept = max(1, int(np.sum(axes.scatter > _THIN * axes.scatter[0])))
    if isinstance(reduce, float):
        kept = min(kept, int(np.searchsorted(held, reduce)) + 1)
    elif reduce == "auto":
        kept = min(kept, max(int(np.searchsorted(held, SHARE)) + 1, FEWEST_AXES))
    view = PrincipalView(
        found.mean,
        np.ascontiguousarray(axes.components[:kept], dtype=np.float32),
        axes.scatter[:kept] / max(axes.n, 1),
        float(held[kept - 1]),
    )
    federation.log(axes=kept, explained=view.share)
    return view

"""Rows as their coordinates along the leading principal axes: fewer numbers in each round of FedDL.

The axes are exact (`fedspan.pca.covariance`), or those of a few rounds of subspace iteration where that sends less.
Only sums leave the sites. Sites receive the axes once, in single precision, and keep them for the run. Rounded axes are
orthonormal to 1e-7, and the coordinator and all sites use the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.checks import real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.landmarks.parts.kernel_pull import local_view
from fedspan.linalg import top_eigenpairs
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.parts.principal_axes import PrincipalAxes
from fedspan.pca.solvers import cheaper_solver
from fedspan.pca.subspace_iteration import subspace_iteration
from fedspan.sums.moments import Moments
from fedspan.sums.row_transforms import standardize

#: A number of axes, a share of the variance, "auto", or None for the columns themselves.
Reduce = int | float | str | None

#: ``reduce="auto"``: columns above which rows are reduced, the share of the variance that the axes hold, and the fewest
#: and the most axes. Up to some number of axes they hold more: where few are enough for 90 % of the variance, groups of
#: rows may be as thin as the rest (images of turning objects).
MANY_COLUMNS = 100
SHARE, FINE_SHARE = 0.9, 0.95
FEWEST_AXES, FINE_AXES, MOST_AXES = 30, 80, 100
#: Axes with a smaller share of the first one's variance are rounding.
_THIN = 1e-12
#: Directions of a subspace iteration beside the axes, and its most rounds: they hold nearly the variance of exact axes.
_OVERSAMPLING = 8
_TOLERANCE, _ROUNDS = 1e-4, 8
#: The rounds that a scatter matrix may cost on a graphics card, which makes it quickly; the iteration runs beside it.
_ROUNDS_BESIDE_CARD = 20
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


def send_view(federation: Federation, **view: Any) -> None:
    """Let all sites keep the view of a run (`local_view`); a site that never answers is in no round."""
    for _ in range(_TRIES):
        if not federation.sum(local_view, **view).failed:
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


def needs_scatter(reduce: Reduce, columns: int, max_bytes: int, *, on_card: bool = False) -> bool:
    """Return whether the axes follow from the scatter matrix; if not, subspace iteration sends less."""
    rounds = _ROUNDS_BESIDE_CARD if on_card else _ROUNDS
    solver, _ = cheaper_solver(columns, _directions(reduce, columns), max_bytes, rounds)
    return isinstance(reduce, float) or solver == "covariance"


def axes_bytes(reduce: Reduce, columns: int, max_bytes: int, *, on_card: bool = False) -> int:
    """Return the bytes of a site, at most, by which the axes are learned, up and down together."""
    if needs_scatter(reduce, columns, max_bytes, on_card=on_card):
        return 8 * columns + 4 * columns * (columns + 1)
    return 8 * _ROUNDS * (columns + 2 * columns * _directions(reduce, columns))


def fewest_axes(reduce: Reduce, columns: int) -> int | None:
    """Return how many axes there are at least, of rows that allow it; ``None`` where these are not reduced."""
    if not may_reduce(reduce, columns):
        return None
    return reduce if isinstance(reduce, int) else 1 if isinstance(reduce, float) else FEWEST_AXES


def _directions(reduce: Reduce, columns: int) -> int:
    """Return the number of directions of a subspace iteration."""
    return min(min(reduce if isinstance(reduce, int) else MOST_AXES, columns) + _OVERSAMPLING, columns)


def principal_view(
    federation: Federation, found: Moments, reduce: Reduce, scatter: Array | None = None
) -> PrincipalView | None:
    """Return the leading axes of all rows, whose moments are `found`; ``None`` where they are not reduced.

    Up per site: d (d + 1) / 2 numbers once, or fewer by subspace iteration; nothing where the `scatter` matrix (d, d)
    is known.
    """
    d = len(found.mean)
    if not may_reduce(reduce, d):
        return None
    most = min(reduce if isinstance(reduce, int) else d if isinstance(reduce, float) else MOST_AXES, d, found.n)
    about = federation.apply(standardize, mean=found.mean, scale=None, double=True)
    if scatter is not None:
        values, vectors = top_eigenpairs(scatter, most)
        axes = PrincipalAxes(vectors.T, np.maximum(values, 0.0), float(np.trace(scatter)), found.n)
    elif needs_scatter(reduce, d, federation.policy.max_bytes):
        axes, _ = covariance_pca(about, rank=most)
    else:
        axes, _ = subspace_iteration(about, rank=most, n_columns=d, tol=_TOLERANCE, max_rounds=_ROUNDS)
    total = max(axes.total, float(axes.scatter.sum()), np.finfo(float).tiny)
    held = np.cumsum(axes.scatter) / total
    kept = max(1, int(np.sum(axes.scatter > _THIN * axes.scatter[0])))
    if isinstance(reduce, float):
        kept = min(kept, int(np.searchsorted(held, reduce)) + 1)
    elif reduce == "auto":
        enough, fine = (int(found) + 1 for found in np.searchsorted(held, (SHARE, FINE_SHARE)))
        kept = min(kept, max(enough, min(fine, FINE_AXES), FEWEST_AXES))
    view = PrincipalView(
        found.mean,
        np.ascontiguousarray(axes.components[:kept], dtype=np.float32),
        axes.scatter[:kept] / max(axes.n, 1),
        float(held[kept - 1]),
    )
    federation.log(axes=kept, explained=view.share)
    return view

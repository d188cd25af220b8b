"""The share of true neighbours that distances to landmarks find, counted at the sites, which alone know the rows.

A site compares rows with its own rows only: neighbours at other sites are not in the count.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fedspan.errors import FedspanError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix, OneOf, Positive, Vector
from fedspan.landmarks.feddl import Landmarks
from fedspan.landmarks.landmark_distances import distances_to
from fedspan.linalg.kernels.landmark_form import METHODS, landmark_form
from fedspan.linalg.kernels.neighbors import nearest

#: Neighbours of a row, and rows of each site, that are compared; and among how many rows of it they are searched.
NEIGHBORS = 10
SOME_ROWS = 50
MOST_ROWS = 20_000


@step("landmarks.neighbor_hits", reveals="sums", counts=["hits", "of"])
def local_neighbor_hits(
    site: Site,
    landmarks: Matrix,
    centre: Vector,
    scale: Positive,
    method: Annotated[str, OneOf(METHODS)],
    residuals: bool,
    precision: Annotated[str, OneOf(("single", "double"))],
) -> dict[str, Any]:
    """Leaves the site: the number of nearest rows of some of its rows, and how many of them landmarks find."""
    X = np.asarray(site.X[_spread_out(len(site), MOST_ROWS)], dtype=np.float64)
    k = min(NEIGHBORS, len(X) - 1)
    if k < 1:
        return {"hits": 0, "of": 0}
    some = _spread_out(len(X), SOME_ROWS)
    kind = np.float32 if precision == "single" else np.float64
    posted = (distances_to(X, landmarks, centre, scale) / scale).astype(kind)
    rows = landmark_form((landmarks - centre) / scale, method, residuals).of(posted, kind)
    found = nearest(rows, k + 1, rows.rows(some))[0]
    itself = found == some[:, None]
    itself[~itself.any(axis=1), -1] = True
    reduced = (X - centre) / scale
    apart = cdist(reduced[some], reduced)  # by differences, which keep the digits of near rows
    apart[np.arange(len(some)), some] = np.inf
    reach = np.partition(apart, k - 1, axis=1)[:, k - 1 : k]
    hits = (np.take_along_axis(apart, found, axis=1) <= reach) & ~itself  # of rows at one distance any will do
    return {"hits": int(np.count_nonzero(hits)), "of": k * len(some)}


def neighbor_hits(
    fed: Federation, *, landmarks: Landmarks, method: str, residuals: bool, precision: str
) -> tuple[float, int]:
    """Return the share of true neighbours within the sites that distances to landmarks find, and the number compared.

    NaN and 0 where too few sites report it, or the reports cannot be true: a map does not fail for it.
    """
    known = {"landmarks": landmarks.points, "centre": landmarks.centre, "scale": landmarks.scale}
    try:
        total = fed.sum(local_neighbor_hits, **known, method=method, residuals=residuals, precision=precision)
    except FedspanError:
        return float("nan"), 0
    hits, of = total.get("hits"), total.get("of")
    most = len(fed.sites) * SOME_ROWS * NEIGHBORS
    if not (isinstance(hits, int) and isinstance(of, int) and 0 <= hits <= of and 0 < of <= most):
        return float("nan"), 0
    return hits / of, of


def _spread_out(n: int, most: int) -> NDArray[np.intp]:
    """Return up to `most` of n rows, evenly spaced."""
    return np.unique(np.linspace(0, max(0, n - 1), min(n, most)).astype(np.intp))

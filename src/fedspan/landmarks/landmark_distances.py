"""Distances to landmarks, which sites post once the landmarks are known.

**Not private against the coordinator**. From the landmarks and a row's distances to them it can compute the row's
projection on their affine span. With more landmarks than columns that is the row itself. The journal of such a run
holds what amounts to raw data.

Sites post distances in units of the rows' spread, which the landmarks come with: single precision then holds them for
any unit of the data. The coordinator cannot check whether distances are true; it refuses those that no rows can have.
Sites, which alone know the rows, count how many true neighbours the distances find, each among its own rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fedspan.arrays import Array
from fedspan.errors import FedspanError, InputError
from fedspan.federation import Failure, Federation, Site, step, transform
from fedspan.federation.site.parameters import Count, Index, Matrix, OneOf, Positive, Vector
from fedspan.landmarks.feddl import Landmarks
from fedspan.landmarks.parts.card_rows import CardDistances, double_device, local_card_distances, seen_squares
from fedspan.landmarks.parts.kernel_pull import Device, Precision
from fedspan.linalg.array_backend import to_device, to_numpy
from fedspan.linalg.kernels.landmark_form import FARTHEST, METHODS, landmark_form
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.sums.posted_values import requested
from fedspan.sums.row_transforms import same_columns
from fedspan.wire import Message

_BLOCK_ROWS = 2048
#: Numbers whose squares can be added up, in units of the spread; and the distance from the mean at which new rows that
#: are further out are placed.
_SQUARE_HELD = 1e100
_NEAR_ENOUGH = 0.1 * FARTHEST
#: Neighbours of a row, and rows of each site, that are compared; and among how many rows of it they are searched.
NEIGHBORS = 10
SOME_ROWS = 50
MOST_ROWS = 20_000


@transform("landmarks.distances_to")
def distances_to(X: Array, landmarks: Matrix, centre: Vector, scale: Positive, axes: Matrix | None = None) -> Array:
    """Return the distances of rows to `landmarks` (n, n_y), in double precision.

    They are computed from ``(x - centre) / scale``, so that a common offset costs no digits. With `axes` (k, m)
    `landmarks` (n_y, k) are coordinates along these: distances have a row's part outside the axes, too.
    """
    same_columns(X, len(centre))
    Y = (np.asarray(landmarks, dtype=np.float64) - (centre if axes is None else 0.0)) / scale
    along = None if axes is None else axes.T.astype(np.float64)
    found = np.empty((len(X), len(Y)))
    for start in range(0, len(X), _BLOCK_ROWS):
        rows = (np.asarray(X[start : start + _BLOCK_ROWS], dtype=np.float64) - centre) / scale
        # Rows so far out that their squares overflow are made smaller; Y is negligible beside them.
        large = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0) / _SQUARE_HELD, 1.0)
        found[start : start + len(rows)] = large * np.sqrt(seen_squares(rows / large, Y, along))
    found *= scale
    return found


def drawn_in(X: Array, centre: Array, scale: float) -> Array:
    """Return new rows in double precision, with outliers moved in to where their squares are finite.

    From there all rows of a map are practically in one place.

    Examples
    --------
    >>> drawn_in(np.array([[3.0, 4.0], [3e200, 4e200]]), np.zeros(2), 1.0)
    array([[3.e+00, 4.e+00],
           [6.e+04, 8.e+04]])
    """
    D = np.asarray(X, dtype=np.float64) - centre
    largest = np.maximum(np.abs(D).max(axis=1, keepdims=True, initial=0.0), np.finfo(np.float64).tiny)
    norms = np.linalg.norm(D / largest, axis=1, keepdims=True)
    kept = np.minimum(1.0, _NEAR_ENOUGH * scale / largest / np.maximum(norms, 1.0))
    return np.asarray(np.where(kept < 1, centre + kept * D, X))


@step("landmarks.distances", reveals="rows", ragged=["distances"], counts=["n"])
def local_distances(site: Site, start: Index, rows: Count, precision: Precision, unit: Positive) -> dict[str, Any]:
    """Leaves the site: its number of rows, the distances of some of them to all landmarks (rows, n_y), their unit."""
    D = site.X[start : start + rows] / unit
    kind = np.float32 if precision == "single" else np.float64
    return {"distances": D.astype(kind, copy=False), "n": len(site), "unit": unit}


def landmark_distances(
    fed: Federation, *, landmarks: Landmarks, precision: str = "single", device: str | None = None
) -> dict[str, Array]:
    """Return each site's distances (n_p, n_y) to the landmarks in units of ``landmarks.scale``, by site name.

    Sites that do not answer are requested up to three times. Those that never do are left out with a warning, as their
    rows cannot be placed. So are sites that contradict themselves, and those whose distances no row can have.

    Parameters
    ----------
    landmarks : Landmarks
    precision : {"single", "double"}, default="single"
        Of the message: 4 or 8 bytes a number, n_p n_y numbers up per site, in parts that fit a message.
    device : str, optional
        Where sites that have it compute.
    """
    width = 4 if precision == "single" else 8
    rows = max(1, fed.policy.max_bytes // (2 * width * len(landmarks.points)))
    seen: Federation = fed if device is not None else fed.apply(distances_to, **landmarks.seen)
    measure = local_distances if device is None else local_card_distances
    known = {} if device is None else {**landmarks.seen, "device": device}
    found: dict[str, list[Array]] = {name: [] for name in fed.sites}
    counts: dict[str, int] = {}
    lost: dict[str, Failure | str] = {}
    todo, start = fed.sites, 0
    while todo:
        payload = {"start": start, "rows": rows, "precision": precision, "unit": landmarks.scale}
        replies, failed = requested(seen, todo, measure, _check(payload, landmarks), **payload, **known)
        lost |= failed
        for name, reply in replies.items():
            if counts.setdefault(name, reply["n"]) != reply["n"]:
                lost[name] = f"it reports {reply['n']} rows, and reported {counts[name]} before"
            found[name].append(reply["distances"])
        start += rows
        todo = tuple(name for name in replies if name not in lost and counts[name] > start)
    if lost:
        reasons = ", ".join(f"{name} ({lost[name]})" for name in sorted(lost))
        warnings.warn(f"not on the map, because they did not post their distances: {reasons}", stacklevel=2)
    _compare_with_sums({name: n for name, n in counts.items() if name not in lost}, set(lost), landmarks)
    return {name: np.concatenate(parts) for name, parts in found.items() if name not in lost and parts}


def _compare_with_sums(counts: dict[str, int], lost: set[str], landmarks: Landmarks) -> None:
    """Warn where sites that were in FedDL's sums now have more rows than in these.

    One of them sent a false number, now or then; it may also be one that was refused since.
    """
    posted = sum(n for name, n in counts.items() if name in landmarks.sites)
    if landmarks.n and posted > landmarks.n:
        warnings.warn(
            f"the sites posted {posted} rows, and reported {landmarks.n} when the landmarks were learned: either some "
            f"rows on the map are made up, or the landmarks are of false numbers; by "
            f"{' or '.join(sorted((set(counts) | lost) & set(landmarks.sites)))}",
            stacklevel=3,
        )


def _check(payload: Mapping[str, Any], landmarks: Landmarks) -> Callable[[Message], Message]:
    """Return the check of a reply: distances of all requested rows that rows can have."""
    farthest = FARTHEST + float(np.abs(landmarks.reduced).max())

    def check(reply: Message) -> Message:
        D, n = reply.get("distances"), reply.get("n")
        if not isinstance(n, int):
            raise InputError("a site must report its number of rows")
        expected = (max(0, min(payload["rows"], n - payload["start"])), len(landmarks.points))
        if 0 < landmarks.n < n:
            raise InputError(f"a site reports {n} rows, and all had {landmarks.n} when the landmarks were learned")
        if not isinstance(D, np.ndarray) or D.dtype.kind != "f" or D.shape != expected or (D < 0).any():
            raise InputError(f"distances must be {expected} numbers of at least 0, one row for each of the site's")
        if D.size and D.max() > farthest:
            raise InputError(f"distances of {D.max():.2g} times the rows' spread, where at most {farthest:.2g} can be")
        if reply.get("unit") != payload["unit"]:
            raise InputError("distances must be in the requested unit")
        return reply

    return check


@step("landmarks.neighbor_hits", reveals="sums", counts=["hits", "of"])
def local_neighbor_hits(
    site: Site,
    landmarks: Matrix,
    centre: Vector,
    scale: Positive,
    method: Annotated[str, OneOf(METHODS)],
    residuals: bool,
    precision: Precision,
    axes: Matrix | None = None,
    device: Device = "",
) -> dict[str, Any]:
    """Leaves the site: the number of nearest rows of some of its rows, and how many of them landmarks find."""
    X = np.asarray(site.X[spread_out(len(site), MOST_ROWS)], dtype=np.float64)
    k = min(NEIGHBORS, len(X) - 1)
    if k < 1:
        return {"hits": 0, "of": 0}
    some = spread_out(len(X), SOME_ROWS)
    kind = np.float32 if precision == "single" else np.float64
    here = double_device(device or None)
    there = to_device(X, here)
    posted = to_numpy(CardDistances(landmarks, centre, scale, axes, here)(there)).astype(kind)
    about = np.asarray(landmarks, dtype=np.float64) - (centre if axes is None else 0.0)
    rows = landmark_form(about / scale, method, residuals).of(posted, kind)
    found = nearest(rows, k + 1, rows.rows(some))[0]
    itself = found == some[:, None]
    itself[~itself.any(axis=1), -1] = True
    apart = _apart(there, some, scale)
    apart[np.arange(len(some)), some] = np.inf
    reach = np.partition(apart, k - 1, axis=1)[:, k - 1 : k]
    hits = (np.take_along_axis(apart, found, axis=1) <= reach) & ~itself  # of rows at one distance any will do
    return {"hits": int(np.count_nonzero(hits)), "of": k * len(some)}


def _apart(X: Any, some: Array, scale: float) -> Array:
    """Return the distances of some rows to all, by differences, which keep the digits of near rows."""
    if isinstance(X, np.ndarray):
        reduced = (X - X.mean(axis=0)) / scale
        return np.asarray(cdist(reduced[some], reduced))
    import torch

    reduced = (X - X.mean(dim=0)) / scale
    return to_numpy(torch.cdist(reduced[some], reduced, compute_mode="donot_use_mm_for_euclid_dist"))


def neighbor_hits(
    fed: Federation, *, landmarks: Landmarks, method: str, residuals: bool, precision: str, device: str | None = None
) -> tuple[float, int]:
    """Return the share of true neighbours within the sites that distances to landmarks find, and the number compared.

    NaN and 0 where too few sites report it, or the reports cannot be true: a map does not fail for it.
    """
    try:
        how = {"method": method, "residuals": residuals, "precision": precision, "device": device or ""}
        total = fed.sum(local_neighbor_hits, **landmarks.seen, **how)
    except FedspanError:
        return float("nan"), 0
    hits, of = total.get("hits"), total.get("of")
    most = len(fed.sites) * SOME_ROWS * NEIGHBORS
    if not (isinstance(hits, int) and isinstance(of, int) and 0 <= hits <= of and 0 < of <= most):
        return float("nan"), 0
    return hits / of, of


def spread_out(n: int, most: int) -> NDArray[np.intp]:
    """Return up to `most` of n rows, evenly spaced."""
    return np.unique(np.linspace(0, max(0, n - 1), min(n, most)).astype(np.intp))

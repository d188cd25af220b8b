"""Distances to landmarks, which sites post once the landmarks are known.

**Not private against the coordinator**: who knows the landmarks and a row's distances to them can compute the row's
projection on their affine span, and the row itself where there are more landmarks than columns. The journal of such a
run holds what amounts to raw data.

They are posted in units of the rows' spread, which the landmarks come with: single precision then holds them whatever
the unit of the data. Nobody can tell whether a site's distances are true; what no rows can have is refused.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError, QuorumError
from fedspan.federation import Failure, FailureKind, Federation, Site, step, transform
from fedspan.landmarks.feddl import Landmarks
from fedspan.linalg.kernels.gaussian_kernel import squared_distances
from fedspan.linalg.kernels.landmark_form import FARTHEST
from fedspan.sums.row_transforms import same_columns
from fedspan.wire import Message

Array = NDArray[Any]

_BLOCK_ROWS = 2048
#: How often a site that did not answer is asked: without its distances its rows are on no map.
_TRIES = 3
#: Numbers whose squares can be added up, in units of the spread; and how far from the mean new rows are placed by.
_SQUARE_HELD = 1e100
_NEAR_ENOUGH = 0.1 * FARTHEST


@transform("landmarks.distances_to")
def distances_to(X: Array, landmarks: Array, centre: Array, scale: float) -> Array:
    """Return the distances of rows to `landmarks` (n, n_y), in double precision.

    They are computed from ``(x - centre) / scale``, so that a common offset costs no digits.
    """
    same_columns(X, len(centre))
    Y = (np.asarray(landmarks, dtype=np.float64) - centre) / scale
    found = np.empty((len(X), len(Y)))
    for start in range(0, len(X), _BLOCK_ROWS):
        rows = (np.asarray(X[start : start + _BLOCK_ROWS], dtype=np.float64) - centre) / scale
        large = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0) / _SQUARE_HELD, 1.0)
        found[start : start + len(rows)] = large * np.sqrt(
            squared_distances(rows / large, Y)
        )  # where Y is as good as 0
    found *= scale
    return found


def drawn_in(X: Array, centre: Array, scale: float) -> Array:
    """Return new rows, in double precision, those that are very far out drawn in to where their squares can be held.

    From there all rows of a map are still as good as in one place.

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
def local_distances(site: Site, start: int, rows: int, precision: str, unit: float) -> dict[str, Any]:
    """Leaves the site: its number of rows, the distances of some of them to all landmarks (rows, n_y), their unit."""
    D = site.X[start : start + rows] / unit
    kind = np.float32 if precision == "single" else np.float64
    return {"distances": D.astype(kind, copy=False), "n": len(site), "unit": unit}


def landmark_distances(fed: Federation, *, landmarks: Landmarks, precision: str = "single") -> dict[str, Array]:
    """Return each site's distances (n_p, n_y) to the landmarks in units of ``landmarks.scale``, by site name.

    Sites that do not answer are asked up to three times; those that never do are left out with a warning, as their
    rows cannot be placed. So are sites that contradict themselves, and those whose distances no row can have.

    Parameters
    ----------
    landmarks : Landmarks
    precision : {"single", "double"}, default="single"
        Of the message: 4 or 8 bytes a number, n_p n_y numbers up per site, in parts that fit a message.
    """
    n_y = len(landmarks.points)
    width = 4 if precision == "single" else 8
    rows = max(1, fed.policy.max_bytes // (2 * width * n_y))
    seen = fed.apply(distances_to, landmarks=landmarks.points, centre=landmarks.centre, scale=landmarks.scale)
    found: dict[str, list[Array]] = {name: [] for name in fed.sites}
    counts: dict[str, int] = {}
    todo, start = fed.sites, 0
    lost: dict[str, str] = {}
    while todo:
        payload = {"start": start, "rows": rows, "precision": precision, "unit": landmarks.scale}
        replies, failed = _asked(seen, todo, payload, landmarks)
        lost |= failed
        for name, reply in replies.items():
            if counts.setdefault(name, reply["n"]) != reply["n"]:
                lost[name] = f"it says to have {reply['n']} rows, and said {counts[name]} before"
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

    One of them says what is not true, now or then: also one that was refused by now.
    """
    posted = sum(n for name, n in counts.items() if name in landmarks.sites)
    if landmarks.n and posted > landmarks.n:
        warnings.warn(
            f"the sites posted {posted} rows, and said that they have {landmarks.n} when the landmarks were learned: "
            f"either some rows on the map are made up, or the landmarks are of numbers that were not true; by "
            f"{' or '.join(sorted((set(counts) | lost) & set(landmarks.sites)))}",
            stacklevel=3,
        )


def _asked(
    seen: Federation, to: tuple[str, ...], payload: dict[str, Any], landmarks: Landmarks
) -> tuple[dict[str, Message], dict[str, Failure]]:
    """Return the replies by site, and why those that never answered failed."""
    found: dict[str, Message] = {}
    failed: dict[str, Failure] = {}
    n_y = len(landmarks.points)
    farthest = FARTHEST + float(np.abs((landmarks.points - landmarks.centre) / landmarks.scale).max())

    def check(reply: Message) -> Message:
        D, n = reply.get("distances"), reply.get("n")
        if not isinstance(n, int):
            raise InputError("a site must say how many rows it has")
        expected = (max(0, min(payload["rows"], n - payload["start"])), n_y)
        if 0 < landmarks.n < n:
            raise InputError(f"a site says to have {n} rows, and all had {landmarks.n} when the landmarks were learned")
        if not isinstance(D, np.ndarray) or D.dtype.kind != "f" or D.shape != expected or (D < 0).any():
            raise InputError(f"distances must be {expected} numbers of at least 0, one row for each of the site's")
        if D.size and D.max() > farthest:
            raise InputError(f"distances of {D.max():.2g} times the rows' spread, where at most {farthest:.2g} can be")
        if reply.get("unit") != payload["unit"]:
            raise InputError("distances must be in the unit that was asked for")
        return reply

    for attempt in range(_TRIES):
        missing = tuple(name for name in to if name not in found)
        if not missing:
            break
        with suppress(QuorumError) if attempt else nullcontext():  # the quorum is of all sites, not of the rest
            replies = seen.accept(seen.ask(local_distances, missing, **payload), check)
            found |= replies.ok
            failed = replies.failed
    return found, {name: failed.get(name, Failure(FailureKind.NO_REPLY)) for name in to if name not in found}

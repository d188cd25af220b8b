"""Distances to landmarks, which sites post once the landmarks are known.

**Not private against the coordinator**: who knows the landmarks and a row's distances to them can compute the row's
projection on their affine span, and the row itself where there are more landmarks than columns. The journal of such a
run holds what amounts to raw data.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation, Site, lens, step
from fedspan.linalg.gaussian_kernel import squared_distances
from fedspan.protocols.feddl import Landmarks
from fedspan.wire import Message

Array = NDArray[Any]

_BLOCK_ROWS = 2048
#: How often a site that did not answer is asked: without its distances its rows are on no map.
_TRIES = 3


@lens
def distances_to(X: Array, landmarks: Array, centre: Array, scale: float) -> Array:
    """Return the distances of rows to `landmarks` (n, n_y), in double precision.

    They are computed from ``(x - centre) / scale``, so that a common offset costs no digits.
    """
    Y = (np.asarray(landmarks, dtype=np.float64) - centre) / scale
    found = np.empty((len(X), len(Y)))
    for start in range(0, len(X), _BLOCK_ROWS):
        rows = (np.asarray(X[start : start + _BLOCK_ROWS], dtype=np.float64) - centre) / scale
        found[start : start + len(rows)] = np.sqrt(squared_distances(rows, Y))
    found *= scale
    return found


@step(ragged=["distances"])
def local_distances(site: Site, start: int, rows: int, precision: str) -> dict[str, Any]:
    """Leaves the site: its number of rows, and the distances of some of them to all landmarks (rows, n_y)."""
    X = site.X[start : start + rows]
    return {"distances": X.astype(np.float32 if precision == "single" else np.float64, copy=False), "n": len(site)}


def landmark_distances(fed: Federation, *, landmarks: Landmarks, precision: str = "single") -> dict[str, Array]:
    """Return each site's distances (n_p, n_y) to the landmarks, by site name.

    Sites that do not answer are asked up to three times; those that never do are left out with a warning, as their
    rows cannot be placed.

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
    todo, start = fed.sites, 0
    lost: dict[str, str] = {}
    while todo:
        replies, failed = _asked(seen, todo, {"start": start, "rows": rows, "precision": precision}, n_y)
        lost |= failed
        for name, reply in replies.items():
            found[name].append(reply["distances"])
        start += rows
        todo = tuple(name for name, reply in replies.items() if reply["n"] > start)
    if lost:
        warnings.warn(
            f"not on the map, because they did not post their distances: {', '.join(sorted(lost))}", stacklevel=2
        )
    return {name: np.concatenate(parts) for name, parts in found.items() if name not in lost and parts}


def _asked(
    seen: Federation, to: tuple[str, ...], payload: dict[str, Any], n_y: int
) -> tuple[dict[str, Message], dict[str, str]]:
    """Return the replies by site, and why those that never answered failed."""
    found: dict[str, Message] = {}
    failed: dict[str, str] = {}

    def check(reply: Message) -> Message:
        D, n = reply.get("distances"), reply.get("n")
        expected = isinstance(n, int) and (max(0, min(payload["rows"], n - payload["start"])), n_y)
        if not isinstance(D, np.ndarray) or D.dtype.kind != "f" or D.shape != expected or (D < 0).any():
            raise InputError(f"distances must be {expected} numbers of at least 0, one row for each of the site's")
        return reply

    for attempt in range(_TRIES):
        missing = tuple(name for name in to if name not in found)
        if not missing:
            break
        with suppress(QuorumError) if attempt else nullcontext():  # the quorum is of all sites, not of the rest
            replies = seen.accept(seen.ask(local_distances, missing, **payload), check)
            found |= replies.ok
            failed = replies.failed
    return found, {name: failed.get(name, "no reply") for name in to if name not in found}

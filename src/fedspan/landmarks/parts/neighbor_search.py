"""The neighbours of all rows, searched at the coordinator: exactly in blocks, or by NN-descent for many rows."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array
from fedspan.checks import one_of
from fedspan.errors import InputError, MissingPackageError
from fedspan.federation import Federation
from fedspan.linalg.kernels.coarse_neighbors import QUERIES, coarse_nearest
from fedspan.linalg.kernels.landmark_form import LowRankDistances
from fedspan.linalg.kernels.neighbors import block_rows, nearest, nearest_in_blocks

#: Rows above which NN-descent should be cheaper. This is extrapolated from `benchmarks/neighbors.py`, not measured at
#: that size: at 10,000 rows it takes 8 times as long as the blocks, whose time grows with n^2.
DESCENT_ABOVE = 100_000
#: NN-descent searches more neighbours than are wanted, by plain coordinates; then residuals decide among them.
_MORE = 1.5
_SAMPLE = 500
#: Rows from which on a search on a device scores all pairs coarsely; and the share of neighbours that is enough.
COARSE_ABOVE = 4096
_ENOUGH = 0.995
_BLOCK = 256


def packages(*names: str) -> list[Any]:
    """Return packages of the extra "maps", which are imported only when a map is made."""
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        raise MissingPackageError(
            f'maps need {error.name}, which is not installed: pip install ".[maps]" in a checkout'
        ) from None


def check_search(search: str, method: str, device: str | None) -> None:
    """Refuse a search that cannot work."""
    one_of("neighbors", search, ("auto", "exact", "descent"))
    if search == "descent" and device is not None:
        raise InputError(f"neighbors='descent' runs on the processor only: leave out neighbors or device={device!r}")
    if search == "descent" and method != "coordinates":
        raise InputError(f"neighbors='descent' needs a metric: use method='coordinates' instead of {method!r}")


def find_neighbors(
    federation: Federation, rows: LowRankDistances, k: int, search: str, n_jobs: int = 1, device: str | None = None
) -> tuple[NDArray[np.int32], Array]:
    """Return the k nearest neighbours of each row except itself, and their distances; the record states how.

    `search_recall` in the record is the share of neighbours *by this form* that the search found.

    Parameters
    ----------
    search : {"auto", "exact", "descent"}
        ``"auto"``: NN-descent for coordinates of more than 100,000 rows; exact on a device, which takes seconds there.
    device : str, optional
        Where the exact search runs, as torch names it. Default: numpy.
    """
    euclidean = bool(np.all(rows.signs < 0))
    if search == "auto":
        search = "descent" if euclidean and len(rows) > DESCENT_ABOVE and device is None else "exact"
    federation.log(phase="neighbours", search=search, neighbors=k, **({} if device is None else {"device": device}))
    indices = np.empty((len(rows), k), dtype=np.int32)
    distances = np.empty((len(rows), k), dtype=rows.factor.dtype)
    if search == "descent":
        candidates = _candidates(federation, rows, k, n_jobs)
        for number in federation.rounds(-(-len(rows) // _BLOCK)):
            part = slice(number * _BLOCK, (number + 1) * _BLOCK)
            indices[part], distances[part] = _best(rows, np.arange(len(rows))[part], candidates[part], k)
        some = np.sort(federation.rng.choice(len(rows), min(_SAMPLE, len(rows)), replace=False))
        federation.log(search_recall=_recall(rows, some, indices[some]), search_sample=len(some))
        return indices, distances
    if device is not None and euclidean and rows.factor.dtype == np.float32 and len(rows) >= COARSE_ABOVE:
        return _by_coarse_scores(federation, rows, indices, distances, device)
    if device is not None and device.startswith("mps") and rows.factor.dtype == np.float64:
        device = None  # which has no double precision
    blocks = nearest_in_blocks(rows, k, device=device)
    for _ in federation.rounds(-(-len(rows) // block_rows(len(rows), device))):
        part, found, far = next(blocks)
        indices[part], distances[part] = found, far
    federation.log(search_recall=1.0)
    return indices, distances


def _by_coarse_scores(
    federation: Federation, rows: LowRankDistances, indices: Array, distances: Array, device: str
) -> tuple[NDArray[np.int32], Array]:
    """Fill in neighbours by scores in half precision or, where these miss too many, in single."""
    some = np.sort(federation.rng.choice(len(rows), min(_SAMPLE, len(rows)), replace=False))
    for half in (True, False) if device.startswith("cuda") else (False,):
        blocks = coarse_nearest(rows, indices.shape[1], device, half=half)
        for _ in federation.rounds(-(-len(rows) // QUERIES)):
            part, found, far = next(blocks)
            indices[part], distances[part] = found, far
        recall = _recall(rows, some, indices[some], device)
        federation.log(search_recall=recall, search_sample=len(some), scores="half" if half else "single")
        if recall >= _ENOUGH:
            break
    return indices, distances


def _candidates(federation: Federation, rows: LowRankDistances, k: int, n_jobs: int) -> Array:
    """Return neighbours of each row by NN-descent, more than k of them."""
    (pynndescent,) = packages("pynndescent")
    wanted = min(len(rows) - 1, max(k + 10, int(_MORE * k)))
    seed = int(federation.rng.integers(2**31))
    index = pynndescent.NNDescent(
        rows.factor, metric="euclidean", n_neighbors=wanted + 1, random_state=seed, n_jobs=n_jobs
    )
    return np.asarray(index.neighbor_graph[0])


def _best(rows: LowRankDistances, own: Array, candidates: Array, k: int) -> tuple[Array, Array]:
    """Return the k nearest of the candidates of each row, residuals included."""
    theirs, mine = rows.factor[candidates], rows.factor[own]
    apart = theirs - mine[:, None]
    h = np.maximum(rows.offset[candidates] - np.vecdot(theirs, theirs), 0)
    h_own = np.maximum(rows.offset[own] - np.vecdot(mine, mine), 0)
    values = np.vecdot(apart, apart) + h + h_own[:, None]
    values[(candidates == own[:, None]) | (candidates < 0)] = np.inf
    order = np.argsort(values, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(candidates, order, axis=1), rows.as_distances(np.take_along_axis(values, order, axis=1))


def _recall(rows: LowRankDistances, some: Array, found: Array, device: str | None = None) -> float:
    """Return the share of the true neighbours of `some` rows that were found."""
    k = found.shape[1]
    true = nearest(rows, min(k + 1, len(rows)), rows.rows(some), device)[0]
    hits = 0
    for row, exact, mine in zip(some, true, found, strict=True):
        hits += len(np.intersect1d([i for i in exact if i != row][:k], mine))
    return hits / found.size

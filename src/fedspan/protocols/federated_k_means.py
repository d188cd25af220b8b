"""k-means by sums: Lloyd's algorithm on rows that stay at their sites, for several starts at the same time.

A round has two sums. First how many rows are closest to each centre; then, only for centres that have at least
`least_rows` of them over all sites, the sum of these rows. So no sum of fewer rows is ever asked for, and a centre is
the mean of at least that many rows, or a point that was drawn or given: never a row. From the same start any split of
the rows gives the centres of Lloyd's algorithm on the pooled rows.

The start needs sums, too: beginning with the mean, centres are split where the squared distances are (the weights of
k-means++, Arthur and Vassilvitskii 2007, by clusters instead of rows), four times as many from stage to stage. A new
centre is its parent moved a little: in many dimensions a point that is drawn like a row is closer to no row. Where
there are rows enough three times as many centres are made, and then clustered by their weights at the coordinator, as
in k-means|| (Bahmani et al. 2012).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fedspan.checks import real_number, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.linalg.closest import closest, squared_apart
from fedspan.linalg.clusters import k_means
from fedspan.protocols.blocks import n_columns
from fedspan.protocols.lenses import standardize
from fedspan.protocols.moments import Moments, moments
from fedspan.protocols.whole_totals import whole

Matrix = NDArray[np.float64]
Counts = NDArray[np.int64]

#: Rows as the lenses show them are kept at a site up to this size; larger ones are made anew for every call.
_KEPT_BYTES = 2**30
_BLOCK_BYTES = 2**23
#: How many times as many centres from stage to stage of the start, and how far a new one is from its parent, in units
#: of the root mean squared distance of the parent's rows.
_GROWTH = 4
_NUDGE = 0.2
#: Rounds of the start with all centres, after each of which those with too few rows are placed anew.
_SETTLING = 3
#: So many times as many centres as are wanted, where there are rows enough; these are then clustered by their weights.
_CANDIDATES = 3


@dataclass(frozen=True)
class KMeansRuns:
    """What b starts came to: centres (b, k, d), rows of each (b, k), inertia and rounds (b,); and the rows' moments."""

    centres: Matrix
    counts: Counts
    inertia: Matrix
    rounds: Counts
    moments: Moments


@step
def local_counts(site: Site, centres: Matrix) -> dict[str, Any]:
    """Leaves the site: how many of its rows are closest to each centre, and the sum of the squared distances."""
    counts, inertia = np.zeros(centres.shape[:2], dtype=np.int64), np.zeros(len(centres))
    for X, labels in _labelled(site, centres):
        inertia += squared_apart(X, centres, labels).sum(axis=0)
        for book, own in enumerate(labels.T):
            counts[book] += np.bincount(own, minlength=centres.shape[1])
    return {"counts": counts, "inertia": inertia}


@step
def local_means(site: Site, centres: Matrix, wanted: NDArray[np.bool_]) -> dict[str, Any]:
    """Leaves the site: of each `wanted` centre the number and sum of its rows there, and their squared distances."""
    b, k, d = centres.shape
    sums, counts, spread = np.zeros((b * k, d)), np.zeros(b * k, dtype=np.int64), np.zeros(b * k)
    for X, labels in _labelled(site, centres):
        cells = (labels + k * np.arange(b)).ravel()
        rows = np.repeat(np.arange(len(X)), b)
        sums += csr_array((np.ones(len(cells)), (cells, rows)), shape=(b * k, len(X))) @ X
        counts += np.bincount(cells, minlength=b * k)
        spread += np.bincount(cells, squared_apart(X, centres, labels).ravel(), minlength=b * k)
    asked = wanted.ravel()
    return {"sums": sums[asked], "counts": counts[asked], "spread": spread[asked]}


def federated_k_means(
    fed: Federation,
    *,
    n_clusters: int,
    init: Matrix | None = None,
    n_init: int = 1,
    max_iter: int = 300,
    tol: float = 1e-4,
    least_rows: int = 5,
    names: tuple[str, ...] | None = None,
) -> KMeansRuns:
    """Return the centres that `n_init` starts lead to.

    Parameters
    ----------
    n_clusters : int
        k. Up per site and round: k whole numbers, and at most k (d + 2) numbers; down k d; times the number of starts.
    init : array (k, d), optional
        The start; default: `n_init` starts from sums. A centre that has fewer than `least_rows` rows stays where it is.
    n_init : int, default=1
        Starts, all of which make their rounds in the same calls.
    max_iter : int, default=300
    tol : float, default=1e-4
        A start is done when the squares of its centres' moves add up to at most `tol` times the mean variance.
    least_rows : int, default=5
        Sums of fewer rows are not asked for.
    names : tuple of str, optional
        Of the columns, for what is said about values that are not finite.
    """
    whole_number("n_clusters", n_clusters, 1)
    whole_number("n_init", n_init, 1)
    whole_number("max_iter", max_iter, 1)
    whole_number("least_rows", least_rows, 1)
    real_number("tol", tol, least=0)
    found = moments(fed, names)
    whole_number("n_clusters", n_clusters, 1, found.n, why=f", the number of rows (n_samples={found.n})")
    if found.n < least_rows:
        raise InputError(
            f"n_samples={found.n} is fewer than least_rows={least_rows}: no centre could have as many, so there is none"
        )
    # Sites see their rows about the mean: no offset of the data costs digits.
    about = fed.apply(standardize, mean=found.mean, scale=None, double=True)
    C = _split_start(about, found, n_clusters, n_init, least_rows) if init is None else (init - found.mean)[None]
    least_move = tol * float(found.variance.mean())
    rounds, going = np.zeros(len(C), dtype=np.int64), np.ones(len(C), dtype=np.bool_)
    for _ in fed.rounds(max_iter):
        moved = _moved(about, C, least_rows)
        fed.log(inertia=float(moved.inertia.min()), small_centres=int((moved.counts < least_rows).sum()))
        shift = np.sum((moved.centres - C) ** 2, axis=(1, 2))
        C = np.where(going[:, None, None], moved.centres, C)
        rounds += going
        going &= shift > least_move
        if not going.any():
            fed.stop(f"the centres of {'all starts' if len(C) > 1 else 'the start'} move no more")
    last = whole(about.sum(local_counts, centres=C), counts=C.shape[:2], inertia=(len(C),))
    fed.log(inertia=float(last["inertia"].min()))
    return KMeansRuns(C + found.mean, last["counts"], last["inertia"], rounds, found)


@dataclass(frozen=True)
class _Moved:
    """Centres after one round; how many rows each had before, their squared distances to it after, and all before."""

    centres: Matrix
    counts: Counts
    spread: Matrix
    inertia: Matrix


def _moved(about: Federation, C: Matrix, least_rows: int) -> _Moved:
    """Move each centre that has enough rows to their mean."""
    first = whole(about.sum(local_counts, centres=C), counts=C.shape[:2], inertia=(len(C),))
    wanted = first["counts"] >= least_rows
    moved, counts, spread = C.copy(), np.where(wanted, 0, first["counts"]), np.zeros(C.shape[:2])
    if wanted.any():
        some = (int(wanted.sum()),)
        total = whole(
            about.sum(local_means, centres=C, wanted=wanted), sums=(*some, C.shape[2]), counts=some, spread=some
        )
        counts[wanted] = total["counts"]
        # A site that was in the first sum may be missing in the second.
        enough = total["counts"] >= least_rows
        means = total["sums"] / np.maximum(total["counts"], 1)[:, None]
        moved[wanted] = np.where(enough[:, None], means, C[wanted])
        # About the new centre: less by the rows' number times the square of the move.
        shift = np.vecdot(moved[wanted] - C[wanted], moved[wanted] - C[wanted])
        spread[wanted] = np.maximum(total["spread"] - total["counts"] * shift, 0.0)
    return _Moved(moved, counts, spread, first["inertia"])


def _split_start(about: Federation, found: Moments, n_clusters: int, n_init: int, least_rows: int) -> Matrix:
    """Return `n_init` starts (b, k, d), about the mean."""
    if n_clusters == 1:
        return np.zeros((n_init, 1, len(found.mean)))
    now = _Moved(
        np.zeros((n_init, 1, len(found.mean))),
        np.full((n_init, 1), found.n),
        np.full((n_init, 1), found.n * found.variance.sum()),
        np.zeros(n_init),
    )
    candidates = max(n_clusters, min(_CANDIDATES * n_clusters, found.n // (4 * least_rows)))
    sizes = [_GROWTH**stage for stage in range(1, candidates.bit_length()) if _GROWTH**stage < candidates]
    for size in [*sizes, *[candidates] * _SETTLING]:
        C = np.stack([_grown(about.rng, now, book, size, found, least_rows) for book in range(n_init)])
        now = _moved(about, C, least_rows)
    if candidates == n_clusters:
        return np.stack([_grown(about.rng, now, book, n_clusters, found, least_rows) for book in range(n_init)])
    chosen = [
        k_means(C, n_clusters, about.rng, np.where(counts >= least_rows, counts, 1e-9)).centres
        for C, counts in zip(now.centres, now.counts, strict=True)
    ]
    return np.stack(chosen)


def _grown(rng: np.random.Generator, now: _Moved, book: int, size: int, found: Moments, least_rows: int) -> Matrix:
    """Return `size` centres: those with enough rows, and new ones beside parents drawn by squared distances."""
    C, counts, spread = now.centres[book], now.counts[book], now.spread[book]
    kept = np.flatnonzero(counts >= least_rows)
    if not len(kept):
        kept = np.array([counts.argmax()])
    kept = kept[:size]
    odds = spread[kept] if spread[kept].sum() > 0.0 else np.maximum(counts[kept], 1.0)
    parents = rng.choice(kept, size - len(kept), p=odds / odds.sum())
    total = max(float(found.variance.sum()), np.finfo(float).tiny)
    radius = np.sqrt(spread[parents] / np.maximum(counts[parents], 1) / total)
    nudges = rng.standard_normal((len(parents), C.shape[1])) * np.sqrt(found.variance)
    return np.concatenate([C[kept], C[parents] + _NUDGE * radius[:, None] * nudges])


def _labelled(site: Site, centres: Matrix) -> Iterator[tuple[Matrix, NDArray[np.int32]]]:
    """Yield blocks of rows with the numbers of their closest centres; never more than a block's distances at once.

    The numbers of the last centres are remembered: both sums of a round need them. They are a function of rows and
    centres, and are computed again where they were forgotten.
    """
    memory: dict[bytes, NDArray[np.int32]] = site.cached("closest centres", dict)
    b, k, d = centres.shape
    rows = max(16, _BLOCK_BYTES // (8 * max(d, b * k)))
    key = centres.tobytes()
    labels = memory.get(key)
    fresh = labels is None
    if labels is None:
        labels = np.empty((len(site), b), dtype=np.int32)
    at = 0
    for X in _blocks(site, rows):
        part = slice(at, at + len(X))
        if fresh:
            labels[part] = closest(X, centres)
        yield X, labels[part]
        at = part.stop
    memory.clear()
    memory[key] = labels


def _blocks(site: Site, rows: int) -> Iterator[Matrix]:
    if 8 * len(site) * n_columns(site) <= _KEPT_BYTES:
        X = site.X
        for start in range(0, len(site), rows):
            yield np.asarray(X[start : start + rows], dtype=np.float64)
    else:
        for batch in site.batches(rows):
            yield np.asarray(batch.X, dtype=np.float64)

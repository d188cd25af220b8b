"""k-means by sums: Lloyd's algorithm on rows that stay at their sites, for several starts at the same time.

A round has two sums: the number of rows closest to each centre, and the sums of the rows of those that have any. From
the same start any split of the rows gives the centres of Lloyd's algorithm on the pooled rows. These exact sums reveal
much: where a centre gains or loses one row from a round to the next, the difference of its two sums is this row.

With `least_rows` above 1 sums are guarded (`guarded_sums`): none is of fewer rows, and no two differ by fewer. Then a
centre whose rows hardly changed stays where it is, and the result is near to that of Lloyd's algorithm, but not equal.

Without a given start, sums make one, too (`k_means_starts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import real_number, whole_number
from fedspan.clustering.parts.guarded_sums import GuardedSums
from fedspan.clustering.parts.k_means_starts import KMeansStart
from fedspan.clustering.parts.rows_by_centre import Moved, local_counts, local_means, means_of
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.linalg.kernels.nearest_centres import rounded_mean
from fedspan.sums.moments import Moments, moments
from fedspan.sums.row_transforms import standardize
from fedspan.sums.whole_totals import whole

Matrix = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class KMeansRuns:
    """The results of b starts: centres (b, k, d), rows of each (b, k), inertia and rounds (b,); the rows' moments."""

    centres: Matrix
    counts: Counts
    inertia: Matrix
    rounds: Counts
    moments: Moments


def federated_k_means(
    fed: Federation,
    *,
    n_clusters: int,
    init: Matrix | None = None,
    n_init: int = 1,
    max_iter: int = 300,
    tol: float = 1e-4,
    least_rows: int = 1,
    names: tuple[str, ...] | None = None,
) -> KMeansRuns:
    """Return the centres that `n_init` starts lead to.

    Parameters
    ----------
    n_clusters : int
        k. Up per site and round: k whole numbers, and at most k (d + 2) numbers; down k d; times the number of starts.
    init : array (k, d), optional
        The start; default: `n_init` starts from sums.
    n_init : int, default=1
        Starts; all make their rounds in the same calls.
    max_iter : int, default=300
    tol : float, default=1e-4
        A start ends when the squares of its centres' moves add up to at most `tol` times the mean variance.
    least_rows : int, default=1
        No sum of fewer rows is requested, and no two that differ by fewer; a centre that would need one stays where it
        is. 1: Lloyd's algorithm, without any guard.
    names : tuple of str, optional
        Names of the columns, for errors about values that are not finite.
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
            f"n_samples={found.n} is fewer than least_rows={least_rows}: no centre could have as many rows"
        )
    # No offset of the data costs digits, and no last bit of the mean, which depends on the split, decides ties.
    shift = rounded_mean(found.mean, found.variance)
    about = fed.apply(standardize, mean=shift, scale=None, double=True)
    guarded = least_rows > 1
    move = GuardedSums(about, least_rows, len(found.mean)).moved if guarded else partial(_moved, about)
    start = KMeansStart(move, fed.rng, found, least_rows)
    if init is not None:
        C = (init - shift)[None]
    elif n_clusters == 1:
        C = np.zeros((n_init, 1, len(found.mean)))
    else:
        C = (start.drawn if guarded else start.split)(n_clusters, n_init)
    least_move = tol * float(found.variance.mean())
    rounds, going = np.zeros(len(C), dtype=np.int64), np.ones(len(C), dtype=np.bool_)
    for _ in fed.rounds(max_iter):
        now = move(C[going])
        fed.log(inertia=float(now.inertia.min()), small_centres=int((now.counts < least_rows).sum()))
        rounds += going
        moves = np.sum((now.centres - C[going]) ** 2, axis=(1, 2))
        C[going] = now.centres
        going[going] = moves > least_move
        if not going.any():
            fed.stop(f"the centres of {'all starts' if len(C) > 1 else 'the start'} move no more", converged=True)
    last = whole(about.sum(local_counts, centres=C), counts=C.shape[:2], inertia=(len(C),))
    fed.log(inertia=float(last["inertia"].min()))
    return KMeansRuns(C + shift, last["counts"], last["inertia"], rounds, found)


def _moved(about: Federation, C: Matrix) -> Moved:
    """Move each centre that has rows to their mean."""
    first = whole(about.sum(local_counts, centres=C), counts=C.shape[:2], inertia=(len(C),))
    wanted = first["counts"] > 0
    moved, counts, spread = C.copy(), np.zeros_like(first["counts"]), np.zeros(C.shape[:2])
    if wanted.any():
        moved[wanted], counts[wanted], spread[wanted] = means_of(about, local_means, C, wanted, 1)
    return Moved(moved, counts, spread, first["inertia"])

"""k-means by sums: Lloyd's algorithm on rows that stay at their sites, for several starts at the same time.

A round is one sum: the number and the sum of the rows closest to each centre. From the same start any split of the rows
gives the centres of Lloyd's algorithm on the pooled rows. These exact sums reveal much. Where a centre gains or loses
one row from a round to the next, the difference of its two sums is this row. Centres without rows are placed again,
beside those whose rows are far away.

With an `aggregator` it combines the sites' moves of the centres, for sites that may be malicious (`voted_means`).

With `least_rows` above 1 sums are guarded (`guarded_sums`): none is of fewer rows, and no two differ by fewer. Then a
centre whose rows hardly changed stays where it is, and the result is near to that of Lloyd's algorithm, but not equal.

Without a given start, sums make one, too. Of more than 262,144 rows, the start and the first rounds are made with a
sample. It has one row of each stretch of consecutive ones, which a site reads once. Rounds with all rows follow until
the centres settle, or the inertia: at most a tenth of `max_iter`. Each takes a pass over the rows, perhaps from a disk.

*By splitting.* Beginning with the mean, centres are split where the squared distances are large, four times as many
from stage to stage. The weights are those of k-means++ (Arthur and Vassilvitskii 2007), by clusters instead of rows. A
new centre is its parent moved a little: in many dimensions a point drawn like a row is closest to no row. With enough
rows three times as many centres are made, and then clustered by their weights at the coordinator, as in k-means||
(Bahmani et al. 2012).

*Around draws.* A child's rows are nearly its parent's: the difference of their sums would reveal the rest. So with
guarded sums the coordinator draws points around the means of few and large sets, as spread as the rows are, and
clusters these. Each start has its own draws; the large sets are the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.arrays import Counts, Matrix
from fedspan.checks import real_number, whole_number
from fedspan.clustering.parts.guarded_sums import GuardedSums
from fedspan.clustering.parts.rows_by_centre import (
    Clusters,
    Moved,
    enough_rows,
    local_counts,
    local_means,
    means_of,
    voted_means,
)
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.linalg.kernels.nearest_centres import closest, rounded_mean
from fedspan.linalg.small_clusters import k_means
from fedspan.sums.moments import Moments, moments
from fedspan.sums.plausible_totals import whole
from fedspan.sums.row_transforms import standardize

#: The growth of the number of centres from stage to stage. The distance of a new centre from its parent, in units of
#: the root mean squared distance of the parent's rows.
_GROWTH = 4
_NUDGE = 0.2
#: Rounds of the start with all centres, after each of which those with too few rows are placed again.
_SETTLING = 3
#: Centres made for each one that is wanted, with enough rows; they are then clustered by their weights.
_CANDIDATES = 3
#: Starts of the clustering of candidates; for many centres starts differ little, and take long.
_STARTS, _MANY, _FEW_STARTS = 10, 64, 2
#: Draws for each centre up to a total, but at least four each, and rounds of Lloyd's algorithm on them.
_DRAWS, _MOST_DRAWS, _DRAWN_ROUNDS = 20, 10_000, 10
#: Rounds of Lloyd's algorithm after which centres without rows are placed again.
_RELOCATIONS = 20
#: Rows of a sample, for each centre at least; it is used where the rows are this many times as many, and it is small.
_SAMPLED, _SAMPLED_FOR_ONE, _TIMES, _SAMPLED_BYTES = 2**17, 128, 2, 2**28
#: After the rounds with a sample: one round with all rows for as many of `max_iter`, but at least two.
_ROUNDS_FOR_ONE = 10
#: Then a start ends, too, when a round with all rows has lowered its inertia by at most this share of `tol`. The sample
#: has brought it to about 1e-4 of the least that rounds reach, and many passes would follow for the rest.
_SETTLED = 0.1
#: Rows with smaller variances, or larger ones than one over it, are scaled.
_SMALL = 1e-100


@dataclass(frozen=True)
class KMeansRuns:
    """The results of b starts: centres (b, k, d), rows of each (b, k) or their weights, inertia and rounds (b,).

    `moments` are those of the rows.
    """

    centres: Matrix
    counts: NDArray[Any]
    inertia: Matrix
    rounds: Counts
    moments: Moments

    def best(self) -> Clusters:
        """Return the result of the start with the least inertia."""
        i = int(self.inertia.argmin())
        return Clusters(self.centres[i], self.counts[i], float(self.inertia[i]), int(self.rounds[i]))


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
    aggregator: Aggregator | None = None,
    known: Moments | None = None,
    one_pass: bool = False,
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
        Rounds. Of more than 262,144 rows: those with a sample, then at most a tenth as many with all rows.
    tol : float, default=1e-4
        A start ends when the squares of its centres' moves add up to at most `tol` times the mean variance. Of more
        than 262,144 rows also when a round with all rows lowers the inertia by at most a tenth of `tol`, relatively.
    least_rows : int, default=1
        No sum of fewer rows is requested, and no two that differ by fewer; a centre that would need one stays where it
        is. 1: Lloyd's algorithm, without any guard.
    names : tuple of str, optional
        Names of the columns, for errors about values that are not finite.
    aggregator : Aggregator, optional
        Where sites may be malicious. It combines their moments, and in each round the shares of their rows and the
        moves of the centres, instead of sums. A centre needs rows at most sites.
    known : Moments, optional
        Those of the rows, which then need no pass of their own.
    one_pass : bool, default=False
        Of more than 262,144 rows make all rounds with the sample, whose rows stand for as many each.
    """
    check_k_means(n_clusters, n_init, max_iter, tol, least_rows)
    found = moments(fed, names, aggregator) if known is None else known
    whole_number("n_clusters", n_clusters, 1, found.n, why=f", the number of rows (n_samples={found.n})")
    if found.n < least_rows:
        raise InputError(
            f"n_samples={found.n} is fewer than least_rows={least_rows}: no centre could have as many rows"
        )
    if found.weighted and least_rows > 1:
        raise InputError(f"least_rows={least_rows} counts rows, and rows have weights: use least_rows=1, or no weights")
    # No offset of the data costs digits, and no last bit of the mean, which depends on the split, decides ties.
    shift, unit = rounded_mean(found.mean, found.variance), _unit(found.variance)
    scale = None if unit == 1.0 else np.full(len(shift), unit)
    about = fed.apply(standardize, mean=shift, scale=scale, double=True)
    guarded, weighted = least_rows > 1, {"weighted": True} if found.weighted else {}
    move = GuardedSums(about, least_rows, len(found.mean)).moved if guarded else partial(_moved, about, weighted)
    if aggregator is not None:
        if guarded or found.weighted:
            raise InputError("aggregator=... cannot be combined with least_rows above 1, or with weights of rows")
        move = partial(voted_means, about, rule=aggregator)
    by_sums = not guarded and aggregator is None
    every = _stretch(found, n_clusters) if by_sums and init is None and n_clusters > 1 else 1
    scaled = replace(found, variance=found.variance / unit / unit)
    start = _Start(move, fed.rng, scaled, least_rows)
    first = start if every == 1 else start.on_sample(partial(_moved, about, {**weighted, "every": every}), every)
    if init is not None:
        C = ((init - shift) / unit)[None]
    elif n_clusters == 1:
        C = np.zeros((n_init, 1, len(found.mean)))
    else:
        C = (first.drawn if guarded else first.split)(n_clusters, n_init)
    least_move = tol * float(scaled.variance.mean())
    if every > 1:
        rounds, _ = _lloyd(range(max_iter), first, C, least_move, lambda now: None)
        if one_pass:
            last = first.move(C)
            times = found.weight / last.counts.sum(axis=1)
            counts, inertia = times[:, None] * last.counts, unit * unit * times * last.inertia
            return KMeansRuns(unit * C + shift, counts, inertia, rounds, found)
        max_iter = min(max_iter, max(2, -(-max_iter // _ROUNDS_FOR_ONE)))

    def watch(now: Moved) -> None:
        fed.log(inertia=float(now.inertia.min()), small_centres=int((~enough_rows(now.counts, least_rows)).sum()))

    least_fall = _SETTLED * tol if every > 1 else 0.0
    rounds, settled = _lloyd(fed.rounds(max_iter), start, C, least_move, watch, least_fall)
    if settled:
        fed.stop(f"the centres of {'all starts' if len(C) > 1 else 'the start'} have settled", converged=True)
    if aggregator is None:
        total = whole(about.sum(local_counts, centres=C, **weighted), counts=C.shape[:2], inertia=(len(C),))
        counts, inertia = total["counts"], total["inertia"]
    else:
        voted = voted_means(about, C, aggregator, last=True)
        counts, inertia = voted.counts, voted.inertia
    fed.log(inertia=float(inertia.min()))
    return KMeansRuns(unit * C + shift, counts, unit * unit * inertia, rounds, found)


def check_k_means(n_clusters: int, n_init: int, max_iter: int, tol: float, least_rows: int) -> None:
    """Refuse settings that cannot work, before any site is contacted."""
    counts = {"n_clusters": n_clusters, "n_init": n_init, "max_iter": max_iter, "least_rows": least_rows}
    for name, value in counts.items():
        whole_number(name, value, 1)
    real_number("tol", tol, least=0)


def _unit(variance: Matrix) -> float:
    """Return 1, or for very small or large rows the power of two near their deviation: squares stay within range."""
    largest = float(variance.max())
    if largest == 0.0 or _SMALL < largest < 1.0 / _SMALL:
        return 1.0
    return math.ldexp(1.0, math.frexp(math.sqrt(largest))[1])


def _stretch(found: Moments, n_clusters: int) -> int:
    """Return the number of consecutive rows of which a sample has one, or 1 where it would save little."""
    rows = max(_SAMPLED, _SAMPLED_FOR_ONE * n_clusters)
    return found.n // rows if found.n >= _TIMES * rows and 8 * rows * len(found.mean) <= _SAMPLED_BYTES else 1


def _moved(about: Federation, settings: Mapping[str, Any], C: Matrix) -> Moved:
    """Move each centre that has rows to their mean."""
    shape, wanted = C.shape[:2], np.ones(C.shape[:2], dtype=np.bool_)
    means, counts, spread, before = means_of(about, local_means, C, wanted, 1, **settings)
    counts, spread, before = (own.reshape(shape) for own in (counts, spread, before))
    return Moved(means.reshape(C.shape), counts, spread, before.sum(axis=1))


def _lloyd(
    steps: Iterable[int],
    start: _Start,
    C: Matrix,
    least_move: float,
    watch: Callable[[Moved], None],
    least_fall: float = 0.0,
) -> tuple[Counts, bool]:
    """Move the centres (b, k, d), in place, until they move little; return the rounds of each start, and if all did.

    With `least_fall` a start ends, too, when a round lowers its inertia by at most this share.
    """
    rounds, going = np.zeros(len(C), dtype=np.int64), np.ones(len(C), dtype=np.bool_)
    before = np.full(len(C), np.inf)
    relocations = _RELOCATIONS if start.least_rows == 1 else 0
    for _ in steps:
        now = start.move(C[going])
        watch(now)
        rounds += going
        new = now.centres
        if relocations and (now.counts == 0).any():
            new, relocations = start.refilled(now), relocations - 1
        moves = np.sum((new - C[going]) ** 2, axis=(1, 2))
        C[going] = new
        fell = before[going] - now.inertia > least_fall * now.inertia if least_fall else True
        before[going] = now.inertia
        going[going] = (moves > least_move) & fell
        if not going.any():
            return rounds, True
    return rounds, False


@dataclass(frozen=True)
class _Start:
    """Starts (b, k, d) about the mean, from rounds of k-means (`move`) with other numbers of centres."""

    move: Callable[[Matrix], Moved]
    rng: np.random.Generator
    found: Moments
    least_rows: int

    def on_sample(self, move: Callable[[Matrix], Moved], every: int) -> _Start:
        """Return starts from rounds with one of `every` rows."""
        few = replace(self.found, n=self.found.n // every, weight=self.found.weight / every)
        return replace(self, move=move, found=few)

    def split(self, n_clusters: int, n_init: int) -> Matrix:
        """Return `n_init` starts by splitting centres."""
        now = self._one_centre(n_init)
        candidates = self._candidates(n_clusters)
        sizes = [_GROWTH**stage for stage in range(1, candidates.bit_length()) if _GROWTH**stage < candidates]
        for size in [*sizes, *[candidates] * _SETTLING]:
            now = self.move(self._grown(now, size))
        return self._grown(now, n_clusters) if candidates == n_clusters else self._clustered(now, n_clusters)

    def drawn(self, n_clusters: int, n_init: int) -> Matrix:
        """Return `n_init` starts around draws."""
        now = self._one_centre(1)
        candidates = self._candidates(n_clusters)
        for size in (candidates // _GROWTH**2, candidates // _GROWTH):
            if size >= _GROWTH:
                now = self.move(self._around_draws(now, size)[None])
        C = np.stack([self._around_draws(now, candidates) for _ in range(n_init)])
        for _ in range(_SETTLING):
            now = self.move(C)
            C = self._grown(now, candidates)
        return C if candidates == n_clusters else self._clustered(now, n_clusters)

    def refilled(self, now: Moved) -> Matrix:
        """Return the centres (b, k, d) where each without rows is placed beside one whose rows are far from it.

        Scikit-learn takes the row that is furthest from its centre, which would leave its site. Where every row is at
        its centre there are fewer distinct rows than centres: then those without rows stay.
        """
        centres = now.centres.copy()
        rounding = np.finfo(np.float64).eps * self.found.weight * float(self.found.variance.sum())
        for book, (counts, spread) in enumerate(zip(now.counts, now.spread, strict=True)):
            empty, full = np.flatnonzero(counts == 0), np.flatnonzero(counts > 0)
            if len(empty) and spread.sum() > rounding:
                kept = now.centres[book, full][None], counts[full][None], spread[full][None]
                one = Moved(*kept, inertia=now.inertia[book : book + 1])
                centres[book, empty] = self._grown(one, len(full) + len(empty))[0, len(full) :]
        return centres

    def _candidates(self, n_clusters: int) -> int:
        """Return the number of centres before they are clustered, which the number of rows limits."""
        whole = float(self.found.weight).is_integer()  # then a row may stand for several
        rows = int(self.found.weight) if whole else self.found.n
        return max(n_clusters, min(_CANDIDATES * n_clusters, rows // (4 * self.least_rows)))

    def _clustered(self, now: Moved, n_clusters: int) -> Matrix:
        """Return centres of centres, weighted by their numbers of rows."""
        weights = np.where(enough_rows(now.counts, self.least_rows), now.counts, 1e-9)
        pairs = zip(now.centres, weights, strict=True)
        starts = _STARTS if n_clusters <= _MANY else _FEW_STARTS
        return np.stack([k_means(C, n_clusters, self.rng, own, starts).centres for C, own in pairs])

    def _one_centre(self, n_init: int) -> Moved:
        """Return all rows at their mean."""
        n, squares = self.found.weight, self.found.weight * self.found.variance.sum()
        centres = np.zeros((n_init, 1, len(self.found.mean)))
        return Moved(centres, np.full((n_init, 1), n), np.full((n_init, 1), squares), np.zeros(n_init))

    def _around_draws(self, now: Moved, size: int) -> Matrix:
        """Return the centres (size, d) of points drawn around the first set of centres, as spread as its rows are."""
        C, counts = now.centres[0], now.counts[0]
        enough = enough_rows(counts, self.least_rows)
        C, counts = (C[enough], counts[enough]) if enough.any() else (C, counts + 1)
        odds = counts / counts.sum()
        within = np.sqrt(np.maximum(self.found.variance - odds @ C**2, 0.0))
        n = max(4 * size, min(_DRAWS * size, _MOST_DRAWS))
        points = C[self.rng.choice(len(C), n, p=odds)] + within * self.rng.standard_normal((n, C.shape[1]))
        drawn = points[self.rng.choice(n, size, replace=False)]
        for _ in range(_DRAWN_ROUNDS):
            labels = np.concatenate([closest(points[at : at + 1024], drawn[None])[:, 0] for at in range(0, n, 1024)])
            rows = np.bincount(labels, minlength=size)
            order = np.argsort(labels, kind="stable")
            some = np.flatnonzero(rows)
            starts = (np.cumsum(rows) - rows)[some]
            drawn[some] = np.add.reduceat(points[order], starts) / rows[some, None]
        return np.asarray(drawn)

    def _grown(self, now: Moved, size: int) -> Matrix:
        """Return `size` centres for each start: those with enough rows, and new ones beside parents.

        Parents are drawn by squared distances.
        """
        variance, grown = self.found.variance, []
        total = max(float(variance.sum()), np.finfo(float).tiny)
        for C, counts, spread in zip(now.centres, now.counts, now.spread, strict=True):
            enough = np.flatnonzero(enough_rows(counts, self.least_rows))
            kept = enough[:size] if len(enough) else np.array([counts.argmax()])
            odds = spread[kept] if spread[kept].sum() > 0.0 else counts[kept] + (counts[kept] == 0)
            parents = self.rng.choice(kept, size - len(kept), p=odds / odds.sum())
            radius = np.sqrt(spread[parents] / np.where(counts[parents] > 0, counts[parents], 1) / total)
            nudges = self.rng.standard_normal((len(parents), C.shape[1])) * np.sqrt(variance)
            grown.append(np.concatenate([C[kept], C[parents] + _NUDGE * radius[:, None] * nudges]))
        return np.stack(grown)

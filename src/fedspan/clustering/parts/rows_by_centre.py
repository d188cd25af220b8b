"""Rows by their closest centre: labels, and counts, sums and squared distances of the rows of each centre."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.aggregation.vote_groups import warn_of_groups
from fedspan.arrays import Array
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.parameters import ArrayOf, Count, Matrix, Stack
from fedspan.linalg.kernels.nearest_centres import closest, squared_apart
from fedspan.sums.moments import typical_rows
from fedspan.sums.plausible_totals import whole
from fedspan.sums.posted_values import posted
from fedspan.sums.row_blocks import n_columns, sampled_blocks, sampled_rows
from fedspan.sums.row_transforms import standardize
from fedspan.wire import Message

Labels = NDArray[np.int32]
Wanted = Annotated[NDArray[np.bool_], ArrayOf("flag", 2)]

#: Sites keep rows as the transforms show them up to this size; they make larger ones again for every call.
_KEPT_BYTES = 2**30
_BLOCK_BYTES = 2**20
#: Labels that are remembered, at most.
_LABEL_BYTES = 2**28
#: An aggregated number is no further from the median of the votes than this part of their median distance from it.
_NEAR = 0.25


def of_centres(site: Site, *, centres: Array, every: int = 1, **_: Any) -> int:
    """Return the mean number of rows per centre: the smallest cluster has at most that."""
    return len(site) // every // max(1, int(centres.shape[-2]))


@step("clustering.cluster_counts", reveals="sums", fewest=of_centres, fewest_in_sums=False, weighted=True)
def local_counts(site: Site, centres: Stack, weighted: bool = False) -> dict[str, Any]:
    """Leaves the site: the number of its rows closest to each centre, and the sum of the squared distances.

    With `weighted` a row counts as often as its weight states, and the numbers are sums of weights.
    """
    weights, at = row_weights(site, weighted), 0
    counts, inertia = np.zeros(centres.shape[:2], dtype=np.float64 if weighted else np.int64), np.zeros(len(centres))
    for X, labels in labelled(site, centres):
        times = None if weights is None else weights[at : at + len(X)]
        apart = squared_apart(X, centres, labels)
        inertia += apart.sum(axis=0) if times is None else times @ apart
        for book, own in enumerate(labels.T):
            counts[book] += np.bincount(own, times, minlength=centres.shape[1])
        at += len(X)
    return {"counts": counts, "inertia": inertia}


@step("clustering.cluster_means", reveals="sums", fewest=of_centres, fewest_in_sums=False, weighted=True)
def local_means(site: Site, centres: Stack, wanted: Wanted, weighted: bool = False, every: Count = 1) -> dict[str, Any]:
    """Leaves the site: of each `wanted` centre the number and sum of its rows there, and their squared distances.

    With `weighted` a row counts as often as its weight states, and the numbers are sums of weights. With `every` above
    1 they are about a sample: one row of each `every`.
    """
    b, k, d = centres.shape
    weights, at = row_weights(site, weighted), 0
    if every > 1 and weights is not None:
        weights = weights[sampled_rows(len(site), every)]
    counts = np.zeros(b * k, dtype=np.float64 if weighted else np.int64)
    sums, spread = np.zeros((b * k, d)), np.zeros(b * k)
    for X, labels in labelled(site, centres) if every == 1 else _labelled_sample(site, centres, every):
        cells = (labels + k * np.arange(b)).ravel()
        times = np.ones(len(cells)) if weights is None else np.repeat(weights[at : at + len(X)], b)
        sums += csc_array((times, cells, np.arange(0, len(cells) + 1, b)), shape=(b * k, len(X))) @ X
        counts += np.bincount(cells, None if weights is None else times, minlength=b * k)
        spread += np.bincount(cells, times * squared_apart(X, centres, labels).ravel(), minlength=b * k)
        at += len(X)
    chosen = wanted.ravel()
    return {"sums": sums[chosen], "counts": counts[chosen], "spread": spread[chosen]}


def row_weights(site: Site, weighted: bool) -> NDArray[np.float64] | None:
    """Return the weights of the site's rows for a `weighted` sum, which are 1 where the site has none."""
    weights = site.sample_weight
    if weights is not None and not weighted:
        raise InputError(f"the rows of site {site.name!r} have weights, and this sum would count each of them once")
    return np.ones(len(site)) if weighted and weights is None else weights


def labelled(site: Site, centres: Array) -> Iterator[tuple[NDArray[np.float64], Labels]]:
    """Yield blocks of rows with the numbers of their closest centres; never more than a block's distances at once.

    The site remembers the labels of the last centres, which all steps of a round need, unless they are very many.
    """
    b = len(centres)
    if 4 * len(site) * b > _LABEL_BYTES:
        for X in _blocks(site, _rows_of_block(centres)):
            yield X, closest(X, centres)
        return
    memory: dict[bytes, Labels] = site.cached("closest centres", dict)
    key = centres.tobytes()
    known = memory.get(key)
    labels = np.empty((len(site), b), dtype=np.int32) if known is None else known
    at = 0
    for X in _blocks(site, _rows_of_block(centres)):
        part = slice(at, at + len(X))
        if known is None:
            labels[part] = closest(X, centres)
        yield X, labels[part]
        at = part.stop
    memory.clear()
    memory[key] = labels


def _rows_of_block(centres: Array) -> int:
    b, k, d = map(int, centres.shape)
    return max(16, _BLOCK_BYTES // (8 * max(d, b * k)))


def _labelled_sample(site: Site, centres: Array, every: int) -> Iterator[tuple[NDArray[np.float64], Labels]]:
    """Yield blocks of a sample of the rows with the numbers of their closest centres; the site keeps the sample."""

    def make() -> NDArray[np.float64]:
        return np.concatenate([np.empty((0, centres.shape[2])), *sampled_blocks(site, every)])

    sample, rows = site.last_of("sample of rows", every, make), _rows_of_block(centres)
    for start in range(0, len(sample), rows):
        yield sample[start : start + rows], closest(sample[start : start + rows], centres)


def _blocks(site: Site, rows: int) -> Iterator[NDArray[np.float64]]:
    if not site.streamed and not site.sparse and 8 * len(site) * n_columns(site) <= _KEPT_BYTES:
        X = site.X
        for start in range(0, len(site), rows):
            yield np.asarray(X[start : start + rows], dtype=np.float64)
    else:
        for batch in site.batches(rows):
            yield np.asarray(batch.X, dtype=np.float64)


@dataclass(frozen=True)
class Clusters:
    """Centres (k, d), rows of each (k,) or their weights, inertia and the number of rounds."""

    centres: NDArray[np.float64]
    counts: Array
    inertia: float
    rounds: int


@dataclass(frozen=True)
class Moved:
    """Centres (b, k, d) after one round.

    `counts` are the rows of each before it, or their weights. `spread` (b, k) has their squared distances to it after,
    and `inertia` (b,) all squared distances before.
    """

    centres: NDArray[np.float64]
    counts: Array
    spread: NDArray[np.float64]
    inertia: NDArray[np.float64]


def means_of(
    seen: Federation, run: Callable[..., Any], C: Array, wanted: NDArray[np.bool_], least_rows: int, **payload: Any
) -> tuple[Array, Array, Array, Array]:
    """Return the means, numbers and squared distances of the rows of the `wanted` centres (b, k), each about its mean.

    The last result is the squared distances from the centres as they were.

    A centre with fewer rows than `least_rows` stays: a site may answer the counts and miss the sums.
    """
    some = (int(wanted.sum()),)
    total = seen.sum(run, centres=C, wanted=wanted, **payload)
    whole(total, sums=(*some, C.shape[2]), counts=some, spread=some)
    counts = total["counts"]
    means = total["sums"] / np.where(counts > 0, counts, 1)[:, None]
    moved = np.where(enough_rows(counts, least_rows)[:, None], means, C[wanted])
    # About the new centre: less by the number of rows times the square of the move.
    shift = np.vecdot(moved - C[wanted], moved - C[wanted])
    return moved, counts, np.maximum(total["spread"] - counts * shift, 0.0), total["spread"]


def enough_rows(counts: Array, least_rows: int) -> NDArray[np.bool_]:
    """Return which centres have at least `least_rows` rows; of 1, any weight of rows is enough."""
    return np.asarray(counts >= least_rows if least_rows > 1 else counts > 0)


def voted_means(seen: Federation, C: Array, rule: Aggregator, last: bool = False) -> Moved:
    """Return centres (b, k, d) after one round in which `rule` combines the sites' moves, instead of a sum.

    A site counts by its shares of rows and by its moves times these, whatever number of rows it reports. So a centre
    where most sites have no rows has none. After the `last` round warn where the votes form two groups.
    """
    b, k, d = C.shape
    replies = seen.totals(local_means, centres=C, wanted=np.ones((b, k), dtype=np.bool_))
    counts = np.maximum(np.asarray(replies.stack("counts"), dtype=np.float64), 0.0)
    n = np.maximum(counts.reshape(-1, b, k).sum(axis=2)[:, 0], 1.0)
    moves = replies.stack("sums") - counts[:, :, None] * C.reshape(-1, d)
    each = np.concatenate([counts[:, :, None], replies.stack("spread")[:, :, None], moves], axis=2)
    votes = each / n[:, None, None]
    if last:
        warn_of_groups("the votes on the centres", votes, tuple(replies))
    found = _near_most(votes, rule, n).reshape(b, k, d + 2)
    shares, spread = np.maximum(found[:, :, 0], 0.0), np.maximum(found[:, :, 1], 0.0)
    # Less than half a row of a typical site counts as none: an attacker's tiny weight must not become a divisor.
    some = shares >= 0.5 / (len(n) * max(1.0, float(np.median(n))))
    shares = np.where(some, shares, 0.0)
    move = np.where(some[:, :, None], found[:, :, 2:], 0.0) / np.where(some, shares, 1.0)[:, :, None]
    rows = typical_rows(n) * shares / np.maximum(shares.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    scatter = np.where(some, rows * spread / np.where(some, shares, 1.0), 0.0)
    about = np.maximum(scatter - rows * np.vecdot(move, move), 0.0)
    return Moved(C + move, rows, about, scatter.sum(axis=1))


def _near_most(votes: Array, rule: Aggregator, n: Array) -> Array:
    """Return what `rule` makes of the sites' votes (L, ...), in each number near the median of all votes.

    One median of all centres bends to each of them, round by round: nearly half of the sites carried it away. The
    median of one number, and its distance from most votes, are bounded by honest ones.
    """
    weights = believed(rule, n)
    found = np.asarray(rule(votes, weights).value)
    if weights is not None:  # a mean promises nothing
        return found
    middle = np.median(votes, axis=0)
    apart = _NEAR * np.median(np.abs(votes - middle), axis=0)
    return np.asarray(np.clip(found, middle - apart, middle + apart))


def moved_centres(centres: Array, sizes: Array, seen: Federation, rule: Aggregator | None = None) -> Clusters:
    """Return centres (k, d) of rows before, which count by `sizes` (k,), and of the new rows closest to each.

    The inertia is that of the new rows before the move. A `rule` combines the sites' moves, instead of a sum.
    """
    reference = np.asarray(centres, dtype=np.float64).mean(axis=0)
    about = seen.apply(standardize, mean=reference, scale=None, double=True)
    C, k = centres - reference, len(centres)
    if rule is None:
        total = about.sum(local_means, centres=C[None], wanted=np.ones((1, k), dtype=np.bool_))
        whole(total, sums=C.shape, counts=(k,), spread=(k,))
        new, sums, inertia = total["counts"], total["sums"], float(total["spread"].sum())
    else:
        voted = voted_means(about, C[None], rule)
        new, inertia = voted.counts[0], float(voted.inertia[0])
        sums = new[:, None] * voted.centres[0]
    counts = sizes + new
    moved = (np.asarray(sizes)[:, None] * C + sums) / np.where(counts > 0, counts, 1)[:, None]
    moved = np.where(counts[:, None] > 0, moved, C)
    return Clusters(moved + reference, counts, inertia, 1)


@transform("clustering.distances_to_centres")
def distances_to_centres(X: Array, centres: Matrix) -> Array:
    """Return the distances (n, k) of rows to centres (k, d), in the rows' precision."""
    found = np.empty((len(X), len(centres)), dtype=np.float32 if X.dtype == np.float32 else np.float64)
    rows = _rows_of_block(centres[None])
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        for j, centre in enumerate(centres):  # by differences: a common offset costs nothing
            D = X[part] - centre
            found[part, j] = np.sqrt(np.vecdot(D, D))  # squares may not fit the rows' precision
    return found


def closest_labels(X: Array, centres: Array) -> Labels:
    """Return the number (n,) of the closest of the centres (k, d)."""
    reference = centres.mean(axis=0)
    about = (centres - reference)[None]
    labels = np.empty(len(X), dtype=np.int32)
    rows = max(16, _BLOCK_BYTES // (8 * max(centres.shape)))
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        labels[part] = closest(np.asarray(X[part], dtype=np.float64) - reference, about)[:, 0]
    return labels


@step("clustering.labels", reveals="rows", weighted=True)
def local_labels(site: Site, centres: Matrix) -> dict[str, Any]:
    """Leaves the site: the number of the closest centre of each of its rows, in their order."""
    if site.streamed or site.sparse:
        rows = max(16, _BLOCK_BYTES // (8 * max(1, n_columns(site))))
        found = [closest_labels(X, centres) for X in _blocks(site, rows)]
        return {"labels": np.concatenate([np.empty(0, np.int32), *found])}
    return {"labels": closest_labels(site.X, centres)}


def centre_labels(fed: Federation, *, centres: Array) -> dict[str, Labels]:
    """Return the labels of the rows of each site that posts them."""

    def check(reply: Message) -> Message:
        labels, k = np.asarray(reply.get("labels")), len(centres)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or not np.isin(labels, np.arange(k)).all():
            raise MessageError(f"labels must be whole numbers from 0 to {k - 1}, one per row")
        return reply

    replies = posted(fed, local_labels, "labels", check, centres=centres)
    return {name: np.asarray(reply["labels"], dtype=np.int32) for name, reply in replies.items()}

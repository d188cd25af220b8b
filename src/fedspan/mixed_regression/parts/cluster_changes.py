"""What the sites of each cluster want to change, combined by an aggregator."""

from __future__ import annotations

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.aggregation.fewer_values import within_a_group
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies
from fedspan.mixed_regression.parts.refinement import Moved, Vector
from fedspan.wire import Message

_TINY = np.finfo(np.float64).tiny


def combined_changes(federation: Federation, replies: Replies, shape: tuple[int, ...], aggregator: Aggregator) -> Moved:
    """Combine the `change` of every cluster's sites; a site counts in a cluster by the `part` of it that it says.

    Parts are at most 1 in all, so that a liar counts no more than an honest site. A rule for more liars than a cluster
    can bear expects as many as that; where it refuses a cluster all the same, because too few sites are in it, its
    model stays for now.
    """
    k = shape[0]
    replies = federation.accept(replies, lambda reply: _checked(reply, k))
    part, change, counts = replies.stack("part"), replies.stack("change"), replies.stack("n")
    known = believed(aggregator, counts)
    moved, trust, names = np.zeros(shape), dict.fromkeys(replies, 0.0), list(replies)
    refusals: dict[int, InputError] = {}
    for j in range(k):
        there = np.flatnonzero(part[:, j] > 0.0)
        if not there.size:
            continue
        values = change[there] if change.ndim == 2 else change[there, j]
        try:
            rule = within_a_group(aggregator, there.size, len(federation.sites))
            combined = rule(values, part[there, j] * (1.0 if known is None else known[there]))
        except InputError as error:
            refusals[j] = error
            continue
        moved[j] = combined.value
        share = float(part[:, j].sum() / max(part.sum(), _TINY))
        for i, weight in zip(there, combined.weights, strict=True):
            trust[names[i]] += share * float(weight)
    if len(refusals) == np.count_nonzero(part.sum(axis=0)):
        raise next(iter(refusals.values()))
    # Reported numbers of rows are not believed unless the rule believes them: then all sites are as large as most.
    size = np.full(len(names), float(np.median(counts))) if known is None else counts.astype(np.float64)
    loss = _total_loss(replies, size, believe=known is not None)
    return Moved(moved, size @ part, part.sum(axis=0), loss, tuple(names), trust, tuple(refusals))


def _total_loss(replies: Replies, size: Vector, *, believe: bool) -> float:
    """Return the loss of all rows, where some may lie as far as the majority of the sites tells."""
    losses = replies.stack("loss")
    if believe:
        return float(losses.sum())
    return float(np.median(losses / np.maximum(replies.stack("n"), 1)) * size.sum())


def _is_share(part: Vector) -> bool:
    return bool((part >= 0.0).all() and (part <= 1.0).all() and part.sum() <= 1.0 + 1e-9)


def _checked(reply: Message, k: int) -> Message:
    part = np.asarray(reply.get("part"))
    if part.shape != (k,) or part.dtype.kind not in "iuf" or not _is_share(part):
        raise InputError(f"a site must say how much it belongs to each of {k} clusters, in all at most 1")
    return reply

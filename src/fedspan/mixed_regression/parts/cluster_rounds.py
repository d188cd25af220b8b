"""One round of a refinement: its payload, the clusters of the sites, and the change that their replies make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.aggregation.copied_values import first_of_copies
from fedspan.aggregation.fewer_values import within_a_group
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Total
from fedspan.federation.site.parameters import ArrayOf, Matrix, Positive, Vector
from fedspan.sums.plausible_totals import refuse_absurd
from fedspan.wire import Message

#: Parameters of the steps of a round.
Shares = Annotated[NDArray[np.float64], ArrayOf("float", 1, least=0.0, most=1.0)]
Variance = Positive | None

_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Belief:
    """What sites need for soft assignments: the clusters' `shares` of the sites (k,) and the noise's `variance`.

    Without a variance every site belongs to the cluster of its smallest loss.
    """

    shares: Vector
    variance: float | None = None

    def payload(self) -> dict[str, object]:
        """Return it as parameters of a step."""
        return {"shares": self.shares, "variance": self.variance}


@dataclass(frozen=True)
class MovedModels:
    """The result of one round: the clusters' mean `change` (k, d), their `rows` and `members` (k,), the total `loss`.

    `heard` are the sites that replied. `trust` is the share that an aggregator gave to each. `refused` are the clusters
    without a change, because the aggregator refused them or their sites did not reply.
    """

    change: Matrix
    rows: Vector
    members: Vector
    loss: float
    heard: tuple[str, ...]
    trust: Mapping[str, float] = field(default_factory=dict)
    refused: tuple[int, ...] = ()

    @property
    def mean_loss(self) -> float:
        """The loss of a row."""
        return self.loss / max(float(self.rows.sum()), 1.0)


def responsibilities(losses: Vector, shares: Vector, variance: float | None) -> Vector:
    """Return how much a site belongs to each cluster (k,), by its losses: squared errors, or minus log-likelihoods.

    Squared errors have Gaussian noise of `variance`; losses that are log-likelihoods already have the variance 1/2.
    """
    if variance is None:
        hard = np.zeros(len(losses))
        hard[int(losses.argmin())] = 1.0
        return hard
    score = np.log(np.maximum(shares, _TINY)) - (losses - losses.min()) / (2.0 * variance)
    odds = np.exp(score - score.max())
    return np.asarray(odds / odds.sum())


def local_rounds(
    federation: Federation,
    summed: Any,
    single: Any,
    steps: Mapping[str, Any],
    aggregator: Aggregator | None,
    first: Mapping[str, Any] | None = None,
) -> Callable[[Matrix, Belief], MovedModels]:
    """Return the function of one round: sums of the step `summed`, or with an aggregator the replies of `single`.

    `first` are further parameters of `summed` in the first round.
    """
    more = [dict(first or {})]

    def one_round(models: Matrix, belief: Belief) -> MovedModels:
        payload = {"models": models, **steps, **belief.payload()}
        if aggregator is None:
            now = more.pop() if more and belief.variance is None else {}
            return _summed_changes(federation.sum(summed, **payload, **now))
        return _combined_changes(federation, federation.ask(single, **payload), models.shape, aggregator)

    return one_round


def _summed_changes(total: Total) -> MovedModels:
    """Return the round of summed replies (k, d + 3): n times the change, n, 1 and the loss of each site."""
    sums = total["sums"]
    rows, members, losses = sums[:, -3:].T
    check_counts(rows, members)
    with np.errstate(over="ignore"):  # the stop rule sees models that diverge
        change = sums[:, :-3] / np.where(rows > 0.0, rows, 1.0)[:, None]
        return MovedModels(change, rows.copy(), members, float(losses.sum()), total.sites)


def check_counts(*counts: Vector) -> None:
    """Refuse numbers of rows or sites that no honest site sends."""
    refuse_absurd(*counts)
    if not all((count >= 0.0).all() for count in counts):
        raise InputError("sites sent negative numbers of rows: use an aggregator if some may be malicious")


def _combined_changes(
    federation: Federation, replies: Replies, shape: tuple[int, ...], aggregator: Aggregator
) -> MovedModels:
    """Combine the `change` of every cluster's sites; a site counts in a cluster by its reported `part`.

    The parts of a site are 1 in all. So a malicious site counts no more than an honest one, and copies of one change
    count once. A rule for more malicious sites than a cluster can tolerate expects fewer there. A cluster that it still
    refuses, because it has too few sites, keeps its model for now.
    """
    k = shape[0]
    replies = federation.accept(replies, lambda reply: _checked(reply, k))
    part, change, counts = replies.stack("part"), replies.stack("change"), replies.stack("n")
    losses = replies.stack("loss")
    known = believed(aggregator, counts)
    moved, trust, names = np.zeros(shape), dict.fromkeys(replies, 0.0), list(replies)
    refusals: dict[int, InputError] = {}
    for j in range(k):
        there = np.flatnonzero(part[:, j] > 0.0)
        if not there.size:
            continue
        values = change[there] if change.ndim == 2 else change[there, j]
        if known is None:  # malicious sites that repeat one change have one vote
            own = first_of_copies(values)
            there, values = there[own], values[own]
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
    if refusals and len(refusals) == np.count_nonzero(part.sum(axis=0)):
        raise next(iter(refusals.values()))
    if known is None:  # the rule does not believe reported numbers of rows: all sites count as of median size
        size = np.full(len(names), float(np.median(counts)))
        loss = float(np.median(losses / np.maximum(counts, 1)) * size.sum())
    else:
        size, loss = counts.astype(np.float64), float(losses.sum())
    return MovedModels(moved, size @ part, part.sum(axis=0), loss, tuple(names), trust, tuple(refusals))


def _checked(reply: Message, k: int) -> Message:
    part = ArrayOf("float", 1, least=0.0, most=1.0).check("part", reply.get("part"))
    if len(part) != k or abs(part.sum() - 1.0) > 1e-9:
        raise InputError(f"part must be a share of each of {k} clusters, in all 1")
    return reply

"""A round of exact alternating minimisation: least squares within every cluster, from sums of Gram matrices.

Up per site and round: its label, then d (d + 1) / 2 + d + 3 numbers, which need only be summed over the cluster. A
cluster of the same sites as in the round before is solved already: its sites get no second request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.aggregation.copied_values import first_of_copies
from fedspan.aggregation.fewer_values import within_a_group
from fedspan.errors import FedspanError, InputError, MessageError, QuorumError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.federation.site.parameters import Index, Matrix, Vector, Whole
from fedspan.mixed_regression.parts.cluster_rounds import (
    Belief,
    MovedModels,
    Shares,
    Variance,
    check_counts,
    responsibilities,
)
from fedspan.mixed_regression.parts.regression_rows import rows_of
from fedspan.sums.plausible_totals import refuse_absurd
from fedspan.sums.row_moments import packed, unpacked
from fedspan.wire import Message

_FLAT = 1e-12  # relative: eigenvalues of a Gram matrix below this are directions without data
_FLOOR = 0.25  # of the mean eigenvalue: an aggregated Gram matrix is an estimate and must not make steps too long
_TINY = np.finfo(np.float64).tiny


@step("mixed_regression.label", reveals="sums", moments=True)
def local_label(site: Site, models: Matrix) -> dict[str, Any]:
    """Leaves the site: the number of the model (k, d) that fits it best, its loss there, its number of rows."""
    losses = rows_of(site).losses(models)[1]
    label = int(losses.argmin())
    return {"label": label, "loss": float(losses[label]), "n": len(site)}


@step("mixed_regression.normal_equations", reveals="sums", moments=True)
def local_normal_equations(
    site: Site, models: Matrix, cluster: Index, shares: Shares, variance: Variance
) -> dict[str, Any]:
    """Leaves the site: upper triangle of ``X'X``, ``X'(y - X theta)`` of the cluster's model, n, 1, and its loss.

    With a `variance`, all of it has the site's probability of the cluster as a factor.
    """
    rows = rows_of(site)
    E, losses = rows.losses(models)
    part = 1.0 if variance is None else float(responsibilities(losses, shares, variance)[cluster])
    return {
        "gram": part * packed(rows.X.T @ rows.X),
        "moment": part * E[cluster].dot(rows.X),
        "counts": part * np.array([rows.n, 1.0]),
        "loss": part * float(losses[cluster]),
    }


def exact_round(
    fed: Federation,
    models: Matrix,
    belief: Belief,
    *,
    aggregator: Aggregator | None = None,
    solved: dict[int, tuple[str, ...]] | None = None,
) -> MovedModels:
    """Return the changes (k, d) that lead to the clusters' least-squares models.

    Parameters
    ----------
    aggregator : Aggregator, optional
        Combines Gram matrices and gradients per row. The result is a step whose fixed point is that of the aggregated
        gradient: it takes some rounds.
    solved : dict of cluster to sites, optional
        The sites in the sums that a model solves; filled here. Only for rounds that take whole steps.
    """
    k, soft = len(models), belief.variance is not None
    if soft:
        sites: dict[int, tuple[str, ...]] = dict.fromkeys(range(k), fed.sites)
        found = MovedModels(np.zeros(models.shape), np.zeros(k), np.zeros(k), 0.0, fed.sites)
    else:
        sites, found = _labelled(fed, models, aggregator)
    solved = {} if solved is None else solved
    loss, silent = found.loss, set(fed.sites) - set(found.heard)
    trust: dict[str, float] = {}
    refusals: dict[int, FedspanError] = {}
    for j, names in sites.items():
        if not names or (names == solved.get(j) and aggregator is None and not soft):
            continue
        payload = {"models": models, "cluster": j, **belief.payload()}
        try:
            counts, own_loss, found.change[j], weights = _solved(fed.subset(names), payload, aggregator, len(fed.sites))
        except (QuorumError, MessageError) as error:  # a small cluster without enough replies keeps its model
            refusals[j] = error
            silent |= set(names)
            continue
        except InputError as error:  # so does one that is too small for the aggregator
            if aggregator is None:
                raise
            refusals[j] = error
            continue
        solved[j] = tuple(weights)
        silent |= set(names) - set(weights)
        for name, share in weights.items() if aggregator is not None else ():
            trust[name] = trust.get(name, 0.0) + share * float(counts[1])
        if soft:
            found.rows[j], found.members[j] = counts
            loss += own_loss
    if refusals and len(refusals) == sum(1 for names in sites.values() if names):
        raise next(iter(refusals.values()))
    heard = tuple(name for name in fed.sites if name not in silent)
    total = max(sum(trust.values()), _TINY)
    shares = {name: weight / total for name, weight in trust.items()}
    return replace(found, loss=loss, heard=heard, trust=shares, refused=tuple(refusals))


def _labelled(
    federation: Federation, models: Matrix, aggregator: Aggregator | None
) -> tuple[dict[int, tuple[str, ...]], MovedModels]:
    """Return the sites of every cluster, by the model that fits them best, and a round without a change. One call."""
    k = len(models)

    def check(reply: Message) -> Message:
        return {**reply, "label": Whole(0, k - 1).check("label", reply.get("label"))}

    replies = federation.accept(federation.ask(local_label, models=models), check)
    labels, counts = replies.stack("label"), replies.stack("n").astype(np.float64)
    losses = replies.stack("loss")
    if aggregator is None or believed(aggregator, counts) is not None:
        refuse_absurd(losses, counts)
        loss = float(losses.sum())
    else:
        loss = float(np.median(losses / np.maximum(counts, 1.0)) * np.median(counts) * len(counts))
        counts[:] = np.median(counts)
    one_hot = labels[:, None] == np.arange(k)
    sites = {j: tuple(np.array(list(replies))[labels == j].tolist()) for j in range(k)}
    members = one_hot.sum(axis=0, dtype=np.float64)
    return sites, MovedModels(np.zeros(models.shape), counts @ one_hot, members, loss, tuple(replies))


def _solved(
    group: Federation, payload: dict[str, Any], aggregator: Aggregator | None, all_sites: int
) -> tuple[Vector, float, Vector, dict[str, float]]:
    """Return a cluster's counts, loss and change, and the weights of the sites that replied.

    With an aggregator, sites count by their reported part of the cluster, and the rule suits the number that have one
    among `all_sites` sites.
    """
    d = payload["models"].shape[1]
    if aggregator is None:
        total = group.sum(local_normal_equations, **payload)
        _check_shapes(total, d)
        check_counts(total["counts"])
        refuse_absurd(total["loss"])
        change = _solution(unpacked(total["gram"]), total["moment"])
        return total["counts"], float(total["loss"]), change, dict.fromkeys(total.sites, 1.0)
    replies = group.accept(group.ask(local_normal_equations, **payload), lambda reply: _checked(reply, d))
    if believed(aggregator, np.ones(1)) is None:  # malicious sites that repeat one reply have one vote
        own = first_of_copies(replies.stack("moment"))
        replies = Replies(
            {site: replies[site] for site, first in zip(replies, own, strict=True) if first}, replies.failed
        )
    rows, part = replies.stack("counts").T
    aggregator = within_a_group(aggregator, int(np.count_nonzero(part)), all_sites)
    losses, per_row = replies.stack("loss"), 1.0 / np.maximum(rows, _FLAT)
    known = believed(aggregator, rows)
    if known is None:
        n = float(np.median(rows / np.maximum(part, _TINY)) * part.sum())
        loss, floor = float(np.median(losses * per_row)) * n, _FLOOR
    else:
        n, loss, floor = float(rows.sum()), float(losses.sum()), 0.0
    gram, moment = (
        aggregator(replies.stack(key) * per_row[:, None], part if known is None else known)
        for key in ("gram", "moment")
    )
    change = _solution(unpacked(gram.value), moment.value, floor)
    return np.array([n, part.sum()]), loss, change, dict(zip(replies, moment.weights.tolist(), strict=True))


def _solution(gram: Matrix, moment: Vector, floor: float = 0.0) -> Vector:
    """Return the shortest solution of ``gram x = moment``, with eigenvalues of at least `floor` times their mean."""
    values, V = scipy.linalg.eigh(gram, check_finite=False)
    values = np.maximum(values, floor * max(float(values.mean()), 0.0))
    seen = values > _FLAT * max(float(values[-1]), _TINY)
    return np.asarray(V[:, seen] @ ((V[:, seen].T @ moment) / values[seen]))


def _check_shapes(reply: Mapping[str, Any], d: int) -> None:
    """Refuse normal equations of other sizes: a cluster of few sites has no majority that would."""
    shapes = {"gram": (d * (d + 1) // 2,), "moment": (d,), "counts": (2,), "loss": ()}
    if any(np.asarray(reply.get(key)).shape != shape for key, shape in shapes.items()):
        raise MessageError(f"normal equations must have the shapes {shapes}")


def _checked(reply: Message, d: int) -> Message:
    _check_shapes(reply, d)
    check_counts(np.asarray(reply["counts"]))
    if not reply["counts"][1] <= 1.0:
        raise InputError("counts must be a number of rows and a part of the site of at most 1")
    refuse_absurd(*(reply[key] for key in ("gram", "moment", "loss")))
    return reply

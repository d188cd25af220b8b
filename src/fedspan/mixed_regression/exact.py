"""A round of exact alternating minimisation: least squares within every cluster, from sums of Gram matrices.

Up per site and round: its label, then d (d + 1) / 2 + d + 3 numbers, which need only be summed over the cluster. A
cluster whose sites are those of the round before is solved already, and nobody of it is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.linalg

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.aggregation.fewer_values import within_a_group
from fedspan.errors import FedspanError, InputError, MessageError, QuorumError
from fedspan.federation import Federation, Site, step
from fedspan.mixed_regression.parts.refinement import Belief, Matrix, Moved, Vector, responsibilities
from fedspan.mixed_regression.parts.regression_rows import rows_of
from fedspan.pca.covariance import packed, unpacked
from fedspan.sums.plausible_totals import refuse_absurd
from fedspan.wire import Message

_FLAT = 1e-12  # relative: eigenvalues of a Gram matrix below this are directions without data
_FLOOR = 0.25  # of the mean eigenvalue: an aggregated Gram matrix is a guess, and must not make steps too long


@step("mixed_regression.label", reveals="sums")
def local_label(site: Site, models: Matrix) -> dict[str, Any]:
    """Leaves the site: which of the models (k, d) fits it best, its loss there, its number of rows."""
    losses = rows_of(site).losses(models)[1]
    label = int(losses.argmin())
    return {"label": label, "loss": float(losses[label]), "n": len(site)}


@step("mixed_regression.normal_equations", reveals="sums")
def local_normal_equations(
    site: Site, models: Matrix, cluster: int, shares: Vector, variance: float | None
) -> dict[str, Any]:
    """Leaves the site: upper triangle of ``X'X``, ``X'(y - X theta)`` of the cluster's model, n, 1, and its loss.

    All of it with the factor of how much the site belongs to the cluster, which is 1 without a `variance`.
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
    *,
    models: Matrix,
    belief: Belief,
    aggregator: Aggregator | None = None,
    solved: dict[int, tuple[str, ...]] | None = None,
    weights: str = "cluster",
) -> Moved:
    """Return the changes (k, d) that lead to the clusters' least-squares models.

    Parameters
    ----------
    aggregator : Aggregator, optional
        Combines Gram matrices and gradients per row. The result is a step whose fixed point is that of the aggregated
        gradient: it takes some rounds.
    solved : dict of cluster to sites
        Who was in the sums that a model solves; filled here. Only for the weights "cluster", which take whole steps.
    """
    k, d = models.shape
    memory: dict[int, tuple[str, ...]] = {} if solved is None or weights != "cluster" else solved
    payload = {"models": models, **belief.payload()}
    soft = belief.variance is not None
    members: dict[int, tuple[str, ...]] = dict.fromkeys(range(k), fed.sites)
    rows: Vector = np.zeros(k)
    sites: Vector = np.zeros(k)
    change, loss = np.zeros((k, d)), 0.0
    trust: dict[str, float] = {}
    silent: set[str] = set()
    refusals: dict[int, FedspanError] = {}
    if not soft:
        replies = fed.accept(fed.ask(local_label, models=models), lambda reply: _checked(reply, k))
        labels, counts = replies.stack("label"), replies.stack("n").astype(np.float64)
        losses = replies.stack("loss")
        silent = set(fed.sites) - set(replies)
        if aggregator is None or believed(aggregator, counts) is not None:
            refuse_absurd(losses, counts)
            loss = float(losses.sum())
        else:
            loss = float(np.median(losses / np.maximum(counts, 1.0)) * np.median(counts) * len(counts))
            counts[:] = np.median(counts)
        one_hot = labels[:, None] == np.arange(k)
        rows, sites = counts @ one_hot, one_hot.sum(axis=0, dtype=np.float64)
        members = {j: tuple(np.array(list(replies))[labels == j].tolist()) for j in range(k)}
    for j in range(k):
        if not members[j] or (members[j] == memory.get(j) and aggregator is None and not soft):
            continue
        try:
            group = fed.subset(members[j])
            if aggregator is None:
                summed = group.sum(local_normal_equations, cluster=j, **payload)
                _check_shapes(summed, d)
                refuse_absurd(summed["counts"], summed["loss"])
                change[j] = _solution(unpacked(summed["gram"]), summed["moment"], _FLAT)
                memory[j], total, heard = summed.sites, dict(summed), set(summed.sites)
            else:
                total, change[j], trusted = _aggregated(
                    group, j, payload, within_a_group(aggregator, len(members[j]), len(fed.sites))
                )
                heard = set(trusted)
                for name, share in trusted.items():
                    trust[name] = trust.get(name, 0.0) + share * float(total["counts"][1])
            silent |= set(members[j]) - heard
        except (QuorumError, MessageError) as error:  # a small cluster that mostly failed to answer keeps its model
            refusals[j] = error
            silent |= set(members[j])
            continue
        except InputError as error:  # so does one that is too small for the aggregator
            if aggregator is None:
                raise
            refusals[j] = error
            continue
        if soft:
            rows[j], sites[j] = total["counts"]
            loss += float(total["loss"])
    if refusals and len(refusals) == sum(1 for names in members.values() if names):
        raise next(iter(refusals.values()))
    everybody = max(sum(trust.values()), np.finfo(np.float64).tiny)
    answered = tuple(name for name in fed.sites if name not in silent)
    shares = {name: weight / everybody for name, weight in trust.items()}
    return Moved(change, rows, sites, loss, answered, shares, tuple(refusals))


def _aggregated(
    group: Federation, j: int, payload: dict[str, Any], aggregator: Aggregator
) -> tuple[Message, Vector, dict[str, float]]:
    """Return counts and loss, the change, and who was trusted. Sites count by how much they say they belong here."""
    replies = group.accept(
        group.ask(local_normal_equations, cluster=j, **payload),
        lambda reply: _checked_counts(reply, payload["models"].shape[1]),
    )
    rows, part = replies.stack("counts").T
    per_row = 1.0 / np.maximum(rows, _FLAT)
    known = believed(aggregator, rows)
    weights = part if known is None else known
    gram = aggregator(replies.stack("gram") * per_row[:, None], weights)
    moment = aggregator(replies.stack("moment") * per_row[:, None], weights)
    losses = replies.stack("loss")
    if known is None:
        total = float(np.median(rows / np.maximum(part, np.finfo(np.float64).tiny)) * part.sum())
        loss = float(np.median(losses * per_row)) * total
    else:
        total, loss = float(rows.sum()), float(losses.sum())
    trust = dict(zip(replies, moment.weights.tolist(), strict=True))
    floor = 0.0 if known is not None else _FLOOR
    change = _solution(unpacked(gram.value), moment.value, _FLAT, floor)
    return {"counts": np.array([total, part.sum()]), "loss": loss}, change, trust


def _solution(gram: Matrix, moment: Vector, flat: float, floor: float = 0.0) -> Vector:
    """Return the shortest solution of ``gram x = moment``, with eigenvalues of at least `floor` times their mean."""
    values, V = scipy.linalg.eigh(gram, check_finite=False)
    values = np.maximum(values, floor * max(float(values.mean()), 0.0))
    seen = values > flat * max(float(values[-1]), np.finfo(np.float64).tiny)
    return np.asarray(V[:, seen] @ ((V[:, seen].T @ moment) / values[seen]))


def _checked(reply: Message, k: int) -> Message:
    label = reply.get("label")
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < k:
        raise InputError(f"a label must be a whole number from 0 to {k - 1}")
    return reply


def _check_shapes(reply: Mapping[str, Any], d: int) -> None:
    """Refuse normal equations of other sizes: in a cluster of few sites there is no majority that would."""
    shapes = {"gram": (d * (d + 1) // 2,), "moment": (d,), "counts": (2,), "loss": ()}
    if any(np.asarray(reply.get(key)).shape != shape for key, shape in shapes.items()):
        raise MessageError(f"normal equations must have the shapes {shapes}")


def _checked_counts(reply: Message, d: int) -> Message:
    _check_shapes(reply, d)
    counts = np.asarray(reply["counts"])
    if not (counts >= 0.0).all() or not counts[1] <= 1.0:
        raise InputError("a site must say how many rows it has in this cluster, and a part of itself of at most 1")
    refuse_absurd(*(reply[key] for key in ("gram", "moment", "counts", "loss")))
    return reply

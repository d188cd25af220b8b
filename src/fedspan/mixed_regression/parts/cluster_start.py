"""The result of every start of a refinement, and losses of candidate models at all sites."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import ArrayOf, Matrix, Vector, Whole
from fedspan.linalg import k_medoids
from fedspan.mixed_regression.parts.regression_rows import rows_of
from fedspan.wire import Message

_NEAR = 8.0  # times the difference of near candidates: few candidates of a site's own cluster are worse by more
_EXTRA = 2  # candidates more than clusters, at first
_LITTLE = 0.25  # of a vote


@dataclass(frozen=True)
class Start:
    """Coarse models of the clusters.

    Attributes
    ----------
    models : array (k, d)
    covered : bool
        Whether every cluster clearly has a model of its own. If not, a refinement may end with two clusters in one
        model: try another start.
    gap : float
        How clearly the anchors' models fall into k clusters (see `fedspan.linalg.linkage_gap`); NaN without anchors.
    anchors : tuple of str
        The sites whose models were descended.
    anchor_models : array (A, d)
    """

    models: Matrix
    covered: bool = True
    gap: float = float("nan")
    anchors: tuple[str, ...] = ()
    anchor_models: Matrix = field(default_factory=lambda: np.zeros((0, 0)))


@step("mixed_regression.losses", reveals="sums", moments=True)
def local_losses(site: Site, models: Matrix) -> dict[str, Any]:
    """Leaves the site: its squared error under each of the models (A,), and its number of rows."""
    return {"losses": rows_of(site).losses(models)[1], "n": len(site)}


@step("mixed_regression.size", reveals="nothing")
def local_size(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of rows."""
    return {"n": len(site)}


def checked_start(sites: tuple[str, ...], n_clusters: int, n_columns: int, start: Vector | None) -> Vector:
    """Return the model (d,) of a starting point, 0 by default; refuse one, or a number of clusters, that can't be."""
    whole_number("n_clusters", n_clusters, 1, len(sites), why=", the number of sites")
    theta0 = np.zeros(n_columns) if start is None else np.asarray(start, dtype=np.float64)
    if theta0.shape != (n_columns,):
        raise InputError(f"start must have one number for each of the {n_columns} columns, not shape {theta0.shape}")
    return theta0


def chosen_by_votes(losses: Matrix, k: int) -> NDArray[np.intp]:
    """Choose k of A candidates by losses (L, A), some of which may come from malicious sites.

    A site's losses count by how much worse a candidate is than its own best one, from 0 to 1. So no site has more than
    one vote. A whole vote is the loss of its middle candidate. Where more than half of the candidates are of its own
    cluster, that is noise alone. A vote is then several times the difference of near candidates at most sites. A few
    candidates too many are chosen. First those are dropped whose voters lose little: second ones of a cluster. Then
    those with the fewest voters. A minority that pushes its own candidate has fewer voters than a true cluster, unless
    that is smaller than the minority.
    """
    candidates = losses.shape[1]
    low, middle = losses.min(axis=1, keepdims=True), np.median(losses, axis=1, keepdims=True)
    # Most sites are in clusters of at least 1 / (2 k) of all, and have that share of the candidates.
    rank = min(max(candidates // (2 * k) - 1, 1), candidates - 1)
    near = np.partition(losses, rank, axis=1)[:, [rank]] - low
    vote = np.maximum(middle - low, _NEAR * np.median(near))
    cost = np.clip((losses - low) / np.maximum(vote, np.finfo(np.float64).tiny), 0.0, 1.0)
    chosen = k_medoids(cost, min(k + _EXTRA, candidates)).tolist()
    while len(chosen) > k:
        voted = cost[:, chosen].argmin(axis=1)
        voters = np.bincount(voted, minlength=len(chosen))
        least, second = np.partition(cost[:, chosen], 1, axis=1)[:, :2].T
        lost = [np.median((second - least)[voted == j]) if voters[j] else 0.0 for j in range(len(chosen))]
        chosen.pop(int(np.argmin(lost if min(lost) < _LITTLE else voters)))
    return np.sort(np.array(chosen, dtype=np.intp))


def ask_losses(fed: Federation, *, models: Matrix) -> tuple[tuple[str, ...], Matrix, Vector]:
    """Return the sites that replied, the losses per row (L, A) of the models there, and their numbers of rows (L,)."""
    replies = fed.accept(fed.ask(local_losses, models=models), lambda reply: checked_losses(reply, len(models)))
    counts = np.maximum(replies.stack("n"), 1).astype(np.float64)
    return tuple(replies), replies.stack("losses") / counts[:, None], counts


def checked_losses(reply: Message, n_models: int) -> Message:
    """Refuse losses that no rows can have under this number of models."""
    losses = ArrayOf("float", 1, finite=False, least=0.0).check("losses", reply.get("losses"))
    if len(losses) != n_models:
        raise InputError(f"losses must be one number for each of {n_models} models")
    return {"losses": losses, "n": Whole(-(2**53)).check("n", reply.get("n"))}

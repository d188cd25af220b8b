"""Harmony on rows that stay at their sites: the effects of batches, from sums alone.

After Korsunsky et al., *Fast, sensitive and accurate integration of single-cell data with Harmony*, Nature Methods 16
(2019)::

    start: k-means of the rows on the unit sphere, from several starts: each has a soft clustering of its own
    round: passes of soft clustering, in which a batch avoids clusters that hold too much of it
             centres: sum over rows of R c, on the unit sphere
             block by block: the block leaves the counts, its rows are assigned again, and return
           ridge regression in each cluster: effects of the batches; their mean over starts is taken from the rows
    until the objective decreases no more

A block costs one sum: its return and the next one's leaving are one change of the counts. Where sites are batches, a
site knows its own counts, and this sum has K numbers; else it has those of every batch.

The paper keeps one of its starts. Two runs of it differ by their starts more than by anything else; means of several
differ less. All starts make their passes in the same calls.

Here a round assigns all rows once more by the counts of its last pass. So the shares of a row follow from the row, its
batch and the round's numbers alone. Rows that come later are corrected in the same way. Blocks are drawn by the rows'
values: any split of the rows of a batch over sites gives the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Floats
from fedspan.atlases.parts.batch_labels import (
    Column,
    features_of,
    local_batch_sizes,
    refuse_failed_steps,
    sites_are_batches,
    without_batch,
)
from fedspan.atlases.parts.harmony_rows import HarmonyRows, add_shares
from fedspan.atlases.parts.row_draws import grid_steps
from fedspan.atlases.parts.soft_clusters import Rounds, batch_sums, moved, penalties, reference_and_effects, unit
from fedspan.clustering.federated_k_means import federated_k_means
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.noise_query import message_digest
from fedspan.federation.site.parameters import Count, Index, Labels, Matrix, NotNegative, Positive, Stack, Vector
from fedspan.sums.moments import moments
from fedspan.sums.plausible_totals import sum_of_all, whole

#: Passes over which the decrease of the objective is averaged; rounds of k-means at the start. Guarded ones come to an
#: end sooner: few centres gain or lose enough rows for another sum.
_WINDOW, _START_ROUNDS, _GUARDED_ROUNDS = 3, 25, 5
#: The number of draws of blocks; requests of the begin, at most.
_DRAWS, _TRIES = 2**31, 3


@dataclass(frozen=True)
class HarmonySettings:
    """Settings of Harmony, with the names and defaults of `fedspan.FedHarmony`."""

    theta: float = 2.0
    lamb: float = 1.0
    sigma: float = 0.1
    n_clusters: int | None = None
    block_size: float = 0.1
    max_iter: int = 10
    max_iter_cluster: int = 20
    tol: float = 1e-4
    tol_cluster: float = 1e-4
    n_init: int = 4
    least_rows: int = 1


@dataclass(frozen=True)
class Harmonized:
    """What Harmony learned.

    Names (B,) and sizes (B,) of the batches, the rounds, and what all batches share in each round (T, K, d). The
    objective after each round (T,), and the number of rows in each cluster (K,) after the last.
    """

    names: NDArray[np.str_]
    sizes: NDArray[np.int64]
    rounds: Rounds
    references: Floats
    objective: Floats
    cluster_sizes: Floats


@transform("atlases.unit_rows", frames=True)
def unit_rows(X: Any, column: Column) -> Floats:
    """Return rows without the batch column, divided by their lengths."""
    return unit(features_of(X, column))


@step("atlases.begin", reveals="nothing", by_site=sites_are_batches)
def local_begin(
    site: Site,
    column: Column,
    names: Labels,
    sizes: Vector,
    steps: Vector,
    Y: Matrix,
    starts: Count,
    theta: NotNegative,
    sigma: Positive,
) -> dict[str, Any]:
    """Leaves the site: nothing. It keeps the settings of the run and the centres Y (K, d) of all starts."""
    B, (K, d) = len(names), Y.shape
    if K % starts:
        raise InputError(f"{K} clusters can't be those of {starts} clusterings of one size")
    none = Rounds.none(B, K, d, starts)
    kept = {"column": column, "names": names, "steps": steps, "theta": theta, "sigma": sigma, "Y": Y, "starts": starts}
    kept |= {"share": sizes / max(1.0, sizes.sum()), "penalty": np.zeros((B, K)), "own": np.zeros((B, K))}
    kept |= {"removed": -1, "turn": -1, "moved": -1, "settled": -1, "done": 0}
    kept["begun"] = kept["chain"] = message_digest(
        {"column": column, "names": names, "steps": steps, "sigma": sigma, "starts": starts}
    ).hex()
    kept |= {"rounds_Y": none.Y, "rounds_penalties": none.penalties, "rounds_effects": none.effects}
    for name, value in kept.items():
        site.state[name] = value
    return {}


def by_centres(site: Site, **_: Any) -> int:
    """Return 1, or 0 without rows: by the centres and effects of a request one row may be alone in a cluster."""
    return min(len(site), 1)


@step("atlases.centres", reveals="sums", fewest=by_centres, fewest_in_sums=False)
def local_centres(
    site: Site, done: Index, turn: Index, draw: Index, blocks: Count, Y: Matrix, counts: Matrix | None
) -> dict[str, Any]:
    """Leaves the site: sums of its rows in clusters (K, d), counts of blocks but the first (., K), the objective.

    `Y` and `counts` are the centres and the total counts of the last pass, `turn` is the number of
    this one.
    """
    rows = HarmonyRows(site, done)
    rows.settle(turn, Y, counts)
    first, sums, own = rows.blocks(draw, blocks)[0], np.zeros(Y.shape), np.zeros(rows.penalty.shape)
    objective = 0.0
    for part, found in rows.shares():
        sums += found.R.T @ rows.C[part]
        objective += found.objective
        add_shares(own, found.R, rows.codes[part])
    rows.add(own, first, -1.0)
    site.state["own"], site.state["removed"] = own, 0
    site.state["turn"], site.state["draw"] = turn, draw
    return {"sums": sums, "counts": rows.sent(own), "objective": objective}


def of_blocks(site: Site, *, blocks: int, **_: Any) -> int:
    """Return the mean number of rows per block: the smallest block has at most that."""
    return len(site) // max(1, blocks)


@step("atlases.block", reveals="sums", fewest=of_blocks, fewest_in_sums=False)
def local_block(
    site: Site, done: Index, turn: Index, block: Index, blocks: Count, counts: Matrix, Y: Matrix | None
) -> dict[str, Any]:
    """Leaves the site: the change of the counts (., K), where its rows of a block return, and those of the next leave.

    `counts` are the totals without the block. `Y`, the centres of this pass, come with its first block.
    """
    state, rows = site.state, HarmonyRows(site, done)
    if Y is not None:
        state["next"], state["moved"] = Y, turn
    if state["turn"] != turn or state["moved"] != turn:
        raise InputError(f"this site missed the begin of pass {turn}, and takes part again in the next one")
    parts, before = rows.blocks(cast(int, state["draw"]), blocks), np.asarray(state["own"])
    own, removed = before.copy(), cast(int, state["removed"])
    if removed != block:  # the site missed a call: what was to return is as it was
        rows.add(own, parts[removed], 1.0)
        rows.add(own, parts[block], -1.0)
    rows.add(own, parts[block], 1.0, np.asarray(state["next"]), rows.penalties(own, counts))
    rows.add(own, parts[block + 1], -1.0)
    state["own"], state["removed"] = own, block + 1
    return {"change": rows.sent(own - before)}


@step("atlases.batch_sums", reveals="sums", fewest=by_centres, fewest_in_sums=False)
def local_batch_sums(site: Site, done: Index, turn: Index, Y: Matrix, counts: Matrix) -> dict[str, Any]:
    """Leaves the site: number and sum of its rows of each batch in each cluster, (B, K) and (B, K, d); the objective.

    Where sites are batches also its penalties, in its row of (B, K).
    """
    rows = HarmonyRows(site, done)
    rows.settle(turn, Y, counts)
    n = np.zeros(rows.penalty.shape)
    s, objective, penalty = np.zeros((*n.shape, Y.shape[1])), 0.0, np.zeros(n.shape)
    for part, found in rows.shares():
        batch_sums(found.R, rows.X[part], rows.codes[part], n, s)
        objective += found.objective
    if rows.alone and len(rows.codes):
        penalty[rows.codes[0]] = rows.penalty[rows.codes[0]]
    return {"n": n, "s": s, "penalty": penalty, "objective": objective}


@step("atlases.correct", reveals="sums")
def local_correct(site: Site, done: Index, turn: Index, effects: Stack) -> dict[str, Any]:
    """Leaves the site: squared lengths of its rows after this round, and of what it changed. Corrects its rows."""
    state = site.state
    sent = message_digest({"effects": effects}).hex()
    if state.get("done") == done + 1 and state["corrected"] == sent:  # another site missed this
        return {"length": state["length"], "change": state["changed"]}
    rows = HarmonyRows(site, done)
    if state["settled"] != turn:
        raise InputError(f"this site missed the end of round {done}, and can't continue")
    Z = np.empty(rows.X.shape)
    for part, found in rows.shares():
        Z[part] = moved(rows.X[part], found.R, effects, rows.codes[part])
    for name, one in (("Y", rows.Y), ("penalties", rows.penalty), ("effects", effects)):
        state[f"rounds_{name}"] = np.concatenate([np.asarray(state[f"rounds_{name}"]), one[None]])
    state["done"] = done + 1
    state["corrected"] = sent
    state["chain"] = message_digest(
        {"before": state["chain"], "Y": rows.Y, "penalty": rows.penalty, "effects": effects}
    ).hex()
    state["length"], state["changed"] = float(np.vdot(Z, Z)), float(np.sum((Z - rows.Z) ** 2))
    return {"length": state["length"], "change": state["changed"]}


def harmony(
    fed: Federation,
    *,
    column: int = -1,
    names: NDArray[np.str_] | None = None,
    settings: HarmonySettings | None = None,
    feature_names: tuple[str, ...] | None = None,
) -> Harmonized:
    """Learn the effects of batches.

    Parameters
    ----------
    column : int, default=-1
        The number of the column that holds the batch of each row; -1: sites are batches.
    names : array (B,) of str, optional
        The names of the batches. Default: those of the sites.
    settings : HarmonySettings, optional
    feature_names : tuple of str, optional
        For errors about values that are not finite.
    """
    settings = settings or HarmonySettings()
    names = np.array(fed.sites, dtype=str) if names is None else names
    found = moments(fed if column < 0 else fed.apply(without_batch, column=column), feature_names)
    counted = sum_of_all(fed, local_batch_sizes, column=column, names=names)
    refuse_failed_steps(counted.failed)
    sizes = whole(counted, sizes=(len(names),))["sizes"]
    K, d = settings.n_clusters or min(max(1, round(found.n / 30)), 100), len(found.mean)
    if found.n < K:
        raise InputError(f"n_clusters={K} is more than the number of rows (n_samples={found.n})")
    fed.log(phase="start", clusters=K)
    sphere = fed.apply(unit_rows, column=column)
    rounds = _START_ROUNDS if settings.least_rows == 1 else _GUARDED_ROUNDS
    starts = settings.n_init
    start = federated_k_means(sphere, n_clusters=K, n_init=starts, max_iter=rounds, least_rows=settings.least_rows)
    K *= starts
    Y, counts, turn = unit(start.centres.reshape(K, d)), None, 0
    fed.log(phase="rounds")
    fixed = {"theta": settings.theta, "sigma": settings.sigma, "starts": starts, "steps": grid_steps(found.variance)}
    for _ in range(_TRIES):  # a site that misses this has no part in the run: the request is repeated
        begun = fed.ask(local_begin, column=column, names=names, sizes=sizes.astype(np.float64), Y=Y, **fixed)
        if not begun.failed:
            break
    learned, references, objectives = Rounds.none(len(names), K, d, starts), [], []
    complete, cluster_sizes = np.ones(len(names), dtype=np.bool_), np.zeros(K)
    blocks = max(1, min(found.n, round(1.0 / settings.block_size)))
    for done in fed.rounds(settings.max_iter):
        passes: list[float] = []
        for number in range(settings.max_iter_cluster):
            draw = int(fed.rng.integers(_DRAWS))
            more: dict[str, Any] = {"draw": draw, "blocks": blocks, "Y": Y, "counts": counts}
            first = sum_of_all(fed, local_centres, done=done, turn=turn, **more)
            whole(first, sums=(K, d), counts=(len(names) if column >= 0 else 1, K), objective=())
            if number:
                passes.append(first["objective"])
            if _settled(passes, settings.tol_cluster):
                break
            Y, counts = _centres(first["sums"], Y), first["counts"]
            for block in range(blocks):
                more = {"turn": turn, "block": block, "blocks": blocks, "Y": None if block else Y}
                total = fed.sum(local_block, done=done, counts=counts, **more)
                counts = counts + whole(total, change=counts.shape)["change"]
            turn += 1
        assert counts is not None
        total = sum_of_all(fed, local_batch_sums, done=done, turn=turn, Y=Y, counts=counts)
        whole(total, n=(len(names), K), s=(len(names), K, d), penalty=(len(names), K), objective=())
        reference, effects = reference_and_effects(total["n"], total["s"], settings.lamb, starts)
        share = sizes / max(1, sizes.sum())
        penalty = total["penalty"] if column < 0 else penalties(counts, counts.sum(axis=0), share, settings.theta)
        after = sum_of_all(fed, local_correct, done=done, turn=turn, effects=effects)
        whole(after, length=(), change=())
        learned = learned.and_one(Y, penalty, effects)
        references.append(reference)
        objectives.append(float(total["objective"]))
        complete &= total["n"].sum(axis=1) > 0.0
        cluster_sizes = total["n"].sum(axis=0)
        fed.log(objective=objectives[-1], change=float(np.sqrt(after["change"] / max(after["length"], 1e-300))))
        if done and _decrease(*objectives[-2:]) < settings.tol:
            fed.stop("the objective decreases no more", converged=True)
    if not complete.any():
        raise InputError("no batch took part in all rounds: too many sites were missing")
    kept = Rounds(learned.Y, learned.penalties[:, complete], learned.effects[:, complete], starts)
    return Harmonized(names[complete], sizes[complete], kept, np.stack(references), np.array(objectives), cluster_sizes)


def _centres(sums: Floats, before: Floats) -> Floats:
    """Return the directions of sums; where one is zero, the centre stays."""
    found = unit(sums)
    return np.where(np.any(sums != 0.0, axis=1)[:, None], found, before)


def _settled(passes: list[float], tol: float) -> bool:
    """Return whether the objective decreased by no more than `tol` over a window of passes."""
    if len(passes) <= _WINDOW:
        return False
    return _decrease(sum(passes[-_WINDOW - 1 : -1]), sum(passes[-_WINDOW:])) < tol


def _decrease(before: float, after: float) -> float:
    return (before - after) / max(abs(before), 1e-300)

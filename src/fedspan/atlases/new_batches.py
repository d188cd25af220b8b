"""Rows that come later: correction at their sites, and the effects of new batches beside what the others share.

A new batch is placed against the learned clusters, which stay (Kang et al., *Symphony*, Nature Communications 2021).
Round by round its rows are assigned to the clusters without a penalty, and a ridge regression gives its effects.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Floats
from fedspan.atlases.harmony_by_sums import by_centres
from fedspan.atlases.parts.batch_labels import (
    Column,
    batch_codes,
    features_of,
    labels_of,
    refuse_failed_steps,
    rows_of,
    sites_are_batches,
)
from fedspan.atlases.parts.soft_clusters import Rounds, assigned, batch_sums, corrected, effects_beside, row_parts, unit
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.parameters import ArrayOf, Count, Labels, Positive, Stack
from fedspan.sums.plausible_totals import whole

#: Effects (T, B, K d), or (T, B, K, d) at the coordinator.
Effects = Annotated[NDArray[np.float64], ArrayOf("float", 3)]


@transform("atlases.harmonized", view=True, by_site=True)
def harmonized(
    site: Site,
    column: Column,
    names: Labels,
    Y: Stack,
    penalties: Stack,
    effects: Effects,
    sigma: Positive,
    starts: Count,
) -> Site:
    """Show a site's rows corrected, without the batch column."""

    def shown(X: Any) -> NDArray[Any]:
        features = features_of(X, column)
        codes = batch_codes(X, site.name, column, names)
        rounds = _rounds(Y, penalties, effects, features.shape[1], len(names), starts)
        found = corrected(features, codes, rounds, sigma)
        return found.astype(np.float32 if features.dtype == np.float32 else np.float64, copy=False)

    return site.through(shown, frames=True)


@step("atlases.new_batch_sums", reveals="sums", fewest=by_centres, fewest_in_sums=False, by_site=sites_are_batches)
def local_new_batch_sums(
    site: Site, column: Column, names: Labels, Y: Stack, effects: Effects, sigma: Positive, starts: Count
) -> dict[str, Any]:
    """Leaves the site: number and sum of its rows of each new batch in each cluster, after the rounds so far.

    `Y` (T + 1, K, d) are the centres of these rounds and the next one, `effects` those of the rounds.
    """
    rows = rows_of(site)
    X = np.asarray(features_of(rows, column), dtype=np.float64)
    if Y.shape[2] != X.shape[1]:
        raise InputError(f"the model has {Y.shape[2]} features, and this site's rows have {X.shape[1]}")
    labels = np.full(len(X), site.name) if column < 0 else labels_of(rows, column)
    new = np.isin(labels, names)
    codes, X = np.searchsorted(names, labels[new]), X[new]
    none = np.zeros((len(Y) - 1, len(names), Y.shape[1]))
    rounds = _rounds(Y[:-1], none, effects, X.shape[1], len(names), starts)
    n, s = next_sums(X, codes, rounds, Y[-1], len(names), sigma)
    return {"n": n, "s": s, "sizes": np.bincount(codes, minlength=len(names))}


def next_sums(X: Floats, codes: Any, rounds: Rounds, Y: Floats, batches: int, sigma: float) -> tuple[Floats, Floats]:
    """Return number and sum of the rows of each batch in each cluster, in the round after `rounds`."""
    n, s = np.zeros((batches, len(Y))), np.zeros((batches, *Y.shape))
    for part in row_parts(len(X), len(Y)):
        own, batch = np.asarray(X[part], dtype=np.float64), codes[part]
        Z = corrected(own, batch, rounds, sigma)
        R = assigned(unit(Z), Y, np.zeros((batches, len(Y))), batch, sigma, rounds.starts).R
        batch_sums(R, own, batch, n, s)
    return n, s


def placed(X: Any, Y: Floats, references: Floats, lamb: float, sigma: float, starts: int) -> Rounds:
    """Return the rounds of one new batch that has the rows X."""
    K, d = Y.shape[1:]
    codes, rounds = np.zeros(len(X), dtype=np.int64), Rounds.none(1, K, d, starts)
    for centres, reference in zip(Y, references, strict=True):
        n, s = next_sums(X, codes, rounds, centres, 1, sigma)
        rounds = rounds.and_one(centres, np.zeros((1, K)), effects_beside(reference, n, s, lamb, starts))
    return rounds


def new_effects(
    fed: Federation,
    *,
    column: int,
    names: NDArray[np.str_],
    Y: Floats,
    references: Floats,
    lamb: float,
    sigma: float,
    starts: int,
) -> tuple[Rounds, NDArray[np.int64]]:
    """Return the rounds of new batches, by one sum for each round, and the batches' numbers of rows."""
    (K, d), B = Y.shape[1:], len(names)
    rounds, sizes = Rounds.none(B, K, d, starts), np.zeros(B, dtype=np.int64)
    for done in fed.rounds(len(Y)):
        so_far = rounds.effects.reshape(done, B, K * d)
        shared = {"column": column, "names": names, "sigma": sigma, "starts": starts}
        total = fed.sum(local_new_batch_sums, Y=Y[: done + 1], effects=so_far, **shared)
        refuse_failed_steps(total.failed)
        whole(total, n=(B, K), s=(B, K, d), sizes=(B,))
        sizes = total["sizes"]
        effects = effects_beside(references[done], total["n"], total["s"], lamb, starts)
        rounds = rounds.and_one(Y[done], np.zeros((B, K)), effects)
    return rounds, sizes


def _rounds(Y: Floats, penalties: Floats, effects: Floats, d: int, batches: int, starts: int) -> Rounds:
    T, K = Y.shape[:2]
    if K % starts:
        raise InputError(f"{K} clusters can't be those of {starts} clusterings of one size")
    if Y.shape[2] != d or penalties.shape != (T, batches, K) or effects.shape != (T, batches, K * d):
        raise InputError(
            f"rows with {d} features, centres {Y.shape}, penalties {penalties.shape} and effects {effects.shape} of "
            f"{batches} batches do not fit together"
        )
    return Rounds(Y, penalties, effects.reshape(T, batches, K, d), starts)

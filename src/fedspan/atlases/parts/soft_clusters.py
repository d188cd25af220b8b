"""Soft clusters of rows on the unit sphere, with a penalty on clusters that hold too much of a row's batch.

One round of Harmony (Korsunsky et al., Nature Methods 2019) is here a map of a row and its batch alone. The cluster's
centre and the batch's penalty give the row's share of the cluster. The batch's effects give its correction.

There may be several clusterings, from different starts: m of them have K clusters in all, one after another. A row's
shares add up to 1 in each, and its correction is the mean of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array, Matrix

Codes = NDArray[np.int64]

_BLOCK_NUMBERS = 2**19


@dataclass(frozen=True)
class Rounds:
    """Rounds of a correction: centres Y (T, K, d), penalties (T, B, K) and effects (T, B, K, d) of B batches.

    The K clusters are those of `starts` clusterings.
    """

    Y: Matrix
    penalties: Matrix
    effects: Matrix
    starts: int

    @classmethod
    def none(cls, batches: int, K: int, d: int, starts: int) -> Rounds:
        """Return a correction without rounds."""
        return cls(np.zeros((0, K, d)), np.zeros((0, batches, K)), np.zeros((0, batches, K, d)), starts)

    def and_one(self, Y: Matrix, penalty: Matrix, effects: Matrix) -> Rounds:
        """Return the rounds with another one at the end."""
        return Rounds(
            np.concatenate([self.Y, Y[None]]),
            np.concatenate([self.penalties, penalty[None]]),
            np.concatenate([self.effects, effects[None]]),
            self.starts,
        )


class Assigned(NamedTuple):
    """Shares R (n, K) of rows in clusters, and their part of the objective, the mean over clusterings."""

    R: Matrix
    objective: float


def unit(X: Array) -> Matrix:
    """Return rows divided by their lengths; those of zeros stay."""
    X = np.asarray(X, dtype=np.float64)
    largest = np.abs(X).max(axis=1, initial=0.0)
    X = X / np.where(largest > 0.0, largest, 1.0)[:, None]  # squares stay within range
    length = np.sqrt(np.vecdot(X, X))
    return X / np.where(length > 0.0, length, 1.0)[:, None]


def assigned(C: Matrix, Y: Matrix, penalty: Matrix, codes: Codes, sigma: float, starts: int) -> Assigned:
    """Return the shares ``R_ik ~ exp(penalty_bk - 2 (1 - c_i y_k) / sigma)`` of unit rows C (n, d) in clusters.

    They minimise ``sum R (2 (1 - c y) + sigma log R - sigma penalty)``, whose minimum is the objective.
    """
    logits = (C @ Y.T - 1.0) * (2.0 / sigma)
    logits += penalty[codes]
    each = logits.reshape(len(C), starts, len(Y) // starts)
    top = each.max(axis=2, keepdims=True)
    R = np.exp(each - top)
    totals = R.sum(axis=2, keepdims=True)
    R /= totals
    return Assigned(R.reshape(logits.shape), -sigma * float((top + np.log(totals)).sum()) / starts)


def penalties(counts: Matrix, total: Matrix, share: Matrix, theta: float) -> Matrix:
    """Return ``theta log((E + 1) / (O + 1))`` (B, K).

    `counts` O are the rows of each batch in each cluster, `total` (K,) those of all, and `share` (B,) each batch's part
    of all rows. The expected number is ``E = share total``.
    """
    return theta * (np.log1p(share[:, None] * np.maximum(total, 0.0)) - np.log1p(np.maximum(counts, 0.0)))


def reference_and_effects(n: Matrix, s: Matrix, lamb: float, starts: int) -> tuple[Matrix, Matrix]:
    """Return what all batches share (K, d), and the effects (B, K, d) of each, by ridge regression in closed form.

    `n` (B, K) and `s` (B, K, d) are the numbers and sums of the rows of each batch in each cluster.
    """
    f = 1.0 / (n + lamb)
    weight = (n * f).sum(axis=0)
    w0 = np.einsum("bk,bkd->kd", f, s) / np.where(weight > 0.0, weight, 1.0)[:, None]
    return w0, effects_beside(w0, n, s, lamb, starts)


def effects_beside(w0: Matrix, n: Matrix, s: Matrix, lamb: float, starts: int) -> Matrix:
    """Return the effects (B, K, d) of batches beside a known reference w0 (K, d), each the part of one clustering."""
    return np.asarray((s - n[..., None] * w0) / (starts * (n + lamb)[..., None]))


def batch_sums(R: Matrix, X: Matrix, codes: Codes, n: Matrix, s: Matrix) -> None:
    """Add the numbers and sums of rows of each batch in each cluster to `n` (B, K) and `s` (B, K, d)."""
    for b in np.unique(codes):
        mine = codes == b
        n[b] += R[mine].sum(axis=0)
        s[b] += R[mine].T @ X[mine]


def corrected(X: Array, codes: Codes, rounds: Rounds, sigma: float) -> Matrix:
    """Return corrected rows (n, d), block by block: the rounds, one after another, on each row."""
    found = np.empty(X.shape)
    for part in row_parts(len(X), rounds.Y.shape[1]):
        own, batch = np.asarray(X[part], dtype=np.float64), codes[part]
        Z = own
        for Y, penalty, effects in zip(rounds.Y, rounds.penalties, rounds.effects, strict=True):
            Z = moved(own, assigned(unit(Z), Y, penalty, batch, sigma, rounds.starts).R, effects, batch)
        found[part] = Z
    return found


def moved(X: Matrix, R: Matrix, effects: Matrix, codes: Codes) -> Matrix:
    """Return rows without the effects of their batch."""
    Z = X.copy()
    for b in np.unique(codes):
        mine = codes == b
        Z[mine] -= R[mine] @ effects[b]
    return Z


def row_parts(n: int, K: int) -> Iterator[slice]:
    """Yield parts of n rows, of which K numbers each fit a cache."""
    rows = max(16, _BLOCK_NUMBERS // max(1, K))
    for start in range(0, n, rows):
        yield slice(start, min(n, start + rows))

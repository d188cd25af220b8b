"""A site's rows in a run of Harmony: as they are, as the rounds so far correct them, and their shares in clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Floats
from fedspan.atlases.parts.batch_labels import batch_codes, features_of, rows_of
from fedspan.atlases.parts.row_draws import blocks_of, row_keys
from fedspan.atlases.parts.soft_clusters import Codes, Rounds, assigned, corrected, penalties, row_parts, unit
from fedspan.errors import InputError
from fedspan.federation import Site


class HarmonyRows:
    """A site's rows in a run: X, after `done` rounds of correction Z, on the unit sphere C, and their batches."""

    def __init__(self, site: Site, done: int) -> None:
        self.site, state = site, site.state
        if state.get("done") != done:
            raise InputError(f"this site missed a correction before round {done}, and can't continue")
        self.column, self.sigma = cast(int, state["column"]), cast(float, state["sigma"])
        self.starts = cast(int, state["starts"])
        self.Y, self.penalty = np.asarray(state["Y"]), np.asarray(state["penalty"])
        self.alone = self.column < 0
        # The keys are digests of all that the rows are made of: another run at this site may differ in any part.
        self.X, self.codes, self.keys = site.last_of("rows of Harmony", state["begun"], self._read)
        self.Z, self.C = site.last_of("corrected rows", state["chain"], self._corrected)

    def _read(self) -> tuple[Floats, Codes, NDArray[np.uint64]]:
        found, state = rows_of(self.site), self.site.state
        X = np.asarray(features_of(found, self.column), dtype=np.float64)
        codes = batch_codes(found, self.site.name, self.column, np.asarray(state["names"]))
        return X, codes, row_keys(X, np.asarray(state["steps"]))

    def _corrected(self) -> tuple[Floats, Floats]:
        state = self.site.state
        Y, penalty, effects = (np.asarray(state[f"rounds_{name}"]) for name in ("Y", "penalties", "effects"))
        Z = corrected(self.X, self.codes, Rounds(Y, penalty, effects, self.starts), self.sigma)
        return Z, unit(Z)

    def blocks(self, draw: int, blocks: int) -> list[NDArray[np.int64]]:
        """Return the rows of each block, and an empty block at the end."""

        def drawn() -> list[NDArray[np.int64]]:
            of_row = blocks_of(self.keys, draw, blocks)
            order = np.argsort(of_row, kind="stable")
            return np.split(order, np.searchsorted(of_row[order], np.arange(1, blocks + 1)))

        return self.site.last_of("blocks of rows", (self.site.state["begun"], draw, blocks), drawn)

    def settle(self, turn: int, Y: Floats, counts: Floats | None) -> None:
        """Assign all rows by the centres and counts of the pass before `turn`; without one, by the centres alone."""
        state = self.site.state
        if state["settled"] == turn:
            return
        self.Y, state["settled"] = Y, turn
        self.penalty = (
            np.zeros_like(self.penalty) if counts is None else self.penalties(np.asarray(state["own"]), counts)
        )
        state["Y"], state["penalty"] = self.Y, self.penalty

    def penalties(self, own: Floats, counts: Floats) -> Floats:
        """Return the penalties (B, K) by total counts; where sites are batches, a site knows its own."""
        state = self.site.state
        share, theta = np.asarray(state["share"]), cast(float, state["theta"])
        return penalties(own if self.alone else counts, counts.sum(axis=0), share, theta)

    def shares(self) -> Iterator[tuple[slice, Any]]:
        """Yield parts of the rows with their shares in the clusters."""
        for part in row_parts(len(self.X), len(self.Y)):
            yield part, assigned(self.C[part], self.Y, self.penalty, self.codes[part], self.sigma, self.starts)

    def add(
        self, own: Floats, rows: NDArray[np.int64], sign: float, Y: Floats | None = None, penalty: Floats | None = None
    ) -> None:
        """Add some rows to counts (B, K) of own rows, as they were assigned last or by other numbers."""
        Y, penalty = self.Y if Y is None else Y, self.penalty if penalty is None else penalty
        found = assigned(self.C[rows], Y, penalty, self.codes[rows], self.sigma, self.starts)
        add_shares(own, sign * found.R, self.codes[rows])

    def sent(self, own: Floats) -> Floats:
        """Return what leaves the site of its counts: where sites are batches, only for the total (1, K)."""
        return own.sum(axis=0, keepdims=True) if self.alone else own


def add_shares(own: Floats, R: Floats, codes: Codes) -> None:
    """Add the shares R (n, K) of rows to the counts (B, K) of their batches."""
    for b in np.unique(codes):
        own[b] += R[codes == b].sum(axis=0)

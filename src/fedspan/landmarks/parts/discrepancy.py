"""MMD^2 between all rows and landmarks, followed from sums over rows that are asked for once, or when sites leave."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import MessageError
from fedspan.federation import Federation, Site, Total, step
from fedspan.landmarks.parts.kernel_pull import rows_and_norms
from fedspan.landmarks.parts.landmark_descent import per_row
from fedspan.linalg.kernels.gaussian_kernel import characteristic, frequencies
from fedspan.sums.plausible_totals import CountedRows

Array = NDArray[Any]
Matrix = NDArray[np.float64]


@step("landmarks.characteristic", reveals="sums", counts=["n"])
def local_characteristic(site: Site, W: Array) -> dict[str, Any]:
    """Leaves the site: the sums of cos w'x and sin w'x over its rows, for a few random directions w; their number."""
    total = np.zeros((2, len(W)))
    for X, _ in rows_and_norms(site):
        total += characteristic(X, W)
    return {"characteristic": total, "n": len(site)}


class Discrepancy:
    """MMD^2 between the rows of the sites that answer and landmarks.

    When other sites answer than those whose sums are known, the sums are asked for again: MMD^2 is that of the rows
    which are still there. Not for a site that misses a single round. The directions are drawn anew each time: with the
    same ones, the difference of the two sums would be that of the site which left.
    """

    def __init__(self, prepared: Federation, count: int, columns: int, gamma: float, rows: CountedRows) -> None:
        self._fed, self._count, self._columns, self._gamma, self._counted = prepared, count, columns, gamma, rows
        self._before: tuple[str, ...] = ()
        self._sites: tuple[str, ...] = ()
        if count:
            self._ask()

    def follow(self, sites: tuple[str, ...]) -> None:
        """Take note of who answered a round."""
        if self._count and sites != self._sites and sites == self._before:
            self._ask()
        self._before = sites

    def of(self, Y: Matrix) -> dict[str, float]:
        """Return MMD^2 of the landmarks, or nothing where it is not followed."""
        if not self._count:
            return {}
        apart = self._rows - characteristic(Y, self._W) / len(Y)
        return {"mmd2": float(np.mean(np.sum(apart**2, axis=0)))}

    def at_the_end(self, Y: Matrix) -> dict[str, float]:
        """Return the same of the rows of the sites that answered last."""
        if self._count and self._before and self._before != self._sites:
            self._ask()
        return self.of(Y)

    def _ask(self) -> None:
        self._W = frequencies(self._fed.rng, self._count, self._columns, self._gamma).astype(np.float32)
        total = self._fed.sum(local_characteristic, W=self._W)
        found = whole(total, self._counted, False, characteristic=(2, self._count))
        self._rows = per_row(found["characteristic"], total["n"])
        self._sites = total.sites


def whole(total: Total, rows: CountedRows, kernel: bool, **shapes: tuple[int, ...]) -> Total:
    """Refuse sums that most sites spoilt alike, which no comparison among them can tell, and other numbers of rows."""
    expected: dict[str, tuple[int, ...]] = {**shapes, "n": (), **({"kernel": ()} if kernel else {})}
    for name, shape in expected.items():
        if name not in total or np.shape(total[name]) != shape:
            found = f"the shape {np.shape(total[name])}" if name in total else "nothing"
            raise MessageError(f"most sites sent {found} as {name!r}, and it must have the shape {shape}")
    rows.compare(total)
    return total

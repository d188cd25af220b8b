"""MMD^2 between all rows and landmarks, from sums over rows that are requested once, and again when sites leave."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix
from fedspan.landmarks.parts.card_rows import double_device
from fedspan.landmarks.parts.kernel_pull import Device, per_row, rows_and_norms
from fedspan.linalg.array_backend import device_here, to_device
from fedspan.linalg.kernels.gaussian_kernel import characteristic, frequencies
from fedspan.sums.plausible_totals import CountedRows, whole


@step("landmarks.characteristic", reveals="sums", counts=["n"])
def local_characteristic(site: Site, W: Matrix, viewed: bool = False, device: Device = "") -> dict[str, Any]:
    """Leaves the site: the sums of cos w'x and sin w'x over its rows, for a few random directions w; their number.

    `viewed` rows are seen along the axes that the site keeps.
    """
    total = np.zeros((2, len(W)))
    here = device_here(device or None) if viewed else None
    directions = to_device(W, here)
    for X, _ in rows_and_norms(site, here, viewed=viewed):
        total += characteristic(X, directions)
    return {"characteristic": total, "n": len(site)}


class Discrepancy:
    """MMD^2 between landmarks and the rows of the sites that answer, by `count` directions; 0: it is not followed.

    When two rounds in turn have other sites than those of the known sums, the sums are requested again: MMD^2 is that
    of the remaining rows. The directions are drawn again each time: with the same ones, the difference of the two sums
    would be that of the site which left.
    """

    def __init__(
        self, prepared: Federation, count: int, columns: int, gamma: float, rows: CountedRows, **payload: object
    ) -> None:
        self._payload, self._device = payload, str(payload["device"]) if "device" in payload else None
        self._fed, self._count, self._columns, self._gamma, self._counted = prepared, count, columns, gamma, rows
        self._before: tuple[str, ...] = ()
        self._sites: tuple[str, ...] = ()
        if count:
            self._request()

    def follow(self, sites: tuple[str, ...]) -> None:
        """Note which sites answered a round."""
        if self._count and sites != self._sites and sites == self._before:
            self._request()
        self._before = sites

    def of(self, Y: NDArray[np.float64]) -> dict[str, float]:
        """Return MMD^2 of the landmarks, or nothing where it is not followed."""
        if not self._count:
            return {}
        Y_there = to_device(Y, double_device(self._device))
        apart = self._rows - characteristic(Y_there, self._directions) / len(Y)
        return {"mmd2": float(np.mean(np.sum(apart**2, axis=0)))}

    def at_the_end(self, Y: NDArray[np.float64]) -> dict[str, float]:
        """Return the same for the rows of the sites that answered the last round."""
        if self._count and self._before and self._before != self._sites:
            self._request()
        return self.of(Y)

    def _request(self) -> None:
        W = frequencies(self._fed.rng, self._count, self._columns, self._gamma).astype(np.float32)
        total = whole(self._fed.sum(local_characteristic, W=W, **self._payload), characteristic=(2, self._count), n=())
        self._directions = to_device(W.astype(np.float64), double_device(self._device))
        self._counted.compare(total)
        self._rows = per_row(total["characteristic"], total["n"])
        self._sites = total.sites

"""What sites send under `noisy_centres`: sums over rows in a public ball, with noise, charged to the site's ledger.

Every term is of one row alone, and no longer than the sensitivity, whatever the rows and whatever the coordinator asks
for: the site itself draws rows in, also along axes that are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Site, step
from fedspan.linalg.kernels.nearest_centres import closest
from fedspan.privacy.noise import normal

Matrix = NDArray[np.float64]

#: Of a row's sum, and of its count, beside its products or its sum: more of them is more noise on the rest.
WEIGHT = 0.5
SCATTER_SENSITIVITY = math.sqrt(1 + 2 * WEIGHT**2)
CELLS_SENSITIVITY = math.sqrt(1 + WEIGHT**2)
_BLOCK_ROWS = 1024


@step("maps.noisy_scatter", reveals="sums")
def local_noisy_scatter(
    site: Site, center: Matrix, clip: float, multiplier: float, sharers: int, colluding: int
) -> dict[str, Any]:
    """Leaves the site: the sums of u u', u / 2 and 1 / 2 over its rows, with its share of the noise; charged."""
    key = _noise_key(site, multiplier, sharers, colluding, SCATTER_SENSITIVITY)
    d = len(center)
    S, sums, rows = np.zeros((d, d)), np.zeros(d), 0
    for U in _in_ball(site, center, clip):
        S += U.T @ U
        sums += U.sum(axis=0)
        rows += len(U)
    upper = np.triu_indices(d)
    products = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0)) * S[upper]
    exact = np.concatenate([products, WEIGHT * sums, [WEIGHT * rows]])
    noisy = exact + SCATTER_SENSITIVITY * share_of(multiplier, sharers) * normal(key, exact.shape)
    return {"products": noisy[: -d - 1], "sums": noisy[-d - 1 : -1], "rows": float(noisy[-1])}


@step("maps.noisy_cells", reveals="sums")
def local_noisy_cells(
    site: Site,
    center: Matrix,
    clip: float,
    axes: Matrix,
    centres: Matrix,
    multiplier: float,
    sharers: int,
    colluding: int,
) -> dict[str, Any]:
    """Leaves the site: for each centre the sums of z and 1 / 2 over the rows closest to it, with noise; charged."""
    key = _noise_key(site, multiplier, sharers, colluding, CELLS_SENSITIVITY)
    k, r = centres.shape
    exact = np.zeros((k, r + 1))
    for U in _in_ball(site, center, clip):
        Z = in_unit_ball(U @ axes.T)  # whatever the axes are
        terms = np.column_stack([Z, np.full(len(Z), WEIGHT)])
        np.add.at(exact, closest(Z, centres[None])[:, 0], terms)
    noisy = exact + CELLS_SENSITIVITY * share_of(multiplier, sharers) * normal(key, exact.shape)
    return {"sums": noisy[:, :r], "rows": noisy[:, r]}


def _noise_key(site: Site, multiplier: float, sharers: int, colluding: int, sensitivity: float) -> bytes:
    """Charge for noise of `multiplier` times the sensitivity, of which this site adds one of so many shares.

    The charge is worth what it says: the sum is one of at least ``sharers + colluding`` sites, or the site is not in
    it; all of them were told the same multiplier and shares, or there is no sum; so those that keep their noise to
    themselves are `sharers` or more, and the variances of their shares add up to the whole one, or to more.
    """
    if not (math.isfinite(multiplier) and multiplier > 0 and sharers >= 1 and colluding >= 0):
        raise InputError(f"multiplier={multiplier!r}, sharers={sharers!r} and colluding={colluding!r} are no noise")
    if sharers > 1:
        site.hidden_among(sharers + colluding, deviation=sensitivity * share_of(multiplier, sharers))
    return site.charged(mu2=multiplier**-2, again=sharers > 1)


def share_of(multiplier: float, sharers: int) -> float:
    """Return the deviation of a site's share of the noise, in units of the sensitivity."""
    return multiplier / math.sqrt(sharers)


def _in_ball(site: Site, center: Matrix, clip: float) -> Iterator[Matrix]:
    """Yield blocks of rows drawn in to the unit ball; what is not a number stands at its centre: no reply tells."""
    if center.shape != (site.X.shape[1],) or not clip > 0:
        raise InputError(f"center must be {site.X.shape[1]} numbers, one for each column, and clip={clip!r} above 0")
    for batch in site.batches(_BLOCK_ROWS):
        with np.errstate(over="ignore", invalid="ignore"):
            yield in_unit_ball((np.asarray(batch.X, dtype=np.float64) - center) / clip)


def in_unit_ball(U: Matrix) -> Matrix:
    """Return rows drawn in to the unit ball, with room for rounding."""
    U = np.where(np.isfinite(U).all(axis=1, keepdims=True), U, 0.0)
    largest = np.maximum(np.abs(U).max(axis=1, keepdims=True, initial=0.0), 1e-300)  # no square overflows
    norms = largest * np.linalg.norm(U / largest, axis=1, keepdims=True)
    return np.asarray(U * np.minimum(1.0, (1 - 1e-9) / np.maximum(norms, 1e-300)))

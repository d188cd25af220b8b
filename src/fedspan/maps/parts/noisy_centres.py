"""Centres for a map under differential privacy: principal axes and k-means from sums with noise, and nothing else.

Rows are drawn in to a public ball: ``u = (x - center) / clip``, ``||u|| <= 1``. Two kinds of sums leave the sites, each
of terms of one row alone, so that adding or removing a row moves them by one such term:

    once:         u u' (each pair once, times sqrt 2 off the diagonal), u / 2 and 1 / 2    at most sqrt(1 + 1/4 + 1/4)
    each round:   in the cell of the closest centre z and 1 / 2, z = axes u, ||z|| <= 1    at most sqrt(1 + 1/4)

A quarter of the budget is for the first, the rest is shared alike by the rounds. The start is drawn around the mean, as
wide as the noisy variances say; a centre with too few rows is put beside one that has more. That, and all that comes
after it, is made of noisy sums and costs nothing.

Under a secure sum over at least t sites, c of which may tell what they know, each site adds normal noise of the
variance sigma^2 / (t - c): whoever drops out, the sum has at least sigma^2 that nobody knows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, SecureSum
from fedspan.federation.privacy_spent import ROW_ADDED
from fedspan.federation.site.steps import find_step
from fedspan.landmarks.parts.run_privacy import gaussian_spent, spending
from fedspan.maps.parts.map_centres import MapCentres
from fedspan.maps.parts.noisy_sums import (
    CELLS_SENSITIVITY,
    WEIGHT,
    in_unit_ball,
    local_noisy_cells,
    local_noisy_scatter,
    share_of,
)
from fedspan.privacy.mechanisms import GaussianCenters, per_column
from fedspan.sums.columns import agree_on_columns
from fedspan.sums.plausible_totals import whole

Array = NDArray[Any]
Matrix = NDArray[np.float64]

_AXES_SHARE = 0.25
#: With more columns the products are not made.
MOST_COLUMNS = 4096
#: Centres need so many rows, in deviations of their noise; new ones are so far from others, in deviations of rows.
_CLEAR, _START, _NUDGE = 2.0, 0.5, 0.2
POSITIONS = "the posted positions of the rows on the map"
UNPOSTED = "positions of rows on the map, which were not posted, should they be"
HEAD = "the numbers of rows that sites tell of their tables, which the head of a journal keeps"


@dataclass(frozen=True)
class NoisyBook:
    """How centres with noise are made.

    Attributes
    ----------
    centres, axes : int, optional
        Default: by the number of rows, as it is known with its noise, times mu, what the budget is worth. At 60,000
        rows, epsilon 8 and delta 1e-5 about 475 centres along 28 axes.
    k_means_rounds : int, default=5
    least_rows : int, default=5
        Centres of fewer are dropped, and of fewer than twice the deviation of their noise.
    """

    centres: int | None = None
    axes: int | None = None
    k_means_rounds: int = 5
    least_rows: int = 5

    def __post_init__(self) -> None:
        if self.centres is not None:
            whole_number("centres", self.centres, 1)
        if self.axes is not None:
            whole_number("axes", self.axes, 2)
        whole_number("k_means_rounds", self.k_means_rounds, 1)
        whole_number("least_rows", self.least_rows, 1)

    def sizes(self, n: float, mu: float, columns: int) -> tuple[int, int]:
        """Return numbers of centres and axes: what can be told from noise grows with n mu.

        Examples
        --------
        >>> NoisyBook().sizes(60_000, 1.67, 784), NoisyBook(centres=40).sizes(5000, 1.67, 10)
        ((475, 28), (40, 10))
        """
        worth = max(n * mu, 1.0)
        centres = min(round(1.5 * worth**0.5), round(n / 20)) if self.centres is None else self.centres
        axes = min(round(1.6 * worth**0.25), 50) if self.axes is None else self.axes
        return max(centres, 1), min(max(axes, 2), columns)


def noisy_centres(
    fed: Federation, *, privacy: GaussianCenters, book: NoisyBook | None = None, post_positions: bool = False
) -> MapCentres:
    """Return centres as `map_centres` does, from sums with noise.

    Parameters
    ----------
    privacy : GaussianCenters
    book : NoisyBook, optional
    post_positions : bool, default=False
        Whether positions will be posted, so that the record says that these are not covered.
    """
    privacy.check()
    book = book or NoisyBook()
    _sharers(fed, privacy)  # refuses before any site is asked
    columns, fed = agree_on_columns(fed)
    sharers, d = _sharers(fed, privacy), columns.count
    if d > MOST_COLUMNS:
        raise InputError(f"{d} columns are more than the {MOST_COLUMNS} of which products with noise are summed")
    rounds = book.k_means_rounds
    once = 1.0 / math.sqrt(_AXES_SHARE * privacy.mu**2)
    each = 1.0 / math.sqrt((1.0 - _AXES_SHARE) * privacy.mu**2 / rounds)
    covers = "the sums that axes and centres are made of, and so the map"
    if sharers > 1:
        parts = sharers + privacy.colluding
        covers += f", by secure sums of {parts} or more sites, at most {privacy.colluding} of which may tell its noise"
    events = {once: 1, each: rounds} if once != each else {once: 1 + rounds}
    leaves_out = (POSITIONS if post_positions else UNPOSTED, HEAD)
    spent = gaussian_spent(privacy, fed, events, (covers,), leaves_out, ROW_ADDED)

    def charged(answered: Counter[str]) -> Mapping[float, int]:
        first, then = (answered[find_step(step).id] for step in (local_noisy_scatter, local_noisy_cells))
        return {once: first, each: then} if once != each else {once: first + then}

    with spending(spent, fed, charged):
        return _from_noisy_sums(fed, privacy, book, sharers, d, once, each)


def _from_noisy_sums(
    fed: Federation, privacy: GaussianCenters, book: NoisyBook, sharers: int, d: int, once: float, each: float
) -> MapCentres:
    """Ask for the sums: products once, with the multiplier `once`, and cells in every round, with `each`."""
    center = per_column("center", privacy.center, d)
    told: dict[str, Any] = {
        "center": center,
        "clip": float(privacy.clip),
        "sharers": sharers,
        "colluding": int(privacy.colluding) if sharers > 1 else 0,
    }

    fed.log(phase="axes")
    shapes = {"products": (d * (d + 1) // 2,), "sums": (d,), "rows": ()}
    total = whole(fed.sum(local_noisy_scatter, multiplier=once, **told), **shapes)
    n = max(total["rows"] / WEIGHT, 1.0)
    mean = in_unit_ball(total["sums"][None] / WEIGHT / n)[0]
    k, r = book.sizes(n, privacy.mu, d)
    variances, W = _axes(total["products"] / n, mean, r)

    fed.log(phase="codebooks", rows=n, centres=k, axes=r)
    C = W @ mean + _START * np.sqrt(variances) * fed.rng.standard_normal((k, r))
    # What is in a sum of all sites: each part has its share, or all of it.
    deviation = CELLS_SENSITIVITY * share_of(each, sharers) * math.sqrt(len(fed.sites)) / WEIGHT
    least = max(book.least_rows, _CLEAR * deviation)
    counts = np.full(k, n / k)
    for number in fed.rounds(book.k_means_rounds):
        if number:
            C = _replaced(fed.rng, C, counts, least, np.sqrt(variances))
        cells = fed.sum(local_noisy_cells, axes=W, centres=C, multiplier=each, **told)
        cells = whole(cells, sums=(k, r), rows=(k,))
        counts = cells["rows"] / WEIGHT
        enough = counts >= least
        means = in_unit_ball(cells["sums"] / np.maximum(counts, 1.0)[:, None])
        C = np.where(enough[:, None], means, C)
        fed.log(small_centres=int((~enough).sum()))
    if not enough.any():
        raise InputError(
            f"no centre has more rows than its noise, {least:.0f}: there are too few rows for a map at "
            f"epsilon={privacy.epsilon:g}"
        )
    return _as_seen(center, float(privacy.clip), mean, W, variances, C[enough], counts[enough], n)


def _as_seen(
    center: Matrix, clip: float, mean: Matrix, W: Matrix, variances: Matrix, C: Matrix, counts: Matrix, n: float
) -> MapCentres:
    """Return centres of rows in the ball as centres of rows about their mean, in units of the spread along the axes."""
    scale = math.sqrt(max(float(variances.sum()), np.finfo(float).tiny))
    centres = (C - W @ mean) / scale
    between = (counts[:, None] * centres**2).sum(axis=0) / counts.sum()
    return MapCentres(
        mean=center + clip * mean,
        axes=W / (clip * scale),
        deviation=math.sqrt(variances[0]) / scale,
        centres=centres,
        counts=np.maximum(np.rint(counts), 1).astype(np.int64),
        within=np.maximum(variances / scale**2 - between, 0.0),
        n=max(round(n), 1),
    )


def _sharers(fed: Federation, privacy: GaussianCenters) -> int:
    """Return how many sites' shares of the noise must be all of it: those of the smallest secure sum that are honest.

    Without a secure sum every part is seen, and each site adds all of the noise.
    """
    secure = fed.policy.secure_sum
    if not isinstance(secure, SecureSum):
        if privacy.colluding:
            raise InputError(
                f"colluding={privacy.colluding} goes with secure sums (Policy(secure_sum=True)): without them each "
                "site adds all of the noise, and no other site knows any of it"
            )
        return 1
    least = secure.needed(len(fed.sites))
    if privacy.colluding >= least:
        raise InputError(
            f"colluding={privacy.colluding} must be below {least}, the fewest sites whose secure sum can be uncovered"
        )
    return least - int(privacy.colluding)


def _axes(products: Matrix, mean: Matrix, r: int) -> tuple[Matrix, Matrix]:
    """Return the largest variances (r,) and their axes (r, d), from mean products of pairs and the mean."""
    d = len(mean)
    S = np.zeros((d, d))
    upper = np.triu_indices(d)
    S[upper] = np.where(upper[0] == upper[1], 1.0, math.sqrt(0.5)) * products
    S = S + np.triu(S, 1).T - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(S)
    # Noise alone can make them negative.
    return np.maximum(values[::-1][:r], 1e-12), np.ascontiguousarray(vectors[:, ::-1][:, :r].T)


def _replaced(rng: np.random.Generator, C: Matrix, counts: Matrix, least: float, deviations: Matrix) -> Matrix:
    """Return centres, those with too few rows put beside others, drawn by their numbers of rows."""
    few = counts < least
    odds = np.where(few, 0.0, counts)
    if not few.any() or not odds.sum() > 0:
        return C
    parents = rng.choice(len(C), int(few.sum()), p=odds / odds.sum())
    moved = C.copy()
    moved[few] = C[parents] + _NUDGE * deviations * rng.standard_normal((len(parents), C.shape[1]))
    return moved

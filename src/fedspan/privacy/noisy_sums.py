"""Sums with noise: bounded rows and charged noise at the sites, and the shares of the budget at the coordinator.

Adding or removing a row moves a sum by one term, which depends on this row alone. So the sensitivity of a sum is the
largest length of a term. The steps keep their terms within it by moving rows into the unit ball.

Under a secure sum over at least t sites, c of which may collude, each site adds normal noise of the variance
sigma^2 / (t - c). Whichever sites drop out, the sum has at least sigma^2 that no attacker knows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix, Vector
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, SecureSum, Site, Total
from fedspan.federation.privacy_spent import ROW_ADDED
from fedspan.federation.site.parameters import ArrayOf, Real, Whole
from fedspan.federation.site.steps import find_step
from fedspan.privacy.mechanisms import GaussianCenters, GaussianMoments
from fedspan.privacy.noise import LARGEST_MULTIPLIER, with_noise
from fedspan.privacy.run_privacy import gaussian_spent, spending

HEAD = "the numbers of rows that sites report of their tables, which the head of a journal keeps"
BLOCK_ROWS = 1024
#: No secure sum has more sites.
_MOST_SITES = 2**20
Multiplier = Annotated[float, Real(least=1e-9, most=LARGEST_MULTIPLIER)]
#: Rows, axes and centres are multiples of this, and no longer than 1, 1 and 2. Then their products are exact in double
#: precision, in whatever order they are added up. A row's centre does not depend on where in a block the row is.
_GRID = 2.0**-25


class NoiseShare(TypedDict):
    """What all steps with noise take: its multiplier, the number of sites that share it, and of those that collude."""

    multiplier: Multiplier
    sharers: Annotated[int, Whole(1, _MOST_SITES)]
    colluding: Annotated[int, Whole(0, _MOST_SITES)]


class _Near:
    """Points no further than 2 from the origin."""

    @staticmethod
    def check(name: str, value: object) -> Matrix:
        centres = ArrayOf("float", 2, least=-2.0, most=2.0).check(name, value)
        if np.vecdot(centres, centres).max(initial=0.0) > 4.0:
            raise MessageError(f"{name} must be within 2 of the origin")
        return centres


Centres = Annotated[NDArray[np.float64], _Near()]


# At a site.


def charged_noise(
    site: Site, sensitivity: float, noise: NoiseShare
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Charge for noise of its multiplier times the sensitivity; return the function that adds this site's share of it.

    The charge is right. The sum is over at least ``sharers + colluding`` sites, or this site is not in it. All of them
    have the same multiplier and shares, or there is no sum. So `sharers` sites or more keep their noise secret, and the
    variances of their shares add up to the whole one, or to more.
    """
    multiplier, sharers = noise["multiplier"], noise["sharers"]
    if sharers > 1:
        site.hidden_among(sharers + noise["colluding"], deviation=sensitivity * share_of(multiplier, sharers))
    key = site.charged(mu2=multiplier**-2, again=sharers > 1)
    return partial(with_noise, key=key, sensitivity=sensitivity, multiplier=multiplier, sharers=sharers)


def share_of(multiplier: float, sharers: int) -> float:
    """Return the deviation of a site's share of the noise, in units of the sensitivity."""
    return multiplier / math.sqrt(sharers)


def rows_in_bounds(site: Site, center: Vector, width: Vector, box: bool) -> Iterator[Matrix]:
    """Yield blocks of ``(x - center) / width`` within the unit ball, each row independent of those beside it.

    Rows outside are shortened to it. With `box` their entries are cut to the range from -1 to 1 instead, and divided by
    the root of their number. A row that holds NaN counts as the centre, without a report.
    """
    for batch in site.batches_alone(BLOCK_ROWS):
        yield in_bounds(np.asarray(batch.X, dtype=np.float64), center, width, box)


def in_bounds(X: Matrix, center: Vector, width: Vector, box: bool) -> Matrix:
    """Return ``(x - center) / width`` within the unit ball, or within a box in it."""
    d = X.shape[1]
    if not center.shape == width.shape == (d,):
        raise InputError(f"center has the shape {center.shape}, and must be {d} numbers, one per column, as width")
    with np.errstate(over="ignore", invalid="ignore"):
        U = (X - center) / width
    return in_unit_ball(np.clip(U, -1.0, 1.0) / math.sqrt(d) if box else U)


def in_unit_ball(U: Matrix) -> Matrix:
    """Return rows, shortened to the unit ball with room for rounding."""
    U = np.where(np.isfinite(U).all(axis=1, keepdims=True), U, 0.0)
    largest = np.maximum(np.abs(U).max(axis=1, keepdims=True, initial=0.0), 1e-300)  # no square overflows
    norms = largest * np.linalg.norm(U / largest, axis=1, keepdims=True)
    return np.asarray(U * np.minimum(1.0, (1 - 1e-9) / np.maximum(norms, 1e-300)))


def on_grid(points: Matrix) -> Matrix:
    """Return points with coordinates rounded towards zero, so that none gets longer."""
    return np.asarray(np.trunc(points / _GRID) * _GRID)


# At the coordinator.


@dataclass(frozen=True)
class NoisySums:
    """Requests for sums with noise, on one account: the multiplier of each step's noise, and the number of shares."""

    sharers: int
    colluding: int
    multipliers: Mapping[str, float]

    def sum(self, fed: Federation, step: Callable[..., Any], **payload: Any) -> Total:
        """Request a sum of all sites with noise."""
        noise = {"multiplier": self._multiplier(step), "sharers": self.sharers, "colluding": self.colluding}
        return fed.sum(step, **noise, **payload)

    def deviation(self, fed: Federation, step: Callable[..., Any], sensitivity: float) -> float:
        """Return the deviation of the noise in a sum of all sites: each part has its share, or all of it."""
        return sensitivity * share_of(self._multiplier(step), self.sharers) * math.sqrt(len(fed.sites))

    def _multiplier(self, step: Callable[..., Any]) -> float:
        return self.multipliers[find_step(step).id]


@contextmanager
def noisy_sums(
    privacy: GaussianCenters | GaussianMoments,
    fed: Federation,
    plan: Mapping[Any, tuple[float, int]],
    covers: str,
    leaves_out: tuple[str, ...] = (),
) -> Iterator[NoisySums]:
    """Open the account of a block: record what it spends, and what that covers.

    Parameters
    ----------
    plan : mapping
        For each step its share of the budget's mu^2, and the number of calls that have equal parts of it.
    """
    sharers = sharers_of(privacy, fed)
    calls = {find_step(step).id: part for step, part in plan.items()}
    multipliers = {id: 1.0 / math.sqrt(share * privacy.mu**2 / count) for id, (share, count) in calls.items()}
    if sharers > 1:
        parts = sharers + privacy.colluding
        covers += f", by secure sums of {parts} or more sites, at most {privacy.colluding} of which may collude"

    def events(answered: Mapping[str, int]) -> Counter[float]:
        counted: Counter[float] = Counter()
        for id, multiplier in multipliers.items():  # two multipliers may be equal
            counted[multiplier] += answered[id]
        return counted

    whole = events({id: count for id, (_, count) in calls.items()})
    spent = gaussian_spent(privacy, fed, whole, (covers,), (*leaves_out, HEAD), ROW_ADDED)
    with spending(spent, fed, events):
        yield NoisySums(sharers, int(privacy.colluding) if sharers > 1 else 0, multipliers)


def sharers_of(privacy: GaussianCenters | GaussianMoments, fed: Federation) -> int:
    """Return the number of sites whose shares make up all of the noise: the honest ones of the smallest secure sum.

    Without a secure sum the coordinator sees every part, and each site adds all of the noise.
    """
    secure = fed.policy.secure_sum
    if not isinstance(secure, SecureSum):
        if privacy.colluding:
            raise InputError(
                f"colluding={privacy.colluding} needs secure sums (Policy(secure_sum=True)): without them each site "
                "adds all of the noise, and no other site knows any of it"
            )
        return 1
    least = secure.needed(len(fed.sites))
    if privacy.colluding >= least:
        raise InputError(
            f"colluding={privacy.colluding} must be below {least}, the fewest sites whose secure sum can be uncovered"
        )
    return least - int(privacy.colluding)

"""Centres for a map under differential privacy: principal axes and k-means from sums with noise, and nothing else.

Sites move their rows into a public ball: ``u = (x - center) / clip``, ``||u|| <= 1``. Two kinds of sums leave the
sites. Each term depends on one row only, so that adding or removing a row moves a sum by one term:

    once:         u u' (each pair once, times sqrt 2 off the diagonal), u / 2 and 1 / 2    at most sqrt(1 + 1/4 + 1/4)
    each round:   in the cell of the closest centre z and 1 / 2, z = axes u, ||z|| <= 1    at most sqrt(1 + 1/4)

The bounds hold for any rows and any request: the site itself shortens rows, even along axes that are not orthonormal.

A quarter of the budget is for the first, and the rounds have equal parts of the rest. The start is drawn around the
mean, with the noisy variances; a centre with too few rows moves beside one that has more. All of this is made of noisy
sums, and costs nothing more.

Under a secure sum over at least t sites, c of which may collude, each site adds normal noise of the variance
sigma^2 / (t - c): whichever sites drop out, the sum has at least sigma^2 that no attacker knows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import whole_number
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, SecureSum, Site, step
from fedspan.federation.privacy_spent import ROW_ADDED
from fedspan.federation.site.parameters import ArrayOf, Matrix, Positive, Vector, Whole
from fedspan.federation.site.steps import find_step
from fedspan.landmarks.parts.run_privacy import gaussian_spent, spending
from fedspan.linalg.kernels.nearest_centres import closest
from fedspan.maps.parts.map_centres import MapCentres
from fedspan.privacy.mechanisms import GaussianCenters, per_column
from fedspan.privacy.noise import normal
from fedspan.sums.columns import agree_on_columns
from fedspan.sums.plausible_totals import whole

#: The weight of a row's sum, and of its count, beside its products or its sum: more weight is more noise on the rest.
WEIGHT = 0.5
SCATTER_SENSITIVITY = math.sqrt(1 + 2 * WEIGHT**2)
CELLS_SENSITIVITY = math.sqrt(1 + WEIGHT**2)
_AXES_SHARE = 0.25
#: The most columns whose products are summed.
MOST_COLUMNS = 4096
#: The fewest rows of a centre, in deviations of its noise; the spread of the start, and the distance of a new centre
#: from its parent, in deviations of rows.
_CLEAR, _START, _NUDGE = 2.0, 0.5, 0.2
_BLOCK_ROWS = 1024
POSITIONS = "the posted positions of the rows on the map"
UNPOSTED = "positions of rows on the map, if they are posted later"
HEAD = "the numbers of rows that sites report of their tables, which the head of a journal keeps"
#: No secure sum has more sites.
_MOST_SITES = 2**20
Sharers = Annotated[int, Whole(1, _MOST_SITES)]
Colluding = Annotated[int, Whole(0, _MOST_SITES)]
#: Rows, axes and centres are multiples of this, and no longer than 1, 1 and 2. Then their products are exact in double
#: precision, in whatever order they are added up: a row's centre does not depend on where in a block the row is.
_GRID = 2.0**-25


class _Orthonormal:
    """Rows of unit length, orthogonal to each other."""

    @staticmethod
    def check(name: str, value: object) -> NDArray[np.float64]:
        axes = ArrayOf("float", 2, least=-1.001, most=1.001).check(name, value)
        if np.abs(axes @ axes.T - np.eye(len(axes))).max(initial=0.0) > 1e-6:
            raise MessageError(f"{name} must be rows of unit length, orthogonal to each other")
        return axes


class _Centres:
    """Points no further than 2 from the origin."""

    @staticmethod
    def check(name: str, value: object) -> NDArray[np.float64]:
        centres = ArrayOf("float", 2, least=-2.0, most=2.0).check(name, value)
        if np.vecdot(centres, centres).max(initial=0.0) > 4.0:
            raise MessageError(f"{name} must be within 2 of the origin")
        return centres


@step("maps.noisy_scatter", reveals="sums")
def local_noisy_scatter(
    site: Site, center: Vector, clip: Positive, multiplier: Positive, sharers: Sharers, colluding: Colluding
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
    center: Vector,
    clip: Positive,
    axes: Annotated[NDArray[np.float64], _Orthonormal()],
    centres: Annotated[NDArray[np.float64], _Centres()],
    multiplier: Positive,
    sharers: Sharers,
    colluding: Colluding,
) -> dict[str, Any]:
    """Leaves the site: for each centre the sums of z and 1 / 2 over the rows closest to it, with noise; charged."""
    key = _noise_key(site, multiplier, sharers, colluding, CELLS_SENSITIVITY)
    k, r = centres.shape
    exact = np.zeros((k, r + 1))
    axes, centres = _on_grid(axes), _on_grid(centres)
    for U in _in_ball(site, center, clip):
        Z = _on_grid(in_unit_ball(_on_grid(U) @ axes.T))
        terms = np.column_stack([Z, np.full(len(Z), WEIGHT)])
        np.add.at(exact, closest(Z, centres[None])[:, 0], terms)
    noisy = exact + CELLS_SENSITIVITY * share_of(multiplier, sharers) * normal(key, exact.shape)
    return {"sums": noisy[:, :r], "rows": noisy[:, r]}


def _noise_key(site: Site, multiplier: float, sharers: int, colluding: int, sensitivity: float) -> bytes:
    """Charge for noise of `multiplier` times the sensitivity, of which this site adds one of `sharers` shares.

    The charge is right. The sum is over at least ``sharers + colluding`` sites, or this site is not in it. All of them
    have the same multiplier and shares, or there is no sum. So `sharers` sites or more keep their noise secret, and the
    variances of their shares add up to the whole one, or to more.
    """
    if sharers > 1:
        site.hidden_among(sharers + colluding, deviation=sensitivity * share_of(multiplier, sharers))
    return site.charged(mu2=multiplier**-2, again=sharers > 1)


def share_of(multiplier: float, sharers: int) -> float:
    """Return the deviation of a site's share of the noise, in units of the sensitivity."""
    return multiplier / math.sqrt(sharers)


def _in_ball(site: Site, center: Vector, clip: float) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of rows within the unit ball; rows that are not finite count as its centre, without a report."""
    if center.shape != (site.X.shape[1],):
        raise InputError(f"center has the shape {center.shape}, and must be {site.X.shape[1]} numbers, one per column")
    for batch in site.batches(_BLOCK_ROWS):
        with np.errstate(over="ignore", invalid="ignore"):
            yield in_unit_ball((np.asarray(batch.X, dtype=np.float64) - center) / clip)


def _on_grid(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points with coordinates rounded towards zero, so that none gets longer."""
    return np.asarray(np.trunc(points / _GRID) * _GRID)


def in_unit_ball(U: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows, shortened to the unit ball with room for rounding."""
    U = np.where(np.isfinite(U).all(axis=1, keepdims=True), U, 0.0)
    largest = np.maximum(np.abs(U).max(axis=1, keepdims=True, initial=0.0), 1e-300)  # no square overflows
    norms = largest * np.linalg.norm(U / largest, axis=1, keepdims=True)
    return np.asarray(U * np.minimum(1.0, (1 - 1e-9) / np.maximum(norms, 1e-300)))


@dataclass(frozen=True)
class NoisyBook:
    """Settings of centres with noise.

    Attributes
    ----------
    centres, axes : int, optional
        Default: by the noisy number of rows times mu, what the budget is worth. At 60,000 rows, epsilon 8 and delta
        1e-5 about 475 centres along 28 axes.
    k_means_rounds : int, default=5
    least_rows : int, default=5
        Centres of fewer are dropped, and of fewer than twice the deviation of their noise.
    """

    centres: int | None = None
    axes: int | None = None
    k_means_rounds: int = 5
    least_rows: int = 5

    def __post_init__(self) -> None:
        whole_number("centres", 1 if self.centres is None else self.centres, 1)
        whole_number("axes", 2 if self.axes is None else self.axes, 2)
        whole_number("k_means_rounds", self.k_means_rounds, 1)
        whole_number("least_rows", self.least_rows, 1)

    def sizes(self, n: float, mu: float, columns: int) -> tuple[int, int]:
        """Return numbers of centres and axes, which grow with n mu.

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
        Whether positions will be posted: the record states that the noise does not cover them.
    """
    privacy.check()
    book = book or NoisyBook()
    _sharers(fed, privacy)  # refuse before any site is contacted
    columns, fed = agree_on_columns(fed)
    sharers, d = _sharers(fed, privacy), columns.count
    if d > MOST_COLUMNS:
        raise InputError(f"{d} columns are too many for sums of their products with noise: use at most {MOST_COLUMNS}")
    once = 1.0 / math.sqrt(_AXES_SHARE * privacy.mu**2)
    each = 1.0 / math.sqrt((1.0 - _AXES_SHARE) * privacy.mu**2 / book.k_means_rounds)
    covers = "the sums that axes and centres are made of, and so the map"
    if sharers > 1:
        parts = sharers + privacy.colluding
        covers += f", by secure sums of {parts} or more sites, at most {privacy.colluding} of which may collude"
    leaves_out = (POSITIONS if post_positions else UNPOSTED, HEAD)

    def events(scatters: int, cells: int) -> Counter[float]:
        counted = Counter({once: scatters})
        counted[each] += cells  # `once` and `each` may be equal
        return counted

    def charged(answered: Counter[str]) -> Counter[float]:
        return events(*(answered[find_step(step).id] for step in (local_noisy_scatter, local_noisy_cells)))

    spent = gaussian_spent(privacy, fed, events(1, book.k_means_rounds), (covers,), leaves_out, ROW_ADDED)
    with spending(spent, fed, charged):
        return _from_noisy_sums(fed, privacy, book, sharers, d, once, each)


def _from_noisy_sums(
    fed: Federation, privacy: GaussianCenters, book: NoisyBook, sharers: int, d: int, once: float, each: float
) -> MapCentres:
    """Request the sums: products once, with the multiplier `once`, and cells in every round, with `each`."""
    center, clip = per_column("center", privacy.center, d), float(privacy.clip)
    colluding = int(privacy.colluding) if sharers > 1 else 0
    payload: dict[str, Any] = {"center": center, "clip": clip, "sharers": sharers, "colluding": colluding}

    fed.log(phase="axes")
    total = fed.sum(local_noisy_scatter, multiplier=once, **payload)
    whole(total, products=(d * (d + 1) // 2,), sums=(d,), rows=())
    n = max(total["rows"] / WEIGHT, 1.0)
    mean = in_unit_ball(total["sums"][None] / WEIGHT / n)[0]
    k, r = book.sizes(n, privacy.mu, d)
    variances, W = _axes(total["products"] / n, mean, r)

    fed.log(phase="codebooks", rows=n, centres=k, axes=r)
    C = W @ mean + _START * np.sqrt(variances) * fed.rng.standard_normal((k, r))
    # Of the noise in a sum of all sites: each part has its share, or all of it.
    deviation = CELLS_SENSITIVITY * share_of(each, sharers) * math.sqrt(len(fed.sites)) / WEIGHT
    least = max(book.least_rows, _CLEAR * deviation)
    counts = np.full(k, n / k)
    for number in fed.rounds(book.k_means_rounds):
        if number:
            C = _replaced(fed.rng, C, counts, least, np.sqrt(variances))
        C = 2.0 * in_unit_ball(C / 2.0)  # no row is further than 1 from the origin
        cells = fed.sum(local_noisy_cells, axes=W, centres=C, multiplier=each, **payload)
        whole(cells, sums=(k, r), rows=(k,))
        counts = cells["rows"] / WEIGHT
        enough = counts >= least
        means = in_unit_ball(cells["sums"] / np.maximum(counts, 1.0)[:, None])
        C = np.where(enough[:, None], means, C)
        fed.log(small_centres=int((~enough).sum()))
    if not enough.any():
        raise InputError(
            f"no centre has more rows than its noise, {least:.0f}: a map at epsilon={privacy.epsilon:g} needs more "
            "rows or a larger epsilon"
        )

    # From the ball to rows about their mean, in units of the spread along the axes.
    scale = math.sqrt(max(float(variances.sum()), np.finfo(float).tiny))
    centres, counts = (C[enough] - W @ mean) / scale, counts[enough]
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


def _axes(products: Matrix, mean: Vector, r: int) -> tuple[Vector, Matrix]:
    """Return the largest variances (r,) and their axes (r, d), from mean products of pairs and the mean."""
    d = len(mean)
    S = np.zeros((d, d))
    upper = np.triu_indices(d)
    S[upper] = np.where(upper[0] == upper[1], 1.0, math.sqrt(0.5)) * products
    S = S + np.triu(S, 1).T - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(S)
    # Noise can make variances negative.
    return np.maximum(values[::-1][:r], 1e-12), np.ascontiguousarray(vectors[:, ::-1][:, :r].T)


def _replaced(rng: np.random.Generator, C: Matrix, counts: Vector, least: float, deviations: Vector) -> Matrix:
    """Return centres; those with too few rows move beside others, drawn by their numbers of rows."""
    few = counts < least
    odds = np.where(few, 0.0, counts)
    if not few.any() or not odds.sum() > 0:
        return C
    parents = rng.choice(len(C), int(few.sum()), p=odds / odds.sum())
    moved = C.copy()
    moved[few] = C[parents] + _NUDGE * deviations * rng.standard_normal((len(parents), C.shape[1]))
    return moved

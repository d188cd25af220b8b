"""Centres for a map under differential privacy: principal axes and k-means from sums with noise, and nothing else.

Sites move their rows into a public ball: ``u = (x - center) / clip``, ``||u|| <= 1``. Two kinds of sums leave the
sites. Each term depends on one row only, so that adding or removing a row moves a sum by one term:

    once:         u u' (each pair once, times sqrt 2 off the diagonal), u / 2 and 1 / 2    at most sqrt(1 + 1/4 + 1/4)
    each round:   in the cell of the closest centre z and 1 / 2, z = axes u, ||z|| <= 1    at most sqrt(1 + 1/4)

The bounds hold for any rows and any request: the site itself shortens rows, even along axes that are not orthonormal.

A quarter of the budget is for the first, and the rounds have equal parts of the rest. The start is drawn around the
mean, with the noisy variances; a centre with too few rows moves beside one that has more. All of this is made of noisy
sums, and costs nothing more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import whole_number
from fedspan.clustering.noisy_k_means import SENSITIVITY as CELLS_SENSITIVITY
from fedspan.clustering.noisy_k_means import beside_others
from fedspan.errors import InputError, MessageError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import ArrayOf, Matrix, Positive, Vector
from fedspan.linalg.kernels.nearest_centres import closest
from fedspan.maps.parts.map_centres import MapCentres
from fedspan.pca.noisy_covariance import WEIGHT, about_mean, local_noisy_gram, refuse_many_columns
from fedspan.privacy.mechanisms import GaussianCenters, per_column
from fedspan.privacy.noisy_sums import (
    Centres,
    NoiseShare,
    NoisySums,
    charged_noise,
    in_unit_ball,
    noisy_sums,
    on_grid,
    rows_in_bounds,
    sharers_of,
)
from fedspan.sums.columns import agree_on_columns
from fedspan.sums.plausible_totals import whole

_AXES_SHARE = 0.25
#: The fewest rows of a centre, in deviations of its noise; the spread of the start, in deviations of rows.
_CLEAR, _START = 2.0, 0.5
POSITIONS = "the posted positions of the rows on the map"
UNPOSTED = "positions of rows on the map, if they are posted later"


class _Orthonormal:
    """Rows of unit length, orthogonal to each other."""

    @staticmethod
    def check(name: str, value: object) -> NDArray[np.float64]:
        axes = ArrayOf("float", 2, least=-1.001, most=1.001).check(name, value)
        # More rows than columns are never orthogonal, and their products would take far more memory than they do.
        if len(axes) > axes.shape[1] or np.abs(axes @ axes.T - np.eye(len(axes))).max(initial=0.0) > 1e-6:
            raise MessageError(f"{name} must be rows of unit length, orthogonal to each other")
        return axes


@step("maps.noisy_scatter", reveals="sums", noisy=True)
def local_noisy_scatter(site: Site, center: Vector, clip: Positive, **noise: Unpack[NoiseShare]) -> dict[str, Any]:
    """Leaves the site: the sums of u u', u / 2 and 1 / 2 over its rows, with its share of the noise; charged."""
    return local_noisy_gram(site, center, np.full(len(center), clip), False, **noise)


@step("maps.noisy_cells", reveals="sums", noisy=True)
def local_noisy_cells(
    site: Site,
    center: Vector,
    clip: Positive,
    axes: Annotated[NDArray[np.float64], _Orthonormal()],
    centres: Centres,
    **noise: Unpack[NoiseShare],
) -> dict[str, Any]:
    """Leaves the site: for each centre the sums of z and 1 / 2 over the rows closest to it, with noise; charged."""
    noisy = charged_noise(site, CELLS_SENSITIVITY, noise)
    k, r = centres.shape
    exact = np.zeros((k, r + 1))
    axes, centres = on_grid(axes), on_grid(centres)
    for U in rows_in_bounds(site, center, np.full(len(center), clip), box=False):
        Z = on_grid(in_unit_ball(on_grid(U) @ axes.T))
        terms = np.column_stack([Z, np.full(len(Z), WEIGHT)])
        np.add.at(exact, closest(Z, centres[None])[:, 0], terms)
    found = noisy(exact)
    return {"sums": found[:, :r], "rows": found[:, r]}


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
    sharers_of(privacy, fed)  # refuse before any site is contacted
    columns, fed = agree_on_columns(fed)
    refuse_many_columns(columns.count)
    plan = {local_noisy_scatter: (_AXES_SHARE, 1), local_noisy_cells: (1.0 - _AXES_SHARE, book.k_means_rounds)}
    covers = "the sums that axes and centres are made of, and so the map"
    with noisy_sums(privacy, fed, plan, covers, (POSITIONS if post_positions else UNPOSTED,)) as noisy:
        return _from_noisy_sums(fed, privacy, book, noisy, columns.count)


def _from_noisy_sums(
    fed: Federation, privacy: GaussianCenters, book: NoisyBook, noisy: NoisySums, d: int
) -> MapCentres:
    """Request the sums: products once, and cells in every round."""
    center, clip = per_column("center", privacy.center, d), float(privacy.clip)

    fed.log(phase="axes")
    total = noisy.sum(fed, local_noisy_scatter, center=center, clip=clip)
    whole(total, products=(d * (d + 1) // 2,), sums=(d,), rows=())
    n = max(total["rows"] / WEIGHT, 1.0)
    mean = in_unit_ball(total["sums"][None] / WEIGHT / n)[0]
    k, r = book.sizes(n, privacy.mu, d)
    variances, W = _axes(total["products"] / n, mean, r)

    fed.log(phase="codebooks", rows=n, centres=k, axes=r)
    C = W @ mean + _START * np.sqrt(variances) * fed.rng.standard_normal((k, r))
    least = max(book.least_rows, _CLEAR * noisy.deviation(fed, local_noisy_cells, CELLS_SENSITIVITY) / WEIGHT)
    counts = np.full(k, n / k)
    for number in fed.rounds(book.k_means_rounds):
        if number:
            C = beside_others(fed.rng, C, counts, least, np.sqrt(variances))
        C = 2.0 * in_unit_ball(C / 2.0)  # no row is further than 1 from the origin
        cells = noisy.sum(fed, local_noisy_cells, center=center, clip=clip, axes=W, centres=C)
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


def _axes(products: Matrix, mean: Vector, r: int) -> tuple[Vector, Matrix]:
    """Return the largest variances (r,) and their axes (r, d), from mean products of pairs and the mean."""
    values, vectors = np.linalg.eigh(about_mean(products, mean))
    # Noise can make variances negative.
    return np.maximum(values[::-1][:r], 1e-12), np.ascontiguousarray(vectors[:, ::-1][:, :r].T)

"""k-means under differential privacy: Lloyd's algorithm by sums with noise, for a fixed number of rounds.

Sites move their rows into the unit ball by one length for all columns: z. Adding or removing a row moves a round's
reply by its term, which is for any row and any centres at most

    in the cell of the closest centre z and 1 / 2      sqrt(1 + 1/4)

long. The closest centre is found by exact arithmetic (`on_grid`), so that a row's cell depends on this row alone.

A part of the budget is for means and variances of the columns (`noisy_moments`): the coordinator draws the start from
these. The rounds have equal parts of the rest. The first half of them has up to three times as many centres, which the
coordinator then clusters by their noisy counts. A centre with too few rows moves beside one that has more.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from fedspan.clustering.parts.rows_by_centre import Clusters
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix, PositiveVector, Vector
from fedspan.linalg.kernels.nearest_centres import closest
from fedspan.linalg.small_clusters import k_means
from fedspan.privacy.mechanisms import Bounds, GaussianMoments
from fedspan.privacy.noisy_sums import (
    Centres,
    NoiseShare,
    NoisySums,
    charged_noise,
    in_unit_ball,
    noisy_sums,
    on_grid,
    rows_in_bounds,
)
from fedspan.sums.moments import Moments
from fedspan.sums.noisy_moments import local_noisy_sums, moments_within
from fedspan.sums.plausible_totals import whole

#: The weight of a row's count beside its sum: more weight is more noise on the rest.
WEIGHT = 0.5
SENSITIVITY = math.sqrt(1 + WEIGHT**2)
#: The most rounds: more rounds have more noise each.
ROUNDS = 7
_START_SHARE = 0.2
#: Centres of the first rounds for each one that is wanted, where rows are enough; draws for each centre of the start;
#: the fewest rows of a centre, in deviations of its noise; the distance of a new centre from its parent, in deviations
#: of rows.
_CANDIDATES, _DRAWS, _CLEAR, _NUDGE = 3, 20, 2.0, 0.2
LABELS = "the posted labels of the rows"
UNPOSTED = "labels of rows, if they are posted later"


@step("clustering.noisy_cells", reveals="sums", noisy=True)
def local_noisy_cells(
    site: Site, center: Vector, width: PositiveVector, box: bool, centres: Centres, **noise: Unpack[NoiseShare]
) -> dict[str, Any]:
    """Leaves the site: for each centre the sums of z and 1 / 2 over the rows closest to it, with noise; charged."""
    noisy = charged_noise(site, SENSITIVITY, noise)
    k, d = centres.shape
    exact, centres = np.zeros((k, d + 1)), on_grid(centres)
    ratio = width / _length(width)  # from a length for each column to the same for all
    for U in rows_in_bounds(site, center, width, box):
        Z = on_grid(in_unit_ball(U * ratio))
        np.add.at(exact, closest(Z, centres[None])[:, 0], np.column_stack([Z, np.full(len(Z), WEIGHT)]))
    found = noisy(exact)
    return {"sums": found[:, :d], "rows": found[:, d]}


def noisy_k_means(
    fed: Federation,
    *,
    n_clusters: int,
    privacy: GaussianMoments,
    n_columns: int,
    init: Matrix | None = None,
    max_iter: int = ROUNDS,
    post_labels: bool = False,
) -> Clusters:
    """Return k centres of the rows within public bounds.

    Parameters
    ----------
    n_clusters : int
    privacy : GaussianMoments
    n_columns : int
    init : array (k, d), optional
        A public start; default: drawn with noisy means and variances.
    max_iter : int, default=7
        The number of rounds, at most 7, all of which are made.
    post_labels : bool, default=False
        Whether labels will be posted: the record states that the noise does not cover them.
    """
    privacy.check()
    rounds = min(max_iter, ROUNDS)
    plan = {local_noisy_sums: (_START_SHARE, 1), local_noisy_cells: (1.0 - _START_SHARE, rounds)}
    leaves_out = (LABELS if post_labels else UNPOSTED,)
    with noisy_sums(privacy, fed, plan, "all sums, and so the centres", leaves_out) as noisy:
        bounds = privacy.bounds(n_columns)
        return clusters_within(noisy, fed, bounds, moments_within(noisy, fed, bounds), n_clusters, rounds, init)


def fewest_rows(noisy: NoisySums, fed: Federation) -> float:
    """Return the fewest rows of a centre whose mean its noise does not hide."""
    return _CLEAR * noisy.deviation(fed, local_noisy_cells, SENSITIVITY) / WEIGHT


def clusters_within(
    noisy: NoisySums, fed: Federation, bounds: Bounds, found: Moments, k: int, rounds: int, init: Matrix | None = None
) -> Clusters:
    """Return k centres of the rows within `bounds`, whose moments are known, within an account that is open."""
    d, length = len(bounds.center), _length(bounds.unit)
    mean, deviations = (found.mean - bounds.center) / length, np.sqrt(found.variance) / length
    least = fewest_rows(noisy, fed)
    size = k
    if init is None:
        size = max(k, min(_CANDIDATES * k, int(found.n / (4 * least)))) if rounds > 1 else k
        C = k_means(mean + deviations * fed.rng.standard_normal((_DRAWS * size, d)), size, fed.rng, starts=1).centres
    else:
        C = (init - bounds.center) / length
    counts, enough = np.zeros(size), np.zeros(size, dtype=np.bool_)
    within = {"center": bounds.center, "width": bounds.width, "box": bounds.box}
    for number in fed.rounds(rounds):
        if number == rounds // 2 and size > k:
            C = k_means(C, k, fed.rng, np.where(enough, counts, 1e-9)).centres
        elif number:
            C = beside_others(fed.rng, C, counts, least, deviations)
        C = 2.0 * in_unit_ball(C / 2.0)  # no row is further than 1 from the origin
        cells = noisy.sum(fed, local_noisy_cells, centres=C, **within)
        whole(cells, sums=C.shape, rows=C.shape[:1])
        counts = cells["rows"] / WEIGHT
        enough = counts >= least
        C = np.where(enough[:, None], in_unit_ball(cells["sums"] / np.maximum(counts, 1.0)[:, None]), C)
        fed.log(small_centres=int((~enough).sum()))
    if not enough.any():
        raise InputError(
            f"no centre has more rows than its noise, {least:.0f}: use fewer centres, more rows or a larger epsilon"
        )
    between = float((np.maximum(counts, 0.0)[:, None] * (C - mean) ** 2).sum()) * length**2
    inertia = max(found.n * float(found.variance.sum()) - between, 0.0)
    sizes = np.maximum(np.rint(counts), 0).astype(np.int64)
    return Clusters(bounds.center + length * C, sizes, inertia, rounds)


def beside_others(rng: np.random.Generator, C: Matrix, counts: Vector, least: float, deviations: Vector) -> Matrix:
    """Return centres; those with too few rows move beside others, drawn by their numbers of rows."""
    few = counts < least
    odds = np.where(few, 0.0, counts)
    if not few.any() or not odds.sum() > 0:
        return C
    parents = rng.choice(len(C), int(few.sum()), p=odds / odds.sum())
    moved = C.copy()
    moved[few] = C[parents] + _NUDGE * deviations * rng.standard_normal((len(parents), C.shape[1]))
    return moved


def _length(widths: Vector) -> float:
    """Return the root mean square of lengths, within which all rows are of the unit ball."""
    return float(np.linalg.norm(widths)) / math.sqrt(len(widths))

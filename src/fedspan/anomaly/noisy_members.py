"""Detectors under differential privacy: leaf counts, centres and ranks of scores from sums with noise, on one account.

*Trees.* A row is in one leaf of each of T trees: adding or removing it moves their counts by sqrt(T). A path ends where
the subsample has one row. The subsample is so small that one of its rows stands for more rows than the noise of a leaf.
Cuts are drawn within two deviations of the noisy means.

*Centres.* Rows in units of noisy deviations are drawn in to a ball of twice their root mean square length, and
clustered as `noisy_k_means` does. There are fewer centres than without noise: each needs more rows than its noise.

*Ranks.* Two noisy quantiles of each member's training scores, between and beyond which ranks are interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Unpack

import numpy as np

from fedspan.anomaly.parts.isolation_trees import Features, IsolationCounts, check_trees, counted_leaves, grown_trees
from fedspan.checks import real_number
from fedspan.clustering.noisy_k_means import clusters_within, fewest_rows, local_noisy_cells
from fedspan.clustering.parts.rows_by_centre import Clusters
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.pca.noisy_covariance import local_noisy_gram
from fedspan.privacy.mechanisms import Bounds, GaussianMoments, check_moments
from fedspan.privacy.noisy_sums import BLOCK_ROWS, NoiseShare, NoisySums, charged_noise, noisy_sums
from fedspan.sums.moments import Moments
from fedspan.sums.noisy_moments import local_noisy_sums, moments_within
from fedspan.sums.noisy_quantiles import ROUNDS, local_noisy_counts
from fedspan.sums.noisy_quantiles import search as noisy_search
from fedspan.sums.plausible_totals import whole
from fedspan.sums.row_blocks import n_columns
from fedspan.sums.row_transforms import standardize

#: The parts of the budget: for counts of scores, of the rest for moments, and of what is left for each member.
_SCORES, _MOMENTS = 0.25, 0.2
_CENTRES, _LEAVES = 1.0, 1.0
#: The most centres; rounds of k-means; the fewest rows of a centre, in those that its noise hides; the radius of the
#: ball that rows are drawn in to, in roots of the number of columns.
_MOST_CENTRES = 60
_CELL_ROUNDS, _ROWS_OVER_NOISE, _RADIUS = 3, 4.0, 2.0
#: Cuts are drawn within this number of deviations from the mean, and up to as much beyond. In a normal column these are
#: the 0.02 and 0.98 quantiles.
_BULK = 2.05
#: A row of the subsample stands for at least this part of the deviation of the noise of a leaf.
_LEAF_NOISE = 0.5
#: The largest rank of a member's score that counts in the search for the threshold: 1,000 widths beyond its quantile.
LARGEST_RANK = 10.0


@step("anomaly.noisy_leaf_counts", reveals="sums", noisy=True)
def local_noisy_leaves(site: Site, features: Features, cuts: Matrix, **noise: Unpack[NoiseShare]) -> dict[str, Any]:
    """Leaves the site: the number of its rows in each leaf of each tree, with noise; charged."""
    check_trees(features, cuts, n_columns(site))
    noisy = charged_noise(site, math.sqrt(len(cuts)), noise)
    alone = (np.asarray(batch.X, dtype=np.float64) for batch in site.batches_alone(BLOCK_ROWS))
    return {"counts": noisy(counted_leaves(alone, features, cuts).astype(np.float64))}


def plan_of(members: tuple[str, ...], searches: int) -> Mapping[Any, tuple[float, int]]:
    """Return the part of the budget of each step, and the number of its calls."""
    weights = {"centers": _CENTRES, "isolation": _LEAVES, "mahalanobis": 0.0}
    total = sum(weights[name] for name in members)
    moments = (1.0 - _SCORES) * (_MOMENTS if total else 1.0)
    if total and "mahalanobis" in members:
        moments = (1.0 - _SCORES) / (1.0 + total)
    rest = 1.0 - _SCORES - moments
    plan: dict[Any, tuple[float, int]] = {
        local_noisy_gram if "mahalanobis" in members else local_noisy_sums: (moments, 1),
        local_noisy_counts: (_SCORES, searches * ROUNDS),
    }
    if "centers" in members:
        plan[local_noisy_cells] = (rest * _CENTRES / total, _CELL_ROUNDS)
    if "isolation" in members:
        plan[local_noisy_leaves] = (rest * _LEAVES / total, 1)
    return plan


def open_account(
    privacy: GaussianMoments | None, fed: Federation, members: tuple[str, ...], searches: int = 1
) -> AbstractContextManager[NoisySums | None]:
    """Open the account for sums with noise, if `privacy` is wanted."""
    if privacy is None:
        return nullcontext()
    return noisy_sums(privacy, fed, plan_of(members, searches), "all sums, and so model and threshold")


def check_privacy(privacy: Any, quantile: float, aggregator: Any = None, least_rows: int = 1) -> None:
    """Refuse parameters that do not go with noise."""
    check_moments(privacy, aggregator)
    if privacy is not None:
        real_number("quantile", quantile, above=0, below=1, why=" with privacy=...")
        if least_rows != 1:
            raise InputError(f"least_rows={least_rows} has no effect with privacy=...: leave it at 1")


def noisy_columns(noisy: NoisySums, fed: Federation, bounds: Bounds) -> Moments:
    """Return moments of the rows within public bounds; a column whose variance noise hides counts by its bounds."""
    found = moments_within(noisy, fed, bounds)
    return Moments(found.n, found.mean, np.where(found.variance > 0, found.variance, bounds.width**2), found.sites)


def noisy_isolation_counts(
    fed: Federation, *, privacy: GaussianMoments, n_columns: int, n_trees: int = 100, depth: int = 8
) -> IsolationCounts:
    """Draw trees around noisy means, and count the rows of all sites in their leaves with noise."""
    privacy.check()
    plan = {local_noisy_sums: (_MOMENTS, 1), local_noisy_leaves: (1.0 - _MOMENTS, 1)}
    with noisy_sums(privacy, fed, plan, "all sums, and so trees and counts") as noisy:
        found = noisy_columns(noisy, fed, privacy.bounds(n_columns))
        return leaves_within(noisy, fed, found.n, found.mean, np.sqrt(found.variance), n_trees=n_trees, depth=depth)


def leaves_within(
    noisy: NoisySums, fed: Federation, n: int, mean: Vector, scale: Vector, *, n_trees: int, depth: int
) -> IsolationCounts:
    """Return trees over the bulk of n rows, and noisy counts of their leaves, within an account that is open."""
    low, high = mean - _BULK * scale, mean + _BULK * scale
    features, cuts = grown_trees(low, high, n_trees=n_trees, depth=depth, rng=fed.rng)
    total = noisy.sum(fed, local_noisy_leaves, features=features, cuts=cuts)
    whole(total, counts=(n_trees, 2**depth))
    return IsolationCounts(features, cuts, total["counts"], n)


def leaf_noise(noisy: NoisySums, fed: Federation, n_trees: int) -> float:
    """Return the deviation of the noise in the count of a leaf."""
    return noisy.deviation(fed, local_noisy_leaves, math.sqrt(n_trees))


def clear_subsample(subsample: int, n: int, noise: float) -> int:
    """Return the largest subsample, up to the wanted one, of whose rows each stands for more than the noise.

    Examples
    --------
    >>> clear_subsample(256, 10_000, 10.0), clear_subsample(256, 10_000, 200.0)
    (256, 100)
    """
    return max(2, min(subsample, int(n / (_LEAF_NOISE * noise))))


def noisy_centers(
    noisy: NoisySums,
    fed: Federation,
    *,
    n: int,
    mean: Vector,
    scale: Vector | None,
    variance: Vector,
    n_centers: int | None,
    most: int,
) -> Clusters:
    """Return centres of standardised rows, whose columns have the given `variance`.

    Of ``None`` there are as many as have more rows than their noise, up to `most`.
    """
    standard = fed.apply(standardize, mean=mean, scale=scale, double=True)
    few = int(np.clip(n / (_ROWS_OVER_NOISE * fewest_rows(noisy, fed)), 1, min(most, _MOST_CENTRES)))
    origin = np.zeros(len(mean))
    ball = Bounds(origin, np.full(len(mean), _RADIUS * math.sqrt(float(variance.sum()))), False)
    return clusters_within(
        noisy, standard, ball, Moments(n, origin, variance, fed.sites), n_centers or few, _CELL_ROUNDS
    )


def threshold_search(noisy: NoisySums, most: float, level: float) -> Callable[..., Vector]:
    """Return the search for the quantile `level` of scores between 0 and `most`."""
    return partial(noisy_search, noisy, low=np.zeros(1), high=np.array([most]), level=level)


def noisy_ranks(
    noisy: NoisySums, scored: Federation, most: Vector, levels: tuple[float, float]
) -> tuple[Vector, Vector]:
    """Return two quantiles (m,) of each member's scores between 0 and `most` (m,)."""
    low = np.zeros(len(most))
    middle, high = (noisy_search(noisy, scored, low=low, high=most, level=level) for level in levels)
    return middle, np.maximum(high, middle)

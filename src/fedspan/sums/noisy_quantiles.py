"""Quantiles under differential privacy: a search between public bounds, by counts with noise.

In every round sites count their values in equal parts of an interval of each column, below and above it. A row adds 1
to one count of each of d columns. So adding or removing one moves the reply by sqrt(d), whatever the intervals are. The
rounds have equal parts of the budget. The part in which the noisy shares pass the level is the next interval.

Where transforms stand in front, each row goes through them by itself (`Site.batches_alone`): no row can move another
one across an edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from fedspan.checks import real_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.privacy.mechanisms import GaussianMoments
from fedspan.privacy.noisy_sums import BLOCK_ROWS, NoiseShare, NoisySums, charged_noise, noisy_sums
from fedspan.sums.plausible_totals import whole

_PARTS = 8
#: Rounds, after which an interval is 1 / 32,768 of the first one.
ROUNDS = 5


@step("sums.noisy_counts", reveals="sums", noisy=True)
def local_noisy_counts(site: Site, low: Vector, high: Vector, **noise: Unpack[NoiseShare]) -> dict[str, Any]:
    """Leaves the site: the number of its values up to `low`, in each part, and above `high`, with noise; charged."""
    edges = _edges(low, high)
    noisy = charged_noise(site, math.sqrt(len(edges)), noise)
    exact = np.zeros((len(edges), _PARTS + 2))
    for X in site.cached("rows alone", lambda: [batch.X for batch in site.batches_alone(BLOCK_ROWS)]):
        if X.shape[1] != len(edges):
            raise InputError(f"low has {len(edges)} numbers, and must have one for each of {X.shape[1]} columns")
        for j, column in enumerate(np.asarray(X, dtype=np.float64).T):  # NaN is above all
            exact[j] += np.bincount(np.searchsorted(edges[j], column), minlength=_PARTS + 2)
    return {"counts": noisy(exact)}


def noisy_quantiles(fed: Federation, *, level: float, privacy: GaussianMoments, n_columns: int) -> Vector:
    """Return the `level` quantile (d,) of every column, between the public bounds, from counts with noise."""
    level = real_number("level", level, above=0, most=1)
    privacy.check()
    bounds = privacy.bounds(n_columns)
    with noisy_sums(privacy, fed, {local_noisy_counts: (1.0, ROUNDS)}, "all counts, and so the quantiles") as noisy:
        return search(noisy, fed, low=bounds.center - bounds.width, high=bounds.center + bounds.width, level=level)


def search(
    noisy: NoisySums,
    fed: Federation,
    *,
    low: Vector,
    high: Vector,
    level: float,
    watch: Callable[[Matrix, Matrix], None] | None = None,
) -> Vector:
    """Return the quantiles (d,) between `low` and `high`, within an account that is open; `watch` as in `quantiles`."""
    for _ in fed.rounds(ROUNDS):
        total = whole(noisy.sum(fed, local_noisy_counts, low=low, high=high), counts=(len(low), _PARTS + 2))
        up_to = np.cumsum(total["counts"], axis=1)
        n = np.maximum(up_to[:, -1:], 1.0)
        edges = _edges(low, high)
        if watch is not None:
            watch(edges, np.maximum.accumulate(np.clip(up_to[:, :-1] / n, 0.0, 1.0), axis=1))
        # With noise the shares need not rise: the number of edges below the level is that of the first one above it.
        part = np.clip((up_to[:, :-1] < level * n).sum(axis=1), 1, _PARTS)
        columns = np.arange(len(edges))
        low, high = edges[columns, part - 1], edges[columns, part]
    return high


def _edges(low: Vector, high: Vector) -> Matrix:
    """Return the edges (d, parts + 1) of equal parts."""
    if low.shape != high.shape or not np.all(np.abs([low, high]) <= 1e300) or not np.all(low <= high):
        raise InputError("low must be at most high in every column, and both within 1e300")
    return np.maximum.accumulate(low[:, None] + (high - low)[:, None] * (np.arange(_PARTS + 1) / _PARTS), axis=1)

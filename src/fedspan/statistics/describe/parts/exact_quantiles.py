"""Exact quantiles of each column, of all rows and of each group, interpolated as numpy and pandas do.

A quantile lies between two order statistics. The search for both is that of `fedspan.sums.quantiles`. The coordinator
sends intervals of numbers, and sites count their values below each of 256 equal parts of each. The part that holds the
order statistic is the next interval. Searches that are in the same interval share it. After 8 rounds all have ended.

Leaves a site: per round 257 counts an interval, at most two intervals a quantile. Only sums are needed. They reveal the
distribution of all rows over parts of intervals that shrink to the two values of rows around each quantile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Labels, Matrix, Vector
from fedspan.statistics.describe.parts.grouped_rows import (
    By,
    Grouping,
    Numbers,
    fewest_rows,
    grouped_rows,
    numbers_of,
    sites_are_groups,
)
from fedspan.sums.parts.number_keys import PARTS, PASS, Keys, key_values, keys, narrowed, part_edges
from fedspan.sums.plausible_totals import whole


@step("describe.counts_between", reveals="sums", fewest=fewest_rows, fewest_in_sums=False, by_site=sites_are_groups)
def local_counts_between(
    site: Site, columns: Numbers, column: Numbers, group: Numbers, low: Keys, high: Keys, by: By, groups: Labels
) -> dict[str, Any]:
    """Leaves the site: of each interval the number of values in its column and group, and those up to each part's edge.

    Interval k is from ``low[k]`` to ``high[k]``, in the column ``columns[column[k]]`` and the group ``group[k]``.
    """
    ordered = _sorted_values(site, columns, by, groups)
    edges = key_values(part_edges(low, high))
    counts, n = np.zeros(edges.shape, dtype=np.int64), np.zeros(len(edges), dtype=np.int64)
    which = np.array([group, column]).T
    starts = np.flatnonzero(np.r_[len(which) > 0, np.any(np.diff(which, axis=0), axis=1)]).tolist()
    for start, stop in zip(starts, [*starts[1:], len(which)], strict=True):
        values = ordered[group[start]][column[start]]
        n[start:stop] = len(values)
        # Most intervals hold few of a site's values: their edges need no search among all.
        first = np.searchsorted(values, edges[start:stop, 0], side="right").tolist()
        last = np.searchsorted(values, edges[start:stop, -1], side="right").tolist()
        for k, (below, up_to) in enumerate(zip(first, last, strict=True), start):
            counts[k] = below
            if up_to > below:
                counts[k] += np.searchsorted(values[below:up_to], edges[k], side="right")
    return {"n": n, "counts": counts.astype(np.min_scalar_type(len(site)))}


def group_quantiles(
    seen: Federation, *, columns: NDArray[np.int64], levels: Sequence[float], grouping: Grouping
) -> NDArray[np.float64]:
    """Return the quantiles (levels, 1 + G, d); NaN where there are no values."""
    shape = (len(levels), 2, 1 + len(grouping.names), len(columns))
    if not len(levels) or not len(columns):
        return np.full((shape[0], *shape[2:]), np.nan)
    _, upper, group, column = (index.ravel() for index in np.indices(shape))
    level = np.broadcast_to(np.asarray(levels, dtype=np.float64)[:, None, None, None], shape).ravel()
    least, most = keys(np.array([-np.inf, np.inf]))
    low, high = np.full(len(level), least), np.full(len(level), most)
    n = np.ones(len(level), dtype=np.int64)
    for number in seen.rounds(3 * PASS):
        # One request for all searches in one interval.
        wanted = np.stack([group.astype(np.uint64), column.astype(np.uint64), low, high], axis=1)
        asked, at = np.unique(wanted, axis=0, return_inverse=True)
        at = at.ravel()
        total = seen.sum(
            local_counts_between,
            columns=columns,
            column=asked[:, 1].astype(np.int64),
            group=asked[:, 0].astype(np.int64),
            low=np.ascontiguousarray(asked[:, 2]),
            high=np.ascontiguousarray(asked[:, 3]),
            **grouping.payload,
        )
        whole(total, n=(len(asked),), counts=(len(asked), PARTS + 1))
        n = np.maximum(total["n"], 0).astype(np.int64)[at]
        place = level * np.maximum(n - 1, 0)
        rank = np.where(upper, np.ceil(place), np.floor(place)) + 1
        reached = np.asarray(total["counts"])[at] >= rank[:, None]
        low, high = narrowed(reached, low, high, widen=number < 2 * PASS)
        done = (high - low <= 1) | (n == 0)
        low, high = np.where(n == 0, least, low), np.where(n == 0, most, high)
        if done.all():
            break
    found = np.where(n > 0, key_values(high) + 0.0, np.nan).reshape(shape)  # -0.0 becomes 0.0
    place = (level * np.maximum(n - 1, 0)).reshape(shape)[:, 0]
    return interpolated(found[:, 0], found[:, 1], place - np.floor(place))


def interpolated(below: Matrix, above: Matrix, share: Vector) -> Matrix:
    """Return the number at a `share` of the way from `below` to `above`, as numpy rounds it."""
    with np.errstate(over="ignore", invalid="ignore"):  # only false counts lead to infinite numbers
        apart = above - below
        return np.where(share < 0.5, below + apart * share, above - apart * (1 - share))


def _sorted_values(site: Site, columns: Numbers, by: int, groups: Labels) -> list[list[Vector]]:
    """Return the sorted values of each column, by group."""

    def make() -> list[list[Vector]]:
        values = np.ascontiguousarray(numbers_of(site, columns).T)
        found: list[list[Vector]] = []
        for part in grouped_rows(site, by, groups):
            some = np.sort(values[:, part], axis=1)  # NaN comes last
            n = some.shape[1] - np.isnan(some).sum(axis=1)
            found.append([column[:count] for column, count in zip(some, n.tolist(), strict=True)])
        return found

    return site.last_of("sorted values", (columns.tobytes(), by, tuple(groups.tolist())), make)

"""Federated quantiles: the order statistic of every column, exactly, without moving a row.

Doubles are ordered like 64-bit integers (see `keys`), so that a search among these finds the quantile. The coordinator
sends an interval, and every site counts its rows below each of 256 equal parts of it. The part that holds the quantile
is the next interval. After 8 rounds an interval is a single number.

Leaves a site: per round and column 257 counts of 1, 2 or 4 bytes and the number of rows; only sums are needed. They
reveal the distribution of all rows over parts of an interval that shrinks to the quantile, a value of one of the rows.
Down: two numbers a column. Memory at a site: its rows, sorted, up to 256 MiB. A larger table is read in blocks, once
for each of about three rounds. Then few values are left in the intervals, and the site keeps these, at most 256 MiB.
Scores of a stream are read so from 16 MiB on, and at most 16 MiB of them are kept. Several levels are searched at once.

The result is exact for the rows of the sites that answered the last round. Where a site leaves in mid-run, the search
widens its interval again. If sites come and go in every round, it settles after 24 rounds. It then has the quantile of
the rows that answered, up to the share of the rows that came and went.

With an aggregator every site sends the share of its distribution below each part instead, and the result is the
quantile of the combined shares. With medians it lies between the quantiles of the honest sites while these are the
majority. It differs from the quantile of the pooled rows by as much as the sites differ. Where they are alike, that is
a sampling error of about ``sqrt(level (1 - level) / n_i)`` over the root of the number of sites. For that a site
reports the share up to the k-th of its n_i sorted rows as ``(k - 1/3) / (n_i + 1/3)``, and interpolates linearly
between rows. The plain share k / n_i is skewed. The median of many sites would be off by up to 1 / n_i. With 20 rows a
site the 0.95 quantile would be that of 0.918. Sites with fewer than ``2 / 3 / (1 - level)`` rows, 14 for level 0.95,
report their largest value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.aggregation.aggregator import believed
from fedspan.checks import real_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.privacy.mechanisms import GaussianMoments, check_moments
from fedspan.sums.columns import agree_on_columns
from fedspan.sums.moments import some_rows
from fedspan.sums.noisy_quantiles import noisy_quantiles
from fedspan.sums.parts.number_keys import PARTS, PASS, Keys, key_values, keys, narrowed, part_edges
from fedspan.sums.parts.values_between import counts_between, scores_of_stream
from fedspan.sums.row_blocks import n_columns, sampled_blocks

_ROUNDING = 1e-12  # of combined fractions: less than a row in any table
#: Levels that are searched at once, at most.
_MOST_LEVELS = 16
#: Columns up to this size are sorted in memory, and scores of a stream: several sites may be on one machine.
_SORTED_BYTES, _SCORES_BYTES = 2**28, 2**24
#: Rows of a larger table of which a site takes quantiles roughly, at most: they are off by some thousandths of a level.
_ROUGH_ROWS = 2**16


@step("sums.counts_between", reveals="sums")
def local_counts(site: Site, low: Keys, high: Keys, roughly: bool = False) -> dict[str, Any]:
    """Leaves the site: its number of rows, the counts up to each edge of the parts, the number of non-finite values.

    With `roughly` a site whose rows are too many to be sorted counts a sample; each of its rows stands for others.
    """
    d, n = _fitting_columns(site, low, high), len(site)
    times = -(-n // _ROUGH_ROWS) if roughly and 8 * n * d > _SORTED_BYTES else 1
    most = _SCORES_BYTES if scores_of_stream(site) else _SORTED_BYTES
    if times == 1 and 8 * n * d > most:
        found, bad = counts_between(site, low, high)
    else:
        columns, bad = _sorted_columns(site, times)
        found = times * np.array([_up_to(column, at) for column, at in _with_edges(columns, low, high)])
        n = times * columns.shape[1]
    return {"n": n, "bad": bad, "counts": found.astype(np.min_scalar_type(n))}


@step("sums.fractions_between", reveals="rows")
def local_fractions(site: Site, low: Keys, high: Keys) -> dict[str, Any]:
    """Leaves the site: its number of rows, and the share of the distribution up to each edge of the parts."""
    _fitting_columns(site, low, high)
    columns, bad = _sorted_columns(site)
    if bad:
        raise InputError(f"X contains NaN or infinity in {bad} values")
    n = some_rows(site)
    fractions = np.empty((max(len(columns), len(low)), PARTS + 1))
    for share, (column, at) in zip(fractions, _with_edges(columns, low, high), strict=True):
        count = _up_to(column, at)
        inside = (count > 0) & (count < n)
        ends = np.stack([column[count[inside] - 1], column[count[inside]]]).astype(np.float64)
        before, after = ends / 2  # halves: differences stay finite
        way = (at[inside] / 2 - before) / (after - before)
        share[:] = count == n
        share[inside] = (count[inside] - 1 / 3 + way) / (n + 1 / 3)
    return {"n": n, "fractions": fractions}


def quantiles(
    fed: Federation,
    *,
    level: float | tuple[float, ...],
    aggregator: Aggregator | None = None,
    watch: Callable[[Matrix, Matrix], None] | None = None,
    privacy: GaussianMoments | None = None,
    roughly: bool = False,
) -> Vector:
    """Return the `level` quantile (d,) of every column: the smallest value that a share `level` of the rows is up to.

    That is an order statistic, numpy's ``method="inverted_cdf"``, of the rows as they are.

    Parameters
    ----------
    level : float or tuple of float
        Above 0 and at most 1. Several levels share their rounds, and the result is (levels, d).
    aggregator : Aggregator, optional
        Where sites may be malicious: it combines the sites' own fractions, instead of a sum of counts. Single replies
        are then needed, and the result is that of the pooled rows only where the sites' rows are alike (see above).
    watch : callable, optional
        Receives in every round what the coordinator learns: edges (d, 257), and the share of the rows up to each.
    privacy : GaussianMoments, optional
        Differential privacy: a search between public bounds, by counts with noise (`noisy_quantiles`). `watch` is not
        used then.
    roughly : bool, default=False
        Sites whose rows are above 256 MiB count a sample of some 65,536 of them, which they read once. The level is
        then off by a few thousandths. Without an aggregator or noise.

    Examples
    --------
    >>> import fedspan as fs
    >>> fed = fs.federate(np.arange(1.0, 101.0)[:, None], sites=np.arange(100) % 3)
    >>> quantiles(fed, level=0.95)
    array([95.])
    """
    if isinstance(level, tuple) and privacy is None:
        levels = np.array([real_number("level", one, above=0, most=1) for one in level])
        return _searched(fed, levels, aggregator, watch, roughly).reshape(len(levels), -1)
    level = real_number("level", level, above=0, most=1)
    if privacy is not None:
        check_moments(privacy, aggregator)
        columns, fed = agree_on_columns(fed)
        return noisy_quantiles(fed, level=level, privacy=privacy, n_columns=columns.count)
    return _searched(fed, np.array([level]), aggregator, watch, roughly)


def _searched(
    fed: Federation,
    levels: Vector,
    aggregator: Aggregator | None,
    watch: Callable[[Matrix, Matrix], None] | None,
    roughly: bool,
) -> Vector:
    """Return the quantiles of all columns of the first level, then those of the second, and so on."""
    least, most = keys(np.array([-np.inf, np.inf]))
    low, high = least[None], most[None]  # one interval for all columns: the first reply gives their number
    for number in fed.rounds(3 * PASS):
        # (levels d, parts + 1), from False to True
        reached, shares = _reached(fed, low, high, levels, aggregator, roughly)
        low, high = (np.broadcast_to(ends, len(reached)) for ends in (low, high))
        if watch is not None:
            watch(key_values(part_edges(low, high)), shares)
        low, high = narrowed(reached, low, high, widen=number < 2 * PASS)  # after that it settles on its interval
        if (high - low <= 1).all():
            break
    return key_values(high)


def _reached(
    fed: Federation, low: Keys, high: Keys, levels: Vector, aggregator: Aggregator | None, roughly: bool
) -> tuple[NDArray[np.bool_], Matrix]:
    """Return whether a share of each level of the rows is at most each edge (levels d, parts + 1), and that share."""
    if aggregator is None:
        total = fed.sum(local_counts, low=low, high=high, roughly=roughly)
        if total["bad"]:
            raise InputError(f"X contains NaN or infinity in {total['bad']} values: fill or drop them first")
        if not total["n"]:
            raise InputError("the sites have no rows: there is no quantile")
        counts, level = _by_level(total["counts"], len(low), levels)
        return counts >= level * total["n"], counts / total["n"]
    replies = fed.ask(local_fractions, low=low, high=high)
    # Make a distribution of what a site sends: between 0 and 1, and rising.
    fractions = np.maximum.accumulate(np.clip(replies.stack("fractions"), 0.0, 1.0), axis=-1)
    combined = aggregator(fractions, believed(aggregator, replies.stack("n"))).value
    shares, level = _by_level(np.maximum.accumulate(combined, axis=-1), len(low), levels)
    return shares >= level - _ROUNDING, shares


def _by_level(found: Matrix, intervals: int, levels: Vector) -> tuple[Matrix, Matrix]:
    """Return a row for each level and column, and its level: the first reply has one row for each column."""
    rows = np.tile(found, (len(levels), 1)) if intervals == 1 else np.asarray(found)
    return rows, np.repeat(levels, len(rows) // len(levels))[:, None]


def _sorted_columns(site: Site, every: int = 1) -> tuple[NDArray[Any], int]:
    """Return the site's columns (d, n), each sorted, and the number of values that are not finite.

    With `every` above 1 they are those of a sample.

    Numbers that single precision holds exactly, such as those of a table in it, are kept so: in half the memory.
    """

    def make() -> tuple[NDArray[Any], int]:
        columns: NDArray[Any] = np.empty((n_columns(site), -(-len(site) // every)), dtype=np.float32)
        at = 0
        for X in sampled_blocks(site, every):
            if columns.dtype == np.float32 and not _single(X):
                before, columns = columns[:, :at], np.empty(columns.shape)
                columns[:, :at] = before
            columns[:, at : at + len(X)] = X.T
            at += len(X)
        columns.sort(axis=1)
        return columns, int(np.count_nonzero(~np.isfinite(columns)))

    return site.last_of("sorted columns", every, make)


def _single(X: Matrix) -> bool:
    """Return whether single precision holds all numbers exactly."""
    with np.errstate(over="ignore", under="ignore"):
        return bool((X.astype(np.float32) == X).all())


def _up_to(column: NDArray[Any], edges: Vector) -> NDArray[np.intp]:
    """Return the number of values of a sorted column up to each edge.

    Edges are rounded down to single precision for a column of it, which would be copied to double precision otherwise.
    """
    if column.dtype == np.float32:
        with np.errstate(over="ignore", under="ignore"):
            single = edges.astype(np.float32)
            edges = np.where(single > edges, np.nextafter(single, np.float32(-np.inf)), single)
    return np.searchsorted(column, edges, side="right")


def _with_edges(columns: NDArray[Any], low: Keys, high: Keys) -> Iterator[tuple[NDArray[Any], Vector]]:
    """Yield each column with the edges of its parts, for one level after the other."""
    edges = key_values(part_edges(low, high))
    intervals = max(len(columns), len(edges))
    rows = (columns[i % len(columns)] for i in range(intervals))
    return zip(rows, np.broadcast_to(edges, (intervals, PARTS + 1)), strict=True)


def _fitting_columns(site: Site, low: Keys, high: Keys) -> int:
    """Return the number of columns; refuse intervals that are not one for all, or those of a few levels for each."""
    d = n_columns(site)
    if len(low) != len(high) or (len(low) != 1 and (len(low) % max(d, 1) or len(low) > _MOST_LEVELS * d)):
        raise InputError(f"{len(low)} low and {len(high)} high ends of intervals do not fit {d} columns")
    return d

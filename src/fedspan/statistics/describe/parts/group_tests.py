"""Tests of whether groups differ, from what descriptions have: moments and counts.

Each gives what SciPy gives for the pooled rows: Welch's t test and the analysis of variance come from moments.
Wilcoxon's rank sum test and that of Kruskal and Wallis come from counts of values, and the chi-square test from a table
of counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Vector

Table = NDArray[np.float64]


@dataclass(frozen=True)
class GroupTest:
    """A test: its name, its statistic and its p value. Both are NaN where it can't be made."""

    name: str
    statistic: float = math.nan
    p: float = math.nan


def means_test(n: Vector, mean: Vector, variance: Vector) -> GroupTest:
    """Test whether means differ: Welch's t test for two groups, the analysis of variance for more."""
    from scipy import stats

    name = "t (Welch)" if len(n) == 2 else "analysis of variance"
    if len(n) < 2 or np.any(n < 2) or not np.isfinite([*mean, *variance]).all() or not np.any(variance > 0):
        return GroupTest(name)
    if len(n) == 2:
        part = variance / n
        t = (mean[0] - mean[1]) / math.sqrt(part.sum())
        freedom = part.sum() ** 2 / np.sum(part**2 / (n - 1))
        return GroupTest(name, float(t), float(2 * stats.t.sf(abs(t), freedom)))
    total = n.sum()
    between = np.sum(n * (mean - np.sum(n * mean) / total) ** 2) / (len(n) - 1)
    within = np.sum((n - 1) * variance) / (total - len(n))
    return GroupTest(name, float(between / within), float(stats.f.sf(between / within, len(n) - 1, total - len(n))))


def ranks_test(counts: Table) -> GroupTest:
    """Test whether values differ in rank: Wilcoxon's rank sum test for two groups, Kruskal and Wallis' for more.

    `counts` (G, bins) are the values of each group in bins that rise; all values of a bin count as equal. The statistic
    for two groups is Mann and Whitney's U of the first one; its p value is the normal one with both corrections.
    """
    from scipy import stats

    name = "rank sum (Wilcoxon)" if len(counts) == 2 else "rank sums (Kruskal and Wallis)"
    n, tied = counts.sum(axis=1), counts.sum(axis=0)
    total = n.sum()
    if len(counts) < 2 or np.any(n < 1) or np.count_nonzero(tied) < 2:
        return GroupTest(name)
    ranks = np.cumsum(tied) - tied + (tied + 1) / 2
    sums = counts @ ranks
    ties = float(np.sum(tied**3 - tied))
    if len(counts) == 2:
        U = float(sums[0] - n[0] * (n[0] + 1) / 2)
        deviation = math.sqrt(n[0] * n[1] / 12 * (total + 1 - ties / (total * (total - 1))))
        far = max(U, n[0] * n[1] - U) - n[0] * n[1] / 2 - 0.5
        return GroupTest(name, U, float(min(1.0, 2 * stats.norm.sf(far / deviation))))
    H = 12 / (total * (total + 1)) * float(np.sum(sums**2 / n)) - 3 * (total + 1)
    H /= 1 - ties / (total**3 - total)
    return GroupTest(name, H, float(stats.chi2.sf(H, len(counts) - 1)))


def counts_test(counts: Table) -> GroupTest:
    """Test whether rows and columns of a table of counts are independent: chi-square, for 2 x 2 with Yates' correction.

    Empty rows and columns are left out.
    """
    from scipy import stats

    name = "chi-square"
    table = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    if min(table.shape) < 2 or not np.isfinite(table).all():
        return GroupTest(name)
    found = stats.chi2_contingency(table)
    return GroupTest(name, float(found.statistic), float(found.pvalue))


def means_apart(mean: Vector, variance: Vector) -> float:
    """Return the largest standardised mean difference between two groups: over the root of the mean variance."""

    def apart(i: int, j: int) -> float:
        spread = math.sqrt((variance[i] + variance[j]) / 2)
        return float((mean[i] - mean[j]) / spread) if spread > 0 else math.nan

    return _largest(apart, np.flatnonzero(np.isfinite(mean) & np.isfinite(variance)))


def shares_apart(counts: Table) -> float:
    """Return the largest standardised difference between two groups of shares of categories (Yang and Dalton, 2012)."""
    n = counts.sum(axis=1)
    shares = counts / np.maximum(n, 1)[:, None]

    def apart(i: int, j: int) -> float:
        p, q = shares[i, 1:], shares[j, 1:]  # the first one follows from the others
        spread = (np.diag(p) - np.outer(p, p) + np.diag(q) - np.outer(q, q)) / 2
        return math.sqrt(max(0.0, float((p - q) @ np.linalg.pinv(spread, hermitian=True) @ (p - q))))

    return _largest(apart, np.flatnonzero((n > 0) & np.isfinite(n)))


def _largest(apart: Callable[[int, int], float], groups: NDArray[np.intp]) -> float:
    found = [apart(int(i), int(j)) for i, j in combinations(groups, 2)]
    known = [value for value in found if not math.isnan(value)]
    return max(known, key=abs, default=math.nan)

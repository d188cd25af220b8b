"""Which site differs: each site against the rest, column by column and in the directions of largest variance.

Tests, each from counts and moments by site:

- ``mean``: Welch's t test; the effect is the standardised mean difference.
- ``quantiles``: chi-square over the bins between the pooled 10, 25, 50, 75 and 90 % quantiles; the effect is the
  largest difference of the shares up to one of them.
- ``names``: chi-square over the names of a column of text; the effect is the standardised difference of the shares.
- ``missing``: chi-square over missing and other cells; the effect is the difference of the shares.
- ``subspace``: of all numbers together, whether the leading principal axes of the rest are those of the site. If they
  are, the coordinates of the site's rows along these axes are not correlated with the others, and have the same
  variance as in the rest. The squared correlations and the squared difference of the variances, over their variances
  for rows that are about normal, add up to a chi-square then. The effect is the distance of the two subspaces, from 0
  to 1.

The p values of all tests are corrected together. Of those below a level at most this share is then false (Benjamini and
Hochberg, 1995).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Counts
from fedspan.checks import needs_pandas, real_number, whole_number
from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation, RunRecord, Site, step
from fedspan.federation.site.parameters import Flags, Labels, Matrix, Positive, Vector
from fedspan.linalg import subspace_distance
from fedspan.statistics.describe.parts.exact_quantiles import group_quantiles
from fedspan.statistics.describe.parts.group_counts import bin_counts, category_counts
from fedspan.statistics.describe.parts.group_moments import GroupMoments, group_moments
from fedspan.statistics.describe.parts.group_tests import GroupTest, counts_test, means_apart, means_test, shares_apart
from fedspan.statistics.describe.parts.grouped_rows import (
    SITES,
    By,
    Grouping,
    Numbers,
    grouped_rows,
    numbers_of,
    parts_of,
    sites_are_groups,
)
from fedspan.statistics.describe.parts.shown_frame import ShownFrame
from fedspan.statistics.describe.parts.suppression import NameTable, hidden_groups, hidden_values, name_table
from fedspan.statistics.describe.parts.table_columns import TableColumns, federation_of, named_columns, read_columns
from fedspan.sums.plausible_totals import whole

if TYPE_CHECKING:
    import pandas as pd

#: Names of a column that are compared, as a description lists them.
LISTED_NAMES = 32
_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
#: Columns of which more cells are missing are left out of subspaces, whose rows have all values.
_MOST_MISSING = 0.2


def _fewest_whole(
    site: Site, columns: Numbers, centre: Vector, scale: Vector, by: int, groups: Labels, **payload: Any
) -> int:
    """Return the number of rows of the smallest set that a sum is about, or leaves out: groups, rows with gaps.

    Where the scale of a column is 0, its values at the centre are gaps.
    """
    whole_rows = np.asarray(~np.isnan(_scaled(site, columns, centre, scale)).any(axis=1))
    parts = [whole_rows[part] for part in parts_of(site, by, groups)]
    sizes = [int(np.count_nonzero(own)) for part in parts for own in (part, ~part)]
    return min((size for size in sizes if size), default=0)


def _scaled(site: Site, columns: Numbers, centre: Vector, scale: Vector) -> Matrix:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray((numbers_of(site, columns) - centre) / scale)


@step("describe.group_products", reveals="sums", fewest=_fewest_whole, fewest_in_sums=False, by_site=sites_are_groups)
def local_group_products(
    site: Site, columns: Numbers, centre: Vector, scale: Vector, by: By, groups: Labels, largest: Positive
) -> dict[str, Any]:
    """Leaves the site: by group the number of rows without gaps, and sums and products of their scaled columns.

    Values further than `largest` from the centre, in units of the scale, are moved there.
    """
    Z = np.clip(_scaled(site, columns, centre, scale), -largest, largest)
    parts = grouped_rows(site, by, groups)
    d = len(columns)
    n, sums = np.zeros(len(parts), dtype=np.int64), np.zeros((len(parts), d))
    products = np.zeros((len(parts), d, d))
    whole_rows = np.asarray(~np.isnan(Z).any(axis=1))
    for g, part in enumerate(parts):
        rows = Z[part][whole_rows[part]]
        n[g], sums[g], products[g] = len(rows), rows.sum(axis=0), rows.T @ rows
    return {"n": n, "sums": sums, "products": products}


@dataclass(frozen=True)
class SiteDifference:
    """A test of one site against the rest: in which column (empty: in all), of what, and its corrected p value."""

    site: str
    column: str
    of: str
    effect: float
    statistic: float
    p: float
    corrected: float = math.nan


@dataclass(frozen=True, repr=False)
class SiteDifferences(ShownFrame):
    """All tests of sites against the rest, the smallest p value first."""

    sites: tuple[str, ...]
    tests: tuple[SiteDifference, ...]

    run_ = RunRecord("site_differences", {}, number=0, seed=0, sites=())

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each test."""
        needs_pandas()
        import pandas as pd

        return pd.DataFrame(map(asdict, self.tests), columns=[field.name for field in fields(SiteDifference)])

    @property
    def not_compared(self) -> int:
        """The number of sites without a test: they have few rows, or their tests would show those of others."""
        return len(self.sites) - len({test.site for test in self.tests})

    def differing(self, level: float = 0.05) -> dict[str, tuple[str, ...]]:
        """Return the sites with corrected p values below `level`, and the columns in which they differ."""
        real_number("level", level, above=0, below=1)
        found: dict[str, dict[str, None]] = {}
        for test in self.tests:
            if test.corrected < level:
                found.setdefault(test.site, {})[test.column or "(all together)"] = None
        return {site: tuple(columns) for site, columns in sorted(found.items())}


def site_differences(
    fed: Federation,
    *,
    categorical: str | Sequence[str | int] = "auto",
    categories: Mapping[str | int, Sequence[str]] | None = None,
    least_set: int = 5,
    rank: int = 2,
) -> SiteDifferences:
    """Test each site against the rest.

    Parameters
    ----------
    fed : Federation
        Single sites are compared, so that sums can't be secure.
    categorical, categories
        Which columns are text, and their names, as in `fedspan.describe`.
    least_set : int, default=5
        Sites with fewer rows, or with fewer values in a column, are not compared. Nor are sites that a description by
        site must hide with them. Names and bins with fewer rows at the site or elsewhere are counted together.
    rank : int, default=2
        The number of principal axes of ``subspace``.

    Examples
    --------
    >>> import fedspan as fs
    >>> rng = np.random.default_rng(0)
    >>> rows, site = rng.normal(size=(300, 3)), np.arange(300) % 3
    >>> rows[site == 2, 1] += 1.0
    >>> site_differences(fs.federate(rows, sites=site)).differing(0.001)
    {'1': ('x1',), '2': ('x1',)}
    """
    for name, value in (("least_set", least_set), ("rank", rank)):
        whole_number(name, value, 1)
    with federation_of(fed, "site_differences").begin(
        "site_differences", {"least_set": least_set, "rank": rank}
    ) as run:
        run.need_single_replies("site_differences")
        names, seen = named_columns(run)
        columns, seen = read_columns(seen, names, categorical=categorical, categories=categories)
        return site_differences_of(seen, columns, least_set, rank, LISTED_NAMES).of(run)


def site_differences_of(
    seen: Federation, columns: TableColumns, least: int, rank: int, max_categories: int
) -> SiteDifferences:
    """Return the tests of each site against the rest, for columns that are known; counts that may be shown are used."""
    if len(seen.sites) < 2:
        raise InputError("one site has no rest to differ from: site_differences needs at least two sites")
    grouping = Grouping(SITES, seen.sites)
    numbers = columns.numbers
    text = {int(j): columns.categories.get(int(j), ()) for j in np.flatnonzero(columns.text)}
    counted = category_counts(seen, categories=text, grouping=grouping)
    moments = group_moments(seen, columns=numbers, centre=columns.mean[numbers], grouping=grouping)
    edges = group_quantiles(seen, columns=numbers, levels=_LEVELS, grouping=Grouping())[:, 0]
    binned = bin_counts(
        seen, columns=numbers, edges=[np.unique(own[np.isfinite(own)]) for own in edges.T], grouping=grouping
    )
    hidden = hidden_groups(moments.rows, least)
    few = np.logical_or(*hidden_values(moments.rows, moments.n, hidden, least))
    tables = {j: name_table(counts, hidden, most=max_categories, least=least) for j, counts in counted.items()}
    spans = _subspaces(seen, columns, moments, grouping, rank)
    tests: list[SiteDifference] = []
    for g in range(1, len(moments.rows)):
        if hidden[g] or moments.rows[0] - moments.rows[g] < least:
            continue
        one = _tests_of(g, columns, moments, few, binned, tables, least)
        found = [*one, *spans.tests(g, least)]
        tests += [
            SiteDifference(seen.sites[g - 1], column, of, effect, test.statistic, test.p)
            for column, of, effect, test in found
            if not math.isnan(test.p)
        ]
    return SiteDifferences(seen.sites, _corrected(tests))


Tested = tuple[str, str, float, GroupTest]


def _tests_of(
    g: int,
    columns: TableColumns,
    moments: GroupMoments,
    few: Flags,
    binned: Sequence[Counts],
    tables: Mapping[int, NameTable],
    least: int,
) -> Iterator[Tested]:
    """Yield the tests of one site, by column; none of numbers that a description by site hides."""
    rows = np.array([moments.rows[g], moments.rows[0] - moments.rows[g]])
    for place, j in enumerate(columns.numbers.tolist()):
        if few[g, place] or few[0, place]:
            continue
        name, pair = columns.names[j], _against_rest(moments, g, place)
        if pair.n.min() >= max(least, 2):
            effect = means_apart(pair.mean, pair.variance)
            yield name, "mean", effect, means_test(pair.n, pair.mean, pair.variance)
            bins = _joined(np.stack([binned[place][g], binned[place][0] - binned[place][g]]), least)
            shares = np.cumsum(bins / np.maximum(bins.sum(axis=1, keepdims=True), 1), axis=1)
            yield name, "quantiles", float(np.abs(shares[0] - shares[1]).max(initial=0.0)), counts_test(bins)
        yield _missing_test(name, rows, rows - pair.n)
    for j, found in tables.items():
        name, both = columns.names[j], np.stack([found.counts[g], found.counts[0] - found.counts[g]])
        seen = ~(found.hidden[g] | found.hidden[0])
        table = _merged(both[:, :-1][:, seen[:-1]], least)
        if table.shape[1] and table.sum(axis=1).min() >= least:
            yield name, "names", shares_apart(table), counts_test(table)
        if seen[-1]:
            yield _missing_test(name, rows, both[:, -1])


def _missing_test(name: str, rows: NDArray[Any], missing: NDArray[Any]) -> Tested:
    shares = missing / np.maximum(rows, 1)
    test = counts_test(np.stack([missing, rows - missing], axis=1).astype(np.float64))
    return name, "missing", float(shares[0] - shares[1]), test


@dataclass(frozen=True)
class _Pair:
    """Number, mean and variance of a column at one site and at all others (2,)."""

    n: Vector
    mean: Vector
    variance: Vector


def _against_rest(moments: GroupMoments, g: int, j: int) -> _Pair:
    """Return the moments of a site and of the rest, which are those of all rows without it."""
    n, m = moments.n[[0, g], j].astype(np.float64), moments.mean[[0, g], j]
    rest = n[0] - n[1]
    if n[1] < 2 or rest < 2:
        return _Pair(np.array([n[1], rest]), np.full(2, np.nan), np.full(2, np.nan))
    squares = np.maximum(n - 1, 0) * moments.variance[[0, g], j]
    mean = m[0] + n[1] / rest * (m[0] - m[1])
    apart = n[1] * rest / n[0] * (m[1] - mean) ** 2
    others = max(0.0, squares[0] - squares[1] - apart)
    return _Pair(
        np.array([n[1], rest]), np.array([m[1], mean]), np.array([squares[1] / (n[1] - 1), others / (rest - 1)])
    )


def _joined(counts: NDArray[Any], least: int) -> Matrix:
    """Return counts (2, bins) with neighbours joined until each has at least `least` rows, or one bin is left."""
    found: list[NDArray[Any]] = []
    rest = np.zeros(2)
    for one in counts.T:
        rest = rest + one
        if rest.min() >= least:
            found.append(rest)
            rest = np.zeros(2)
    if found:
        found[-1] = found[-1] + rest
    return np.array(found or [rest], dtype=np.float64).T


def _merged(counts: NDArray[Any], least: int) -> Matrix:
    """Return counts (2, names) with those of fewer than `least` rows, in either, as one; dropped if that is small."""
    few = counts.min(axis=0) < least
    other = counts[:, few].sum(axis=1, keepdims=True)
    kept = counts[:, ~few]
    return np.asarray(np.hstack([kept, other]) if other.min() >= least else kept, dtype=np.float64)


@dataclass(frozen=True)
class _Subspaces:
    """Rows without gaps (1 + S,), and the covariances (1 + S, d, d) of their scaled columns, with their sums."""

    n: Counts
    sums: Matrix
    products: NDArray[np.float64]
    rank: int

    def tests(self, g: int, least: int) -> Iterator[Tested]:
        """Yield the test of one site's subspace."""
        d, rest = self.products.shape[1], int(self.n[0] - self.n[g])
        r = min(self.rank, d - 1)
        if r < 1 or min(int(self.n[g]), rest) < max(least, 2 * d):
            return
        from scipy import stats

        site = _covariance(self.n[g], self.sums[g], self.products[g])
        others = _covariance(rest, self.sums[0] - self.sums[g], self.products[0] - self.products[g])
        values, axes = zip(*(np.linalg.eigh(matrix) for matrix in (site, others)), strict=True)
        axes = tuple(own[:, ::-1] for own in axes)
        leading = values[1][::-1][:r]
        turned = axes[1].T @ site @ axes[1]
        variances = np.maximum(np.diag(turned), 0.0)
        spread = np.sqrt(np.outer(variances[:r], variances[r:]))
        shared = np.divide(turned[:r, r:], spread, out=np.zeros_like(spread), where=spread > 0)
        rows = 1.0 / (1.0 / float(self.n[g]) + 1.0 / rest)
        more = variances[:r].sum() - leading.sum()
        statistic = float(rows * (np.sum(shared**2) + more**2 / max(2 * np.sum(leading**2), 1e-300)))
        freedom = r * (d - r) + 1
        effect = subspace_distance(axes[0][:, :r], axes[1][:, :r]) / math.sqrt(2 * min(r, d - r))
        yield "", "subspace", float(effect), GroupTest("subspace", statistic, float(stats.chi2.sf(statistic, freedom)))


def _subspaces(
    seen: Federation, columns: TableColumns, moments: GroupMoments, grouping: Grouping, rank: int
) -> _Subspaces:
    """Request the products of the scaled columns that have values nearly everywhere.

    Owners do not allow it where few rows have gaps: then subspaces are not compared.
    """
    numbers, std = columns.numbers, moments.std[0]
    kept = np.isfinite(std) & (std > 0) & (moments.n[0] >= (1 - _MOST_MISSING) * moments.rows[0])
    wanted = numbers[kept]
    d, groups = len(wanted), 1 + len(grouping.names)
    nothing = _Subspaces(np.zeros(groups, dtype=np.int64), np.zeros((groups, d)), np.zeros((groups, d, d)), 0)
    if d < 2:
        return nothing
    about = {"centre": moments.mean[0, kept], "scale": std[kept], "largest": 1e6}
    try:
        total = seen.sum(local_group_products, columns=wanted, **about, **grouping.payload)
    except QuorumError as error:
        warnings.warn(f"subspaces are not compared: {error}", stacklevel=2)
        return nothing
    whole(total, n=(groups,), sums=(groups, d), products=(groups, d, d))
    return _Subspaces(np.maximum(total["n"], 0), total["sums"], total["products"], rank)


def _covariance(n: float, sums: Vector, products: Matrix) -> Matrix:
    mean = sums / max(n, 1)
    return np.asarray((products - n * np.outer(mean, mean)) / max(n - 1, 1))


def _corrected(tests: Sequence[SiteDifference]) -> tuple[SiteDifference, ...]:
    """Return the tests by p value, each with that of Benjamini and Hochberg's correction."""
    ordered = sorted(tests, key=lambda test: (test.p, test.site, test.column, test.of))
    best, found = 1.0, []
    for place in range(len(ordered), 0, -1):
        best = min(best, ordered[place - 1].p * len(ordered) / place)
        found.append(best)
    return tuple(replace(test, corrected=corrected) for test, corrected in zip(ordered, reversed(found), strict=True))

"""Describe a table that stays at its sites: what pandas gives for the pooled rows, by sums.

The calls: columns; kinds of cells; names of text columns, unless they are listed; counts of names; moments; the search
for quantiles (8 rounds); smallest and largest values; with groups, counts in bins for tests of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Counts
from fedspan.checks import list_of, one_of, real_number, true_or_false, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.federation.site.parameters import Flags
from fedspan.privacy.mechanisms import GaussianMoments, check_moments
from fedspan.statistics.describe.description import CategoryCounts, Description, GroupDifference
from fedspan.statistics.describe.noisy_tables import check_public, noisy_description
from fedspan.statistics.describe.parts.exact_quantiles import group_quantiles
from fedspan.statistics.describe.parts.extremes import group_extremes
from fedspan.statistics.describe.parts.group_counts import bin_counts, category_counts
from fedspan.statistics.describe.parts.group_moments import GroupMoments, group_moments
from fedspan.statistics.describe.parts.group_tests import counts_test, means_apart, means_test, ranks_test, shares_apart
from fedspan.statistics.describe.parts.grouped_rows import NO_GROUPS, SITES, Grouping
from fedspan.statistics.describe.parts.suppression import hidden_groups, hidden_values, name_table, shown
from fedspan.statistics.describe.parts.table_columns import (
    SITE,
    TableColumns,
    federation_of,
    grouping_of,
    named_columns,
    public_columns,
    read_columns,
    text_columns,
)
from fedspan.statistics.describe.parts.value_bins import distinct_values, rank_edges

LEAST_SET = 5
_QUARTILES = (0.25, 0.5, 0.75)


def describe(
    fed: Federation,
    by: str | int | None = None,
    *,
    quantiles: Sequence[float] = _QUARTILES,
    categorical: str | Sequence[str | int] = "auto",
    categories: Mapping[str | int, Sequence[str]] | None = None,
    max_categories: int = 32,
    least_set: int = LEAST_SET,
    min_count: int = 1,
    extremes: bool = True,
    ranks: str = "bins",
    privacy: GaussianMoments | None = None,
) -> Description:
    """Describe the columns of all rows: what ``pandas.DataFrame.describe`` gives for the pooled rows, by sums.

    Parameters
    ----------
    fed : Federation
    by : column, optional
        A column whose names are groups, each of which is described; rows without a name are left out. ``"site"``: each
        site is a group. With groups there are tests of whether they differ.
    quantiles : list of float, default=(0.25, 0.5, 0.75)
        Between 0 and 1, both excluded. They are exact, and interpolated linearly.
    categorical : "auto" or list of columns, default="auto"
        Which columns are text. ``"auto"``: those in which at least as many cells are names as are numbers.
    categories : dict of column to list of names, optional
        Names to count: these columns are text, and no site sends names of them. Under secure sums no site sends any.
    max_categories : int, default=32
        Most names that are listed of a column; the others are counted together as ``(other)``.
    least_set : int, default=5
        Counts of fewer rows are suppressed, with all statistics of these rows, and so are more counts, so that totals
        do not give them back. Names of fewer rows count as ``(other)``. Missing cells are not suppressed by themselves.
    min_count : int, default=1
        A name leaves a site only if at least this number of its rows hold it.
    extremes : bool, default=True
        Request the smallest and largest values, values of single rows. They are NaN if a site's owner does not allow
        it, and under secure sums.
    ranks : {"bins", "exact"}, default="bins"
        How tests of ranks see the values. "bins": in 256 equal bins around the quartiles, by sums. "exact": all sites
        send all distinct values of all columns.
    privacy : GaussianMoments, optional
        Differential privacy: all numbers come from one sum with noise, without tests, and none is suppressed. Columns
        with `categories` are text; all others are numbers, and the bounds ``lower`` and ``upper`` are theirs.

    Returns
    -------
    Description
        ``to_frame()`` is a data frame, ``table_one()`` a table for a paper.

    Examples
    --------
    >>> import pandas as pd, fedspan as fs
    >>> table = pd.DataFrame({"age": [31.0, 45, 52, 38, 61, 47], "sex": ["f", "m", "f", "f", "m", "f"]})
    >>> found = fs.describe(fs.federate(table, sites=[0, 0, 0, 1, 1, 1]), least_set=2)
    >>> found.to_frame().loc["age", ["count", "mean", "50%"]].tolist()
    [6.0, 45.666666666666664, 46.0]
    >>> found.categories["sex"].names, found.categories["sex"].counts.tolist()
    (('f', 'm'), [[4.0, 2.0, 0.0, 0.0]])
    """
    levels = tuple(
        real_number("quantiles", level, above=0, below=1) for level in list_of("quantiles", quantiles, "shares")
    )
    for name, value in (("max_categories", max_categories), ("least_set", least_set), ("min_count", min_count)):
        whole_number(name, value, 1)
    true_or_false("extremes", extremes)
    one_of("ranks", ranks, ("bins", "exact"))
    check_moments(privacy)
    settings = {"by": by, "quantiles": levels, "least_set": least_set, "ranks": ranks, "privacy": privacy}
    with federation_of(fed, "describe").begin("describe", settings) as run:
        names, seen = named_columns(run)
        as_text = text_columns(by, names)
        if privacy is not None:
            columns = public_columns(names, categories)
            check_public(seen, columns, categories, as_text)
            found = noisy_description(seen, columns, grouping_of(by, columns, seen), levels, privacy)
        else:
            columns, seen = read_columns(
                seen, names, categorical=categorical, categories=categories, as_text=as_text, min_count=min_count
            )
            grouping = grouping_of(by, columns, seen)
            found = described(seen, columns, grouping, levels, max_categories, least_set, extremes, ranks)
        return found.of(run)


def described(
    seen: Federation,
    columns: TableColumns,
    grouping: Grouping,
    levels: tuple[float, ...],
    max_categories: int,
    least: int,
    extremes: bool,
    ranks: str,
) -> Description:
    """Return the description of columns that are known."""
    numbers, d = columns.numbers, len(columns.names)
    listed = {int(j): columns.categories.get(int(j), ()) for j in np.flatnonzero(columns.text)}
    moments = group_moments(seen, columns=numbers, centre=columns.mean[numbers], grouping=grouping)
    seen = seen.subset(moments.sites)  # an owner may not allow it: then all numbers are about the other sites
    counted = category_counts(seen, categories=listed, grouping=grouping)
    if moments.rows[0] <= 0:
        raise InputError("the sites have no rows in any group: there is nothing to describe")
    wanted = tuple(dict.fromkeys([*levels, 0.25, 0.75])) if grouping.names else levels
    found = group_quantiles(seen, columns=numbers, levels=wanted, grouping=grouping)
    low, high = (
        group_extremes(seen, columns=numbers, grouping=grouping)
        if extremes
        else (np.full_like(moments.mean, np.nan),) * 2
    )
    groups = hidden_groups(moments.rows, least)
    hidden, hidden_gaps = hidden_values(moments.rows, moments.n, groups, least)
    count = _wide(shown(moments.n, hidden), numbers, d)
    missing = _wide(shown(moments.rows[:, None] - moments.n, hidden_gaps), numbers, d)
    tables: dict[str, CategoryCounts] = {}
    unique = np.full(d, np.nan)
    for j, counts in counted.items():
        table = name_table(counts, groups, most=max_categories, least=least)
        names = tuple(listed[j][k] for k in table.kept)
        tables[columns.names[j]] = CategoryCounts(names, shown(table.counts, table.hidden))
        gaps, no_gaps = table.counts[:, -1], table.hidden[:, -1] | groups
        count[:, j], missing[:, j] = shown(moments.rows - gaps, no_gaps), shown(gaps, table.hidden[:, -1])
        if columns.complete(j) and moments.rows[0] >= least:
            unique[j] = np.count_nonzero(counts[0, :-2]) + (1 if counts[0, -2] else 0)
    few = hidden | (moments.n < least)
    differences: tuple[GroupDifference, ...] = ()
    if len(grouping.names) > 1:
        edges = _rank_edges(seen, numbers, moments, found, wanted, ranks)
        binned = bin_counts(seen, columns=numbers, edges=edges, grouping=grouping)
        differences = _differences(columns, grouping, moments, binned, few, tables)
    return Description(
        columns=columns.names,
        kinds=tuple("text" if text else "number" for text in columns.text),
        by=_by(grouping, columns),
        groups=grouping.names,
        levels=levels,
        rows=shown(moments.rows, groups),
        count=count,
        missing=missing,
        mean=_wide(shown(moments.mean, few), numbers, d),
        std=_wide(shown(moments.std, few), numbers, d),
        min=_wide(shown(low, few), numbers, d),
        max=_wide(shown(high, few), numbers, d),
        quantiles=np.stack([_wide(shown(found[wanted.index(level)], few), numbers, d) for level in levels])
        if levels
        else np.zeros((0, *count.shape)),
        unique=unique,
        categories=tables,
        differences=differences,
        least_set=least,
        sites=moments.sites,
    )


def _by(grouping: Grouping, columns: TableColumns) -> str:
    """Return the name of what the groups are of."""
    return {NO_GROUPS: "", SITES: SITE}.get(grouping.by) or (columns.names[grouping.by] if grouping.by >= 0 else "")


def _rank_edges(
    seen: Federation, numbers: NDArray[np.int64], moments: GroupMoments, found: Any, levels: Sequence[float], ranks: str
) -> list[NDArray[np.float64]]:
    if ranks == "exact" and len(numbers):
        return distinct_values(seen, numbers)
    low, high = found[levels.index(0.25), 0], found[levels.index(0.75), 0]
    return [rank_edges(*map(float, one)) for one in zip(low, high, moments.mean[0], moments.std[0], strict=True)]


def _differences(
    columns: TableColumns,
    grouping: Grouping,
    moments: GroupMoments,
    binned: Sequence[Counts],
    few: Flags,
    tables: Mapping[str, CategoryCounts],
) -> tuple[GroupDifference, ...]:
    """Return the tests between groups of which nothing is suppressed."""
    found = []
    for place, j in enumerate(columns.numbers.tolist()):
        some = np.flatnonzero(~few[1:, place]) + 1
        n, mean, variance = (values[some, place] for values in (moments.n, moments.mean, moments.variance))
        tests = (means_test(n.astype(np.float64), mean, variance), ranks_test(binned[place][some].astype(np.float64)))
        found.append(GroupDifference(columns.names[j], tests, means_apart(mean, variance)))
    for column, table in tables.items():
        if grouping.by >= 0 and column == columns.names[grouping.by]:
            continue
        counts = table.counts[1:, :-1]
        counts = counts[~np.isnan(counts).any(axis=1)]
        test = counts_test(counts if len(counts) > 1 else np.zeros((1, 1)))
        found.append(GroupDifference(column, (test,), shares_apart(counts) if len(counts) > 1 else np.nan))
    order = {name: i for i, name in enumerate(columns.names)}
    return tuple(sorted(found, key=lambda one: order[one.column]))


def _wide(values: NDArray[Any], numbers: NDArray[np.int64], d: int) -> NDArray[np.float64]:
    """Return statistics of the columns of numbers as those of all columns, NaN for text."""
    wide = np.full((len(values), d), np.nan)
    wide[:, numbers] = values
    return wide

"""An overview of a table: description, histograms, correlations, and which site differs, in one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedspan.checks import whole_number
from fedspan.federation import Federation, RunRecord
from fedspan.statistics.describe.describe_table import LEAST_SET, described
from fedspan.statistics.describe.description import Description
from fedspan.statistics.describe.histograms import Histogram, histograms_of
from fedspan.statistics.describe.pair_statistics import PairTable, pair_table
from fedspan.statistics.describe.parts.shown_frame import OfRun
from fedspan.statistics.describe.parts.table_columns import (
    federation_of,
    grouping_of,
    named_columns,
    read_columns,
    text_columns,
)
from fedspan.statistics.describe.site_differences import SiteDifferences, site_differences_of

_QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Overview(OfRun):
    """What `overview` found: all of one run, and of the same rows.

    `correlation` is ``None`` without columns of numbers, `differences` under secure sums and with one site.
    """

    description: Description
    histograms: tuple[Histogram, ...]
    correlation: PairTable | None
    differences: SiteDifferences | None

    run_ = RunRecord("overview", {}, number=0, seed=0, sites=())


def overview(
    fed: Federation,
    by: str | int | None = None,
    *,
    categorical: str | Sequence[str | int] = "auto",
    categories: Mapping[str | int, Sequence[str]] | None = None,
    max_categories: int = 12,
    bins: int = 20,
    least_set: int = LEAST_SET,
) -> Overview:
    """Describe a table, draw up its histograms and correlations, and compare its sites, in one run.

    Parameters
    ----------
    fed : Federation
    by : column, optional
        A column of groups, or ``"site"``. Rows without a group are then in no description and no histogram.
    categorical, categories, max_categories
        Columns of text and their names, as in `fedspan.describe`.
    bins : int, default=20
        About the number of bins of a histogram.
    least_set : int, default=5
        Counts of fewer rows are suppressed.

    Examples
    --------
    >>> import numpy as np, fedspan as fs
    >>> rows = np.random.default_rng(0).normal(size=(90, 2))
    >>> found = overview(fs.federate(rows, sites=np.arange(90) % 3))
    >>> found.description.rows, len(found.histograms), found.differences.differing()
    (array([90.]), 2, {})
    """
    for name, value in (("max_categories", max_categories), ("bins", bins), ("least_set", least_set)):
        whole_number(name, value, 1)
    with federation_of(fed, "overview").begin("overview", {"by": by, "bins": bins, "least_set": least_set}) as run:
        names, seen = named_columns(run)
        as_text = text_columns(by, names)
        columns, seen = read_columns(seen, names, categorical=categorical, categories=categories, as_text=as_text)
        grouping = grouping_of(by, columns, seen)
        description = described(seen, columns, grouping, _QUARTILES, max_categories, least_set, True, "bins")
        numbers = [int(j) for j in columns.numbers]
        bars = histograms_of(seen, columns, numbers, bins, grouping, least_set, together=True) if numbers else []
        pairs = pair_table(seen, columns, "pearson", "bins", least_set) if numbers else None
        single = len(seen.sites) > 1 and not seen.policy.secure_sum
        differences = site_differences_of(seen, columns, least_set, 2, max_categories) if single else None
        if numbers and pairs is not None:  # what the description hides of all rows, no other table shows
            hidden = np.isnan(description.count[0, numbers])
            bars = [one.suppressed() if few else one for one, few in zip(bars, hidden, strict=True)]
            pairs = pairs.suppressed(hidden)
        return Overview(description, tuple(bars), pairs, differences).of(run)

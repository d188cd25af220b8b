"""Histograms over common edges: the counts of all rows and of each group, by one sum.

Without given edges these are round numbers around the 1 % and the 99 % quantile. The smallest and the largest value are
not requested: values beyond the edges are counted together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.arrays import Counts
from fedspan.checks import needs_pandas, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, RunRecord
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.privacy.mechanisms import GaussianMoments, check_moments
from fedspan.statistics.describe.description import ALL, apart_from
from fedspan.statistics.describe.noisy_tables import check_public, noisy_bins
from fedspan.statistics.describe.parts.exact_quantiles import group_quantiles
from fedspan.statistics.describe.parts.group_counts import bin_counts
from fedspan.statistics.describe.parts.grouped_rows import Grouping
from fedspan.statistics.describe.parts.shown_frame import ShownFrame
from fedspan.statistics.describe.parts.suppression import hidden_groups, hidden_in_groups, shown
from fedspan.statistics.describe.parts.table_columns import (
    TableColumns,
    federation_of,
    grouping_of,
    named_columns,
    position,
    public_columns,
    read_columns,
    text_columns,
)
from fedspan.statistics.describe.parts.value_bins import round_edges

if TYPE_CHECKING:
    import pandas as pd

_ENDS = (0.01, 0.99)
_MOST_BINS = 10_000


@dataclass(frozen=True, repr=False)
class Histogram(ShownFrame):
    """Counts of a column's values between edges (B + 1,), below and above them; NaN where they are suppressed.

    `counts` (1 + G, B), `below` and `above` (1 + G,) are about all rows first, then about each of the `groups`. The
    last bin includes its upper edge, as in numpy.
    """

    column: str
    edges: Vector
    counts: Matrix
    below: Vector
    above: Vector
    groups: tuple[str, ...]

    run_ = RunRecord("histogram", {}, number=0, seed=0, sites=())

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each bin, with its edges, and a column of counts for all rows and each group."""
        needs_pandas()
        import pandas as pd

        edges = np.r_[-np.inf, self.edges, np.inf]
        counts = np.column_stack([self.below, self.counts, self.above]).T
        frame = pd.DataFrame(counts, columns=[ALL, *self.groups])
        for at, (name, ends) in enumerate(
            zip(apart_from(("from", "to"), self.groups), (edges[:-1], edges[1:]), strict=True)
        ):
            frame.insert(at, name, ends)
        return frame

    def suppressed(self) -> Histogram:
        """Return the histogram without its counts."""
        none = np.full(len(self.below), np.nan)
        return replace(self, counts=np.full(self.counts.shape, np.nan), below=none, above=none)


def histogram(
    fed: Federation,
    column: str | int,
    *,
    bins: int | Sequence[float] = 20,
    by: str | int | None = None,
    categories: Mapping[str | int, Sequence[str]] | None = None,
    least_set: int = 5,
    privacy: GaussianMoments | None = None,
) -> Histogram:
    """Count the values of a column in bins.

    Parameters
    ----------
    fed : Federation
    column : str or int
        A column of numbers.
    bins : int or list of float, default=20
        About this number of equal bins at round numbers between the 1 % and the 99 % quantile; or rising edges.
    by : column, optional
        A column of groups, or ``"site"``: the bins are counted for each.
    categories : dict of column to list of names, optional
        The names of the groups; under secure sums they must be given.
    least_set : int, default=5
        Counts of fewer rows are suppressed, and more counts, so that totals do not give them back.
    privacy : GaussianMoments, optional
        Differential privacy: counts with noise, none of which is suppressed, in this number of equal bins between the
        bounds ``lower`` and ``upper`` of this column.

    Examples
    --------
    >>> import fedspan as fs
    >>> fed = fs.federate(np.arange(100.0)[:, None], sites=np.arange(100) % 3)
    >>> found = histogram(fed, 0, bins=[0, 25, 50, 100])
    >>> found.counts[0], found.below[0]
    (array([25., 25., 50.]), np.float64(0.0))
    """
    whole_number("least_set", least_set, 1)
    edges = _checked_edges(bins)
    check_moments(privacy)
    settings = {"column": column, "bins": bins, "by": by, "least_set": least_set, "privacy": privacy}
    with federation_of(fed, "histogram").begin("histogram", settings) as run:
        names, seen = named_columns(run)
        place = position(column, names, "column")
        if privacy is not None:
            return _noisy_histogram(seen, names, place, bins, by, categories, privacy).of(run)
        as_text = text_columns(by, names)
        columns, seen = read_columns(seen, names, categories=categories, as_text=as_text)
        if columns.text[place]:
            raise InputError(f"column={column!r} holds text, and a histogram is of numbers: use describe")
        grouping = grouping_of(by, columns, seen)
        found = histograms_of(seen, columns, [place], edges if edges is not None else bins, grouping, least_set)
        return found[0].of(run)


def histograms_of(
    seen: Federation,
    columns: TableColumns,
    wanted: Sequence[int],
    bins: Any,
    grouping: Grouping,
    least: int,
    *,
    together: bool = False,
) -> list[Histogram]:
    """Return the histograms of some columns of numbers, over `bins` edges, or over this number of round bins.

    With `together` only those of all groups together are kept.
    """
    at = np.array(list(wanted), dtype=np.int64)
    if isinstance(bins, np.ndarray):
        edges = [bins] * len(at)
    else:
        ends = group_quantiles(seen, columns=at, levels=_ENDS, grouping=Grouping())[:, 0]
        edges = [round_edges(float(low), float(high), int(bins)) for low, high in ends.T]
        # A column of one value has a bin of this value, one without values any.
        edges = [own if len(own) > 1 else np.r_[own, own] if len(own) else np.array([0.0, 1.0]) for own in edges]
    # The last bin includes its upper edge.
    closed = [np.r_[own[:-1], np.nextafter(own[-1:], math.inf)] for own in edges]
    counted = bin_counts(seen, columns=at, edges=closed, grouping=grouping)
    return [
        _histogram(columns.names[j], own, counts[: 1 if together else None], () if together else grouping.names, least)
        for j, own, counts in zip(wanted, edges, counted, strict=True)
    ]


def _histogram(name: str, edges: Vector, counts: Counts, groups: tuple[str, ...], least: int) -> Histogram:
    hidden = hidden_in_groups(counts, hidden_groups(counts.sum(axis=1), least), least, [True] * counts.shape[1])
    kept = shown(counts, hidden)
    return Histogram(name, edges, kept[:, 1:-1], kept[:, 0], kept[:, -1], groups)


def _noisy_histogram(
    seen: Federation,
    names: tuple[str, ...],
    place: int,
    bins: Any,
    by: str | int | None,
    categories: Mapping[str | int, Sequence[str]] | None,
    privacy: GaussianMoments,
) -> Histogram:
    """Return counts with noise, in equal bins between the public bounds."""
    if np.ndim(bins):
        raise InputError(f"bins={bins!r} are edges, and under privacy the bounds of the mechanism are: give a number")
    columns = public_columns(names, categories)
    check_public(seen, columns, categories, [position(by, names, "by")] if by is not None else [])
    grouping = grouping_of(by, columns, seen)
    edges, counts = noisy_bins(seen, place, grouping, privacy, int(bins))
    none = np.zeros(len(counts))
    return Histogram(names[place], edges, counts, none, none, grouping.names)


def _checked_edges(bins: Any) -> Vector | None:
    """Return edges that were given, or ``None`` for a number of bins."""
    if isinstance(bins, int | np.integer) or np.ndim(bins) == 0:
        whole_number("bins", bins, 1, _MOST_BINS)
        return None
    edges = np.asarray(bins, dtype=np.float64)
    if edges.ndim != 1 or len(edges) < 2 or not np.isfinite(edges).all() or np.any(np.diff(edges) <= 0):
        raise InputError(f"bins={bins!r} must be a number of bins, or at least two finite edges that rise")
    return edges

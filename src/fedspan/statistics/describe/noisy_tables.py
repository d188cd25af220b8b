"""Descriptions, histograms and crosstabs under differential privacy: one sum with noise over public bins and names.

A row adds at most 1 to each of these sums, of its own group alone: its number, and of each column of numbers whether it
has a value, that value and its square in units of the public bounds, and its bin; of each column of text its name. So
adding or removing a row moves a reply by at most ``sqrt(1 + 4 d + t)``, with d columns of numbers and t of text. Values
beyond the bounds are moved to them. Quantiles are interpolated within bins.

Up per site: (1 + 3 d + bins + names) (1 + groups) numbers, once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError, PolicyError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Index, Labels, Matrix, Vector, Whole
from fedspan.privacy.mechanisms import GaussianMoments, per_column
from fedspan.privacy.noisy_sums import NoiseShare, charged_noise, noisy_sums
from fedspan.statistics.describe.description import CategoryCounts, Description
from fedspan.statistics.describe.parts.group_counts import name_codes
from fedspan.statistics.describe.parts.grouped_rows import (
    SITES,
    By,
    Grouping,
    Numbers,
    grouped_rows,
    numbers_of,
    pair_counts,
    sites_are_groups,
)
from fedspan.statistics.describe.parts.table_columns import TableColumns
from fedspan.sums.plausible_totals import whole
from fedspan.tables.parts.category_union import Lines, packed, unpacked

#: The number of equal bins between the bounds of a column.
BINS = 64
Bins = Annotated[int, Whole(1, 10_000)]


@step("describe.noisy_table", reveals="sums", noisy=True, by_site=sites_are_groups)
def local_noisy_table(
    site: Site,
    columns: Numbers,
    low: Vector,
    high: Vector,
    bins: Bins,
    text: Numbers,
    listed: Lines,
    sizes: Numbers,
    by: By,
    groups: Labels,
    **noise: Unpack[NoiseShare],
) -> dict[str, Any]:
    """Leaves the site: by group its rows, sums and squares of scaled columns, counts in bins and of names, with noise.

    Charged.
    """
    _refuse_mixed(site)
    _refuse_bounds(columns, low, high)
    sensitivity = table_sensitivity(len(columns), len(text))
    noisy = charged_noise(site, sensitivity, noise)
    values = numbers_of(site, columns)
    known = ~np.isnan(values)
    U = np.where(known, np.clip(2 * (values - low) / (high - low) - 1, -1.0, 1.0), 0.0)
    place = np.clip(((U + 1) / 2 * bins).astype(np.intp), 0, bins - 1)
    lists = unpacked(listed, sizes)
    parts = grouped_rows(site, by, groups)
    d, names = len(columns), int(np.sum(sizes + 2))
    parts = parts[1:] if len(parts) > 1 else parts  # all groups together follow from each
    exact = np.zeros((len(parts), 1 + 3 * d + d * bins + names))
    for g, part in enumerate(parts):
        moments = [known[part].sum(axis=0), U[part].sum(axis=0), np.square(U[part]).sum(axis=0)]
        counts = [np.bincount(place[part, j][known[part, j]], minlength=bins) for j in range(d)]
        counts += [
            np.bincount(name_codes(site, int(j), own)[part], minlength=len(own) + 2)
            for j, own in zip(text, lists, strict=True)
        ]
        exact[g] = np.concatenate([[len(U[part])], *moments, *counts])
    return {"sums": noisy(exact)}


@step("describe.noisy_bins", reveals="sums", noisy=True, by_site=sites_are_groups)
def local_noisy_bins(
    site: Site, column: Index, low: float, high: float, bins: Bins, by: By, groups: Labels, **noise: Unpack[NoiseShare]
) -> dict[str, Any]:
    """Leaves the site: by group the number of values of a column in equal bins, with noise; charged."""
    _refuse_mixed(site)
    _refuse_bounds(np.array([column]), np.array([low]), np.array([high]))
    noisy = charged_noise(site, 1.0, noise)
    values = numbers_of(site, np.array([column]))[:, 0]
    parts = grouped_rows(site, by, groups)
    parts = parts[1:] if len(parts) > 1 else parts
    counts = np.zeros((len(parts), bins))
    for g, part in enumerate(parts):
        known = values[part][~np.isnan(values[part])]
        place = np.clip((known - low) / (high - low) * bins, 0, bins - 1).astype(np.intp)
        counts[g] = np.bincount(place, minlength=bins)
    return {"counts": noisy(counts)}


@step("describe.noisy_cross_counts", reveals="sums", noisy=True)
def local_noisy_cross_counts(
    site: Site, first: Index, second: Index, first_names: Labels, second_names: Labels, **noise: Unpack[NoiseShare]
) -> dict[str, Any]:
    """Leaves the site: the number of rows for each pair of names of two columns, with noise; charged."""
    _refuse_mixed(site)
    noisy = charged_noise(site, 1.0, noise)
    return {"counts": noisy(pair_counts(site, first, second, first_names, second_names).astype(np.float64))}


def table_sensitivity(numbers: int, text: int) -> float:
    """Return how far one row can move a reply of `local_noisy_table`."""
    return math.sqrt(1 + 4 * numbers + text)


@dataclass(frozen=True)
class NoisyTable:
    """Sums with noise of all groups together, then of each: rows (1 + G,), moments (1 + G, d), counts in bins.

    `edges` (d, bins + 1) and `bins` (1 + G, d, bins) are of the columns of numbers, `names` by column of text.
    """

    rows: Vector
    n: Matrix
    mean: Matrix
    std: Matrix
    edges: Matrix
    bins: NDArray[np.float64]
    names: dict[int, Matrix]
    sites: tuple[str, ...]

    def quantile(self, level: float) -> Matrix:
        """Return the quantiles (1 + G, d), interpolated within bins."""
        up_to = np.cumsum(np.maximum(self.bins, 0.0), axis=2)
        total = np.maximum(up_to[..., -1:], 1e-300)
        shares = np.concatenate([np.zeros((*total.shape[:2], 1)), up_to / total], axis=2)
        found = np.full(total.shape[:2], np.nan)
        for g, j in np.ndindex(found.shape):
            if up_to[g, j, -1] > 0:
                found[g, j] = np.interp(level, shares[g, j], self.edges[j])
        return found


def noisy_table(
    seen: Federation, columns: TableColumns, grouping: Grouping, privacy: GaussianMoments, bins: int = BINS
) -> NoisyTable:
    """Return the sums of a table, from one request with noise that spends all of `privacy`."""
    if grouping.by == SITES:
        raise InputError("by='site' compares single sites, and noise hides them: use another column, or no privacy")
    numbers, text = columns.numbers, np.flatnonzero(columns.text).astype(np.int64)
    low, high = _bounds_of(privacy, len(numbers))
    lists = [columns.categories[int(j)] for j in text]
    sent = packed(lists)
    covers = "all sums, and so all numbers of the description"
    with noisy_sums(privacy, seen, {local_noisy_table: (1.0, 1)}, covers) as noisy:
        total = noisy.sum(
            seen,
            local_noisy_table,
            columns=numbers,
            low=low,
            high=high,
            bins=bins,
            text=text,
            listed=sent["names"],
            sizes=sent["sizes"],
            **grouping.payload,
        )
        noise = noisy.deviation(seen, local_noisy_table, table_sensitivity(len(numbers), len(text)))
    d, G = len(numbers), max(1, len(grouping.names))
    whole(total, sums=(G, 1 + 3 * d + d * bins + int(np.sum(sent["sizes"] + 2))))
    sums = total["sums"]
    if grouping.names:
        sums = np.concatenate([sums.sum(axis=0, keepdims=True), sums])
    rows, n, first, second, rest = np.split(sums, [1, 1 + d, 1 + 2 * d, 1 + 3 * d], axis=1)
    some = np.maximum(n, 1.0)
    mean = np.clip(first / some, -1.0, 1.0)
    variance = np.clip(second / some, 0.0, 1.0) - mean**2
    clear = variance > 2 * noise / some
    half = (high - low) / 2
    std = np.sqrt(np.where(clear, variance, 0.0)) * half
    ends = np.cumsum(sent["sizes"] + 2)
    named = np.split(rest[:, d * bins :], ends[:-1], axis=1) if len(text) else []
    return NoisyTable(
        rows[:, 0],
        n,
        np.where(n >= 1, low + half + mean * half, np.nan),
        np.where((n >= 2) & clear, std, np.nan),
        low[:, None] + (high - low)[:, None] * np.linspace(0, 1, bins + 1),
        rest[:, : d * bins].reshape(len(sums), d, bins),
        dict(zip(text.tolist(), named, strict=True)),
        tuple(total.sites),
    )


def noisy_description(
    seen: Federation, columns: TableColumns, grouping: Grouping, levels: Sequence[float], privacy: GaussianMoments
) -> Description:
    """Return a description from sums with noise. Nothing is suppressed: the noise covers single rows."""
    found = noisy_table(seen, columns, grouping, privacy)
    numbers, d = columns.numbers, len(columns.names)

    def wide(values: Any) -> Matrix:
        table = np.full((len(found.rows), d), np.nan)
        table[:, numbers] = values
        return table

    count, missing = wide(found.n), wide(found.rows[:, None] - found.n)
    tables = {}
    for j, counts in found.names.items():
        tables[columns.names[j]] = CategoryCounts(columns.categories[j], counts)
        count[:, j], missing[:, j] = counts[:, :-1].sum(axis=1), counts[:, -1]
    none = np.full(count.shape, np.nan)
    return Description(
        columns=columns.names,
        kinds=tuple("text" if text else "number" for text in columns.text),
        by=columns.names[grouping.by] if grouping.by >= 0 else "",
        groups=grouping.names,
        levels=tuple(levels),
        rows=found.rows,
        count=count,
        missing=missing,
        mean=wide(found.mean),
        std=wide(found.std),
        min=none,
        max=none,
        quantiles=np.array([wide(found.quantile(level)) for level in levels]).reshape(-1, *count.shape),
        unique=np.full(d, np.nan),
        categories=tables,
        differences=(),
        least_set=1,
        sites=found.sites,
    )


def noisy_bins(
    seen: Federation, column: int, grouping: Grouping, privacy: GaussianMoments, bins: int
) -> tuple[Vector, Matrix]:
    """Return the edges and the counts (1 + G, bins) of one column, with noise."""
    low, high = _bounds_of(privacy, 1)
    with noisy_sums(privacy, seen, {local_noisy_bins: (1.0, 1)}, "all counts") as noisy:
        total = noisy.sum(
            seen, local_noisy_bins, column=column, low=float(low[0]), high=float(high[0]), bins=bins, **grouping.payload
        )
    counts = whole(total, counts=(max(1, len(grouping.names)), bins))["counts"]
    if grouping.names:
        counts = np.concatenate([counts.sum(axis=0, keepdims=True), counts])
    return np.linspace(low[0], high[0], bins + 1), counts


def noisy_cross_counts(
    seen: Federation, at: tuple[int, int], names: Sequence[Sequence[str]], privacy: GaussianMoments
) -> Matrix:
    """Return the counts of pairs of names of two columns, with noise."""
    first_names, second_names = (np.array(own, dtype=str) for own in names)
    with noisy_sums(privacy, seen, {local_noisy_cross_counts: (1.0, 1)}, "all counts") as noisy:
        total = noisy.sum(
            seen,
            local_noisy_cross_counts,
            first=at[0],
            second=at[1],
            first_names=first_names,
            second_names=second_names,
        )
    counts: Matrix = whole(total, counts=(len(names[0]), len(names[1])))["counts"]
    return counts


def check_public(
    seen: Federation, columns: TableColumns, categories: Mapping[Any, Any] | None, wanted: Sequence[int] = ()
) -> None:
    """Refuse columns of text whose names are not given, because names have no noise, and transforms in front.

    A transform may round a row in another way beside other rows, and so move it to another bin.
    """
    if seen.plain_transforms:
        raise InputError(
            f"the rows are seen through {', '.join(seen.plain_transforms)}, and counts with noise need them as they "
            "are: describe the federation without transforms"
        )
    for j in wanted:
        if j not in columns.categories:
            raise InputError(
                f"column {columns.names[j]!r} needs its names beforehand, because names of rows have no noise: "
                f"categories={{{columns.names[j]!r}: [...]}} beside privacy"
            )
    if categories is not None and any(len(own) == 0 for own in columns.categories.values()):
        raise InputError("categories has a column without names, and under privacy no site sends any")


def _bounds_of(privacy: GaussianMoments, columns: int) -> tuple[Vector, Vector]:
    """Return the public bounds of the columns of numbers: one for all, or one for each of them."""
    if privacy.clip is not None:
        raise InputError(f"{privacy!r} bounds rows by a ball, and columns need bounds of their own: lower, upper")
    return per_column("lower", privacy.lower, columns), per_column("upper", privacy.upper, columns)


def _refuse_mixed(site: Site) -> None:
    """Refuse transforms that may round a row in another way beside other rows, and so move it to another bin."""
    if not site.elementwise:
        raise PolicyError(
            "counts with noise need rows as they are, or through transforms that treat each cell by itself: describe "
            "the federation without the others"
        )


def _refuse_bounds(columns: Numbers, low: Vector, high: Vector) -> None:
    if not (low.shape == high.shape == columns.shape) or not np.all(low < high) or np.any(np.abs([low, high]) > 1e100):
        raise InputError("low must be below high in every column, and both within 1e100")

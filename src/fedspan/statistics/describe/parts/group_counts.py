"""Counts by group: rows that hold each name of a column, and values between edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Counts
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import ArrayOf, Labels, Vector
from fedspan.statistics.describe.parts.grouped_rows import (
    By,
    Grouping,
    Numbers,
    fewest_rows,
    grouped_rows,
    numbers_of,
    sites_are_groups,
)
from fedspan.sums.plausible_totals import whole
from fedspan.tables.parts.category_union import Lines, packed, unpacked
from fedspan.tables.parts.cells import column, names, tables

#: Edges of bins, one list after another: rising within each, which may begin and end with infinite ones.
Edges = Annotated[NDArray[np.float64], ArrayOf("float", 1)]


@step("describe.category_counts", reveals="sums", fewest=fewest_rows, fewest_in_sums=False, by_site=sites_are_groups)
def local_category_counts(
    site: Site, columns: Numbers, listed: Lines, sizes: Numbers, by: By, groups: Labels
) -> dict[str, Any]:
    """Leaves the site: by group and column the rows that hold each of the names listed, another name, or no name."""
    parts = grouped_rows(site, by, groups)
    counts = np.zeros((len(parts), int(sizes.sum()) + 2 * len(columns)), dtype=np.int64)
    at = 0
    for j, known in zip(columns.tolist(), unpacked(listed, sizes), strict=True):
        codes = name_codes(site, j, known)
        for g, part in enumerate(parts):
            counts[g, at : at + len(known) + 2] = np.bincount(codes[part], minlength=len(known) + 2)
        at += len(known) + 2
    return {"counts": counts}


@step("describe.bin_counts", reveals="sums", fewest=fewest_rows, fewest_in_sums=False, by_site=sites_are_groups)
def local_bin_counts(
    site: Site, columns: Numbers, edges: Edges, sizes: Numbers, by: By, groups: Labels
) -> dict[str, Any]:
    """Leaves the site: by group and column the number of values below, between and above the edges.

    A value at an edge is in the bin above it. Missing values are in no bin.
    """
    values = numbers_of(site, columns)
    parts = grouped_rows(site, by, groups)
    counts = np.zeros((len(parts), int(sizes.sum()) + len(columns)), dtype=np.int64)
    at = 0
    for j, own in enumerate(np.split(edges, np.cumsum(sizes)[:-1])):
        place = np.searchsorted(own, values[:, j], side="right")
        place[np.isnan(values[:, j])] = len(own) + 1
        for g, part in enumerate(parts):
            counts[g, at : at + len(own) + 1] = np.bincount(place[part], minlength=len(own) + 2)[: len(own) + 1]
        at += len(own) + 1
    return {"counts": counts}


def category_counts(
    seen: Federation, *, categories: Mapping[int, Sequence[str]], grouping: Grouping
) -> dict[int, Counts]:
    """Return by column the counts (1 + G, names + 2): of its names, of other names, of missing cells."""
    if not categories:
        return {}
    columns = np.array(list(categories), dtype=np.int64)
    sent = packed(list(categories.values()))
    ends = np.cumsum(sent["sizes"] + 2)
    total = seen.sum(
        local_category_counts, columns=columns, listed=sent["names"], sizes=sent["sizes"], **grouping.payload
    )
    whole(total, counts=(1 + len(grouping.names), int(ends[-1])))
    found = np.split(np.maximum(total["counts"], 0), ends[:-1], axis=1)
    return dict(zip(categories, found, strict=True))


def bin_counts(
    seen: Federation, *, columns: NDArray[np.int64], edges: Sequence[Vector], grouping: Grouping
) -> list[Counts]:
    """Return for each column the counts (1 + G, edges + 1) below, between and from its `edges` on."""
    if not len(columns):
        return []
    sizes = np.array([len(own) for own in edges], dtype=np.int64)
    total = seen.sum(local_bin_counts, columns=columns, edges=np.concatenate([*edges]), sizes=sizes, **grouping.payload)
    ends = np.cumsum(sizes + 1)
    whole(total, counts=(1 + len(grouping.names), int(ends[-1])))
    return np.split(np.maximum(total["counts"], 0), ends[:-1], axis=1)


def name_codes(site: Site, j: int, known: Sequence[str]) -> NDArray[np.intp]:
    """Return the place among `known` of each row's name in column `j`; one more for others, two more for none."""

    def make() -> NDArray[np.intp]:
        place = {text: i for i, text in enumerate(known)} | {"": len(known) + 1}
        found = [np.zeros(0, dtype=np.intp)]
        for rows in tables(site):
            texts, codes = names(column(rows, j))
            found.append(np.array([place.get(text, len(known)) for text in texts], dtype=np.intp)[codes])
        return np.concatenate(found)

    return site.last_of(f"names of column {j}", tuple(known), make)

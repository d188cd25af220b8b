"""The smallest and the largest value of each column, by group, where the owners of all sites allow it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import MessageError, QuorumError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Labels, Matrix
from fedspan.statistics.describe.parts.grouped_rows import (
    By,
    Grouping,
    Numbers,
    grouped_rows,
    numbers_of,
    sites_are_groups,
)
from fedspan.sums.posted_values import requested
from fedspan.wire import Message


@step("describe.extremes", reveals="rows", by_site=sites_are_groups)
def local_extremes(site: Site, columns: Numbers, by: By, groups: Labels) -> dict[str, Any]:
    """Leaves the site: by group the smallest and the largest value of each column, which are values of single rows."""
    values = numbers_of(site, columns)
    parts = grouped_rows(site, by, groups)
    some = np.zeros((len(parts), len(columns)), dtype=bool)
    low, high = np.zeros(some.shape), np.zeros(some.shape)
    for g, part in enumerate(parts):
        known = ~np.isnan(values[part])
        some[g] = known.any(axis=0)
        low[g] = np.where(some[g], np.min(values[part], axis=0, initial=np.inf, where=known), 0.0)
        high[g] = np.where(some[g], np.max(values[part], axis=0, initial=-np.inf, where=known), 0.0)
    return {"some": some, "low": low, "high": high}


def group_extremes(seen: Federation, *, columns: NDArray[np.int64], grouping: Grouping) -> tuple[Matrix, Matrix]:
    """Return smallest and largest values (1 + G, d); NaN without values, and where not all sites send theirs."""
    shape = (1 + len(grouping.names), len(columns))
    unknown = np.full(shape, np.nan)
    if seen.policy.secure_sum or not len(columns):
        return unknown, unknown

    def check(reply: Message) -> Message:
        if any(np.shape(reply[key]) != shape for key in ("some", "low", "high")):
            raise MessageError("this site's extremes are not one for each group and column")
        return reply

    try:
        found, refused = requested(seen, seen.sites, local_extremes, check, columns=columns, **grouping.payload)
    except QuorumError:
        return unknown, unknown
    if refused:
        return unknown, unknown
    some, low, high = (np.stack([reply[key] for reply in found.values()]) for key in ("some", "low", "high"))
    some = some.astype(bool)
    known = some.any(axis=0)
    smallest = np.min(low, axis=0, initial=np.inf, where=some)
    largest = np.max(high, axis=0, initial=-np.inf, where=some)
    return np.where(known, smallest, np.nan), np.where(known, largest, np.nan)

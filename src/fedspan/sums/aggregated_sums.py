"""Sums that sites send, aggregated per row: so that a site counts alike whatever number of rows it says it has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedspan.aggregation import Aggregate, Aggregator
from fedspan.aggregation.base import believed
from fedspan.federation import Replies
from fedspan.sums.moments import typical_rows


def aggregated(replies: Replies, keys: Sequence[str], aggregator: Aggregator) -> tuple[list[Aggregate], int]:
    """Return each key's sums divided by the sites' numbers of rows and aggregated, and the number of all rows."""
    counts = replies.stack("n")
    weights = believed(aggregator, counts)
    found = []
    for key in keys:
        sums = replies.stack(key)
        per_row = np.maximum(counts, 1).reshape(-1, *[1] * (sums.ndim - 1))
        found.append(aggregator(sums / per_row, weights))
    return found, typical_rows(counts)

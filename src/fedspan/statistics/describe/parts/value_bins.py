"""Edges that divide the values of a column: equal bins between quantiles, round numbers, or all distinct values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import MessageError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Vector
from fedspan.statistics.describe.parts.grouped_rows import Numbers, numbers_of
from fedspan.sums.posted_values import posted
from fedspan.wire import Message

#: The number of bins in which ranks are compared; values of whole numbers over such a range have a bin each.
RANK_BINS = 256
#: Where the bins end, in quartile distances from the quartiles.
_FENCE = 3.0


@step("describe.column_values", reveals="rows", ragged=["values"])
def local_column_values(site: Site, columns: Numbers) -> dict[str, Any]:
    """Leaves the site: all distinct values of each column, sorted, without the rows that hold them."""
    values = numbers_of(site, columns)
    found = [np.unique(column[~np.isnan(column)]) for column in values.T]
    return {"values": np.concatenate([np.zeros(0), *found]), "sizes": np.array([len(one) for one in found])}


def distinct_values(seen: Federation, columns: NDArray[np.int64]) -> list[Vector]:
    """Return all distinct values of each column at all sites: as edges, each value has a bin of its own."""
    seen.need_single_replies("ranks='exact'")

    def check(reply: Message) -> Message:
        values, sizes = reply["values"], reply["sizes"]
        if np.shape(sizes) != (len(columns),) or np.ndim(values) != 1 or np.min(sizes, initial=0) < 0:
            raise MessageError("this site's values are not a list for each column")
        if np.sum(sizes) != len(values):
            raise MessageError("this site sent another number of values than it announced")
        return reply

    replies = posted(seen, local_column_values, "ranks", check, columns=columns)
    lists = [np.split(reply["values"], np.cumsum(reply["sizes"])[:-1]) for reply in replies.values()]
    return [np.unique(np.concatenate(own)) for own in zip(*lists, strict=True)]


def rank_edges(low: float, high: float, mean: float, std: float) -> Vector:
    """Return edges of about `RANK_BINS` equal bins around the quartiles `low` and `high`.

    Their width is a power of two, and their middles are multiples of it. So whole numbers, and decimals in a small
    range, have a bin each.

    Examples
    --------
    >>> edges = rank_edges(40.0, 60.0, 50.0, 15.0)
    >>> edges[[0, 1, -1]]
    array([-20.5, -19.5, 119.5])
    """
    reach = _FENCE * (high - low) or 2 * _FENCE * std
    if not all(map(math.isfinite, (low, high, reach))) or not 0 < reach < 1e100 or abs(low) > 1e15 * reach:
        return np.zeros(0) if not math.isfinite(mean) else np.array([mean])
    width = 2.0 ** math.ceil(math.log2((high - low + 2 * reach) / RANK_BINS))
    first, last = math.floor((low - reach) / width), math.floor((high + reach) / width)
    return np.asarray((np.arange(first, last + 1) - 0.5) * width)


def round_edges(low: float, high: float, bins: int) -> Vector:
    """Return edges of about `bins` equal bins over a range, at round numbers.

    >>> round_edges(-1.93, 2.41, 10)
    array([-2. , -1.5, -1. , -0.5,  0. ,  0.5,  1. ,  1.5,  2. ,  2.5])
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return np.zeros(0)
    apart = (high - low) / bins
    if not apart > 1e-12 * max(abs(low), abs(high), 1e-300):
        return np.array([low])
    size = 10.0 ** math.floor(math.log10(apart))
    width = min((size * step for step in (1, 2, 2.5, 5, 10)), key=lambda found: abs(math.log(found / apart)))
    first, last = math.floor(low / width + 1e-9), math.ceil(high / width - 1e-9)
    return np.round(np.arange(first, last + 1) * width, 12 - math.floor(math.log10(max(abs(low), abs(high), apart))))

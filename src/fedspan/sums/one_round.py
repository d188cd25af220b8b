"""Columns and moments of all rows in one call: each site sends its own mean and the products about it.

The coordinator merges the sites' replies (`fedspan.sums.row_moments`) and keeps the merged one alone. A secure sum adds
numbers and merges nothing: there `fedspan.sums.moments` makes two rounds of sums.

Up per site: at most d (d + 1) / 2 + 3 d numbers and the names of the columns; down: one number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from fedspan.errors import QuorumError
from fedspan.federation import Federation, Site, step
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.federation.site.parameters import Whole
from fedspan.sums.columns import (
    HOW_TO_FIX,
    WHY_LEFT_OUT,
    Columns,
    agree_on_columns,
    columns_of,
    columns_of_most,
    in_order_of,
    left_out,
    other_columns,
    reordered,
)
from fedspan.sums.row_blocks import bad_values, n_columns, stored_blocks
from fedspan.sums.row_moments import RowMoments
from fedspan.sums.sparse_rows import sparse_rows
from fedspan.wire import Message

#: Tables of at most this number of columns get all products; of wider ones the squares are enough.
Widest = Annotated[int, Whole(0, 2**20)]
ALL_WIDTHS = 2**20
ANOTHER_ORDER = "it has the columns of most sites in another order"
_ARRAYS = ("centre", "shift", "scatter", "bad")


def _merged(replies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the reply that all rows would give, from those of the sites."""
    with np.errstate(over="ignore", invalid="ignore"):  # the federation refuses a total that is not finite
        found = RowMoments.merged([_moments(reply) for reply in replies])
    bad = np.sum([reply["bad"] for reply in replies], axis=0)
    names = columns_of_most(dict(enumerate(replies))).names
    weighted = any(reply["weighted"] is True for reply in replies)
    texts = None if names is None else np.array(names, dtype=str)
    return {**found.message(), "bad": bad, "columns": len(bad), "names": texts, "weighted": weighted}


@step(
    "sums.moments", reveals="sums", moments=True, weighted=True, counts=["n"], ragged=["names", *_ARRAYS], merge=_merged
)
def local_moments(site: Site, widest: Widest) -> dict[str, Any]:
    """Leaves the site: number, weight, mean of its rows, products about it, names of columns, numbers of bad values.

    Of more than `widest` columns the squares about the mean. Bad values are not finite; where there are some, the
    moments are 0.
    """
    d = n_columns(site)
    products = d <= widest
    with np.errstate(over="ignore", invalid="ignore"):
        sparse = None if products else sparse_rows(site)
        if sparse is not None:
            found = sparse.moments()
        else:
            found = RowMoments.of_blocks(stored_blocks(site, d), d, products=products)
    bad = np.zeros(d, dtype=np.int64)
    if not math.isfinite(np.vdot(found.scatter, found.scatter)):  # or it overflows: check every value
        bad = bad_values(site)
        if bad.any():
            found = RowMoments.of_no_rows(d, products=products, n=len(site))
    return {**found.message(), "bad": bad, **columns_of(site, d)}


@dataclass(frozen=True)
class MergedMoments:
    """The moments of all rows, the sites that sent theirs, their columns, and values that are not finite (d,)."""

    rows: RowMoments
    sites: tuple[str, ...]
    columns: Columns
    bad: Any


@dataclass
class OneRound:
    """Agrees on the columns, and learns the moments of all rows, in the same call.

    Called with a federation it returns the columns of most sites, and the federation without those that have others, as
    `fedspan.sums.columns.agree_on_columns` does. `found` then has the moments.
    """

    widest: int = 0
    found: MergedMoments | None = field(default=None, init=False)

    def __call__(self, fed: Federation) -> tuple[Columns, Federation]:
        """Make the call."""
        self.found, fed = merged_moments(self.widest, fed)
        return self.found.columns, fed


Agree = Callable[[Federation], tuple[Columns, Federation]]


def merged_moments(widest: int, fed: Federation) -> tuple[MergedMoments, Federation]:
    """Return the moments of all rows, and the federation without the sites that have other columns than most.

    Tables of at most `widest` columns get all products about the mean, wider ones the squares. Where a site has its
    columns in another order, the call is made again, with the order of most sites.
    """

    def check(replies: Mapping[str, Message]) -> Mapping[str, Failure]:
        most, failures = columns_of_most(replies), {}
        shapes, right = _shapes(most.count, widest), set[Any]()
        for site, reply in replies.items():
            form = _form(reply)
            if form in right and reply["weight"] >= 0.0:
                continue
            if reordered(reply, most):
                failures[site] = Failure(FailureKind.REJECTED, ANOTHER_ORDER, facts={"reordered": True})
            elif (reason := other_columns(reply, most)) is not None:
                failures[site] = Failure(FailureKind.REJECTED, reason)
            elif (reason := _wrong(reply, shapes)) is not None:
                failures[site] = Failure(FailureKind.MISSHAPEN, reason)
            else:
                right.add(form)
        return failures

    try:
        total = fed.merge(local_moments, check, widest=widest)
    except QuorumError as error:
        # Too many sites have their columns in another order: agree on one first.
        if not any("reordered" in getattr(why, "facts", {}) for why in error.failed.values()):
            raise
        return merged_moments(widest, agree_on_columns(fed)[1])
    if any("reordered" in why.facts for why in total.failed.values()):  # once more, with all columns in one order
        most = Columns(total["columns"], tuple(map(str, total["names"])))
        return merged_moments(widest, in_order_of(most, fed))
    refused = {site: why.detail for site, why in total.failed.items() if why.kind is FailureKind.REJECTED}
    agreed = left_out(refused, fed, WHY_LEFT_OUT, HOW_TO_FIX)
    names = None if total["names"] is None else tuple(map(str, total["names"]))
    columns = Columns(total["columns"], names, total["weighted"])
    return MergedMoments(_moments(total), total.sites, columns, total["bad"]), agreed


def _moments(reply: Mapping[str, Any]) -> RowMoments:
    return RowMoments(reply["n"], reply["weight"], reply["centre"], reply["shift"], reply["scatter"])


def _shapes(d: int, widest: int) -> dict[str, tuple[int]]:
    """Return the shapes of the arrays in a reply of d columns."""
    return {"centre": (d,), "shift": (d,), "scatter": (d * (d + 1) // 2 if d <= widest else d,), "bad": (d,)}


def _form(reply: Message) -> Any:
    """Return what decides, beside the sign of the weight, whether a reply is right: most replies have one form."""
    names = reply.get("names")
    arrays = ((value.shape, value.dtype) for value in map(reply.get, _ARRAYS) if isinstance(value, np.ndarray))
    named = (names.tobytes(), names.dtype) if isinstance(names, np.ndarray) else type(names)
    count = reply.get("columns")
    return count if type(count) is int else None, type(reply.get("weight")), named, *arrays


def _wrong(reply: Message, shapes: Mapping[str, tuple[int]]) -> str | None:
    """Return what is wrong with a reply that no honest site sends; ``None`` if nothing is."""
    for key, shape in shapes.items():
        value = reply.get(key)
        if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype.kind not in "iuf":
            return f"it sent other moments than most sites: {key!r} must have the shape {shape}"
    weight = reply.get("weight")
    if not isinstance(weight, float | int) or isinstance(weight, bool) or not weight >= 0:
        return f"it sent the weight {weight!r:.40}, and must send a number of at least 0"
    return None

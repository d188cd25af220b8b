"""The distribution of scores as counts between fixed edges: a bounded sketch that only sums are needed for.

The edges of a score are placed once, around its median and its 0.95 quantile. With w the distance between these, they
are ``q95 + w sinh(x) / 5`` for 257 equally spaced x. Near the 0.95 quantile they are w / 55 apart, at the median w /
11, and they reach ten thousand w to both sides. So about 0.3 % of the rows of a smooth distribution lie between two
edges near the threshold. A quantile that is interpolated between them is off by a small part of that.

Counts of batches of rows add up, and can be made to fade: the sketch follows a stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.aggregation import Aggregator
from fedspan.errors import InputError
from fedspan.federation import Federation, Replies, Site, step
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.sums.moments import aggregated, row_totals
from fedspan.sums.row_blocks import n_columns

#: The scores' quantiles around which the edges are placed.
MIDDLE, HIGH = 0.5, 0.95
_EDGES = 257
#: Rows that are counted at once.
_ROWS = 2**15
#: Few edges are compared with all values of a column one after the other, which is faster than a search: of many rows.
_COMPARED, _FEW_ROWS = 64, 1024
_REACH, _FINE = 11.5, 0.2
#: A spread below this part of the score is rounding.
_ROUNDING = 1e-9
#: A batch counts with this number of times the rows above a quantile that are expected there, at most; or this number.
_TIMES, _BY_CHANCE = 4.0, 5.0


def placed_edges(middle: Vector, high: Vector) -> Matrix:
    """Return the edges (m, 257) for m scores with these medians and 0.95 quantiles (m,)."""
    x = np.linspace(-_REACH, _REACH, _EDGES)
    return np.asarray(high[:, None] + spread(middle, high)[:, None] * _FINE * np.sinh(x))


def spread(middle: Vector, high: Vector) -> Vector:
    """Return the distance (m,) between the quantiles, or where they are equal that of rounding."""
    least = np.maximum(_ROUNDING * np.abs(high), np.finfo(np.float64).tiny * 1e20)
    return np.maximum(high - middle, least)


@step("anomaly.score_counts", reveals="sums", counts=["n"])
def local_score_counts(site: Site, edges: Matrix) -> dict[str, Any]:
    """Leaves the site: its number of rows, and for each column the number of values up to and between the edges."""
    if not (np.diff(edges, axis=1) >= 0).all():
        raise InputError("edges must be rising numbers")
    if n_columns(site) != len(edges):
        raise InputError(f"the rows have {n_columns(site)} columns, and there are edges of {len(edges)}")
    counts = np.zeros((len(edges), edges.shape[1] + 1), dtype=np.int64)
    for batch in site.batches(_ROWS):
        columns = np.ascontiguousarray(np.asarray(batch.X, dtype=np.float64).T)
        for j, (column, at) in enumerate(zip(columns, edges, strict=True)):
            if len(at) > _COMPARED or len(column) < _FEW_ROWS:
                counts[j] += np.bincount(np.searchsorted(at, column, side="left"), minlength=counts.shape[1])
            else:
                counts[j] += np.diff([0, *(np.count_nonzero(column <= edge) for edge in at), len(column)])
    return {"n": len(site), "counts": counts.astype(np.min_scalar_type(len(site)))}


def score_counts(fed: Federation, edges: Matrix, aggregator: Aggregator | None = None) -> Matrix:
    """Return the number (m, 258) of rows whose scores are up to the first edge, between edges, and above the last.

    The sites see the scores as their columns. An `aggregator` combines the sites' shares of rows up to each edge: of
    rows between two edges most sites may have none.
    """
    if aggregator is None:
        total = row_totals(["counts"], fed, local_score_counts, None, edges=edges)
        return np.asarray(total.sums["counts"], dtype=np.float64)
    replies = fed.totals(local_score_counts, edges=edges)
    up_to = {
        site: {"n": reply["n"], "counts": np.cumsum(reply["counts"], axis=1, dtype=np.float64)}
        for site, reply in replies.ok.items()
    }
    (found,), n = aggregated(Replies(up_to, replies.failed), ["counts"], aggregator)
    rising = np.maximum.accumulate(np.clip(n * found.value, 0.0, n), axis=1)
    return np.diff(rising, axis=1, prepend=0.0)


def shares_up_to(counts: Matrix) -> Matrix:
    """Return the share (m, 257) of the rows up to each edge."""
    n = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return np.asarray(np.cumsum(counts, axis=1)[:, :-1] / n)


def quantile_between(edges: Vector, counts: Vector, level: float) -> float:
    """Return the quantile of one score, interpolated between edges (q,) with these counts (q + 1,).

    Examples
    --------
    >>> quantile_between(np.array([0.0, 1.0, 2.0]), np.array([0.0, 3.0, 1.0, 0.0]), 0.5)
    0.6666666666666666
    """
    up_to = np.concatenate([[0.0], np.cumsum(counts)])
    part = _part_of(counts, level)
    if part == 0 or part >= len(edges):
        return float(edges[min(part, len(edges) - 1)])
    inside = (level * up_to[-1] - up_to[part]) / max(counts[part], np.finfo(np.float64).tiny)
    return float(edges[part - 1] + min(max(inside, 0.0), 1.0) * (edges[part] - edges[part - 1]))


def tempered(counts: Vector, edges: Vector, threshold: float, share: float) -> Vector:
    """Return counts (q + 1,) of the scores of a batch, without what says nothing about later scores.

    Far more than a `share` of the rows above the threshold: then the rows have changed, and the model has not learned
    from them yet. It will give rows like these other scores. So those above are cut to four times their share.

    Examples
    --------
    >>> tempered(np.array([20.0, 0.0, 980.0]), np.array([1.0, 2.0]), 1.0, 0.05)
    array([20.,  0.,  5.])
    """
    at = int(np.searchsorted(edges, threshold)) + 1
    below, above = counts[:at].sum(), counts[at:].sum()
    part = min(_TIMES * share, 0.5)
    most = max(below * part / (1.0 - part), _BY_CHANCE)
    return counts if above <= most else np.concatenate([counts[:at], counts[at:] * (most / above)])


def edge_above(edges: Vector, counts: Vector, level: float) -> float:
    """Return the edge just above the quantile: of scores that many rows share, none is then beyond it.

    Examples
    --------
    >>> edge_above(np.array([0.0, 1.0, 2.0]), np.array([0.0, 3.0, 1.0, 0.0]), 0.5)
    1.0
    """
    return float(edges[min(_part_of(counts, level), len(edges) - 1)])


def _part_of(counts: Vector, level: float) -> int:
    """Return the number of the gap that the quantile is in."""
    up_to = np.cumsum(counts)
    return int(np.searchsorted(up_to, (level - _ROUNDING) * up_to[-1], side="left"))

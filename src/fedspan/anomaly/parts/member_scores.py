"""Scores of several detectors at once, and their sum as ranks: what `FedAnomalyDetector` scores rows by.

A member's score s counts as ``-log(1 - u)``, where u is the share of the training rows up to s. Beyond the 0.95
quantile q it also counts as ``log(1 + (s - q) / w)``, where w is the distance of q from the median. So a row that all
training rows are below is the more anomalous, the further it is beyond them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.anomaly.parts.centre_distances import Trained, centre_score
from fedspan.anomaly.parts.isolation_trees import Features, isolation_score
from fedspan.anomaly.parts.score_grid import shares_up_to, spread
from fedspan.anomaly.scores import subspace_score, whitened_score
from fedspan.anomaly.thresholds import left_out_subspace, left_out_whitened
from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import transform
from fedspan.federation.site.parameters import Matrix, NotNegative, Positive, Vector


@transform("anomaly.member_scores")
def member_scores(
    X: Array,
    mean: Vector | None = None,
    scale: Vector | None = None,
    centers: Matrix | None = None,
    growth: Vector | None = None,
    trained: Trained = 0,
    features: Features | None = None,
    cuts: Matrix | None = None,
    depths: Matrix | None = None,
    usual: Positive = 1.0,
    root: Matrix | None = None,
    components: Matrix | None = None,
    inside: Vector | None = None,
    outside: NotNegative = 1.0,
    leverage: Vector | None = None,
    free: Trained = 0,
    shift: Positive = 1.0,
    ridge: NotNegative = 0.0,
) -> Matrix:
    """Return the scores (n, m) of the members whose parameters are given: centres, isolation, Mahalanobis.

    Parameters are those of `centre_score`, `isolation_score`, and `whitened_score` or `subspace_score`; with `free`
    above 0 the last ones are of rows left out.
    """
    found = []
    if centers is not None:
        found.append(centre_score(X, _given(mean), scale, centers, _given(growth), trained))
    if features is not None:
        found.append(isolation_score(X, features, _given(cuts), _given(depths), usual))
    if root is not None and free:
        found.append(left_out_whitened(X, _given(mean), scale, root, None, None, None, free, shift, ridge))
    elif root is not None:
        found.append(whitened_score(X, _given(mean), scale, root))
    elif components is not None and free:
        subspace = (_given(mean), scale, components, inside, outside)
        found.append(left_out_subspace(X, *subspace, _given(leverage), free, shift))
    elif components is not None:
        found.append(subspace_score(X, _given(mean), scale, components, inside, outside))
    if not found:
        raise InputError("there are no members to score rows by")
    return np.concatenate(found, axis=1)


def _given(value: Array | None) -> Array:
    if value is None:
        raise InputError("a member's parameters are not complete")
    return value


@transform("anomaly.summed_ranks")
def summed_ranks(X: Matrix, edges: Matrix, ranks: Matrix, high: Vector, width: Vector) -> Matrix:
    """Return the sum (n, 1) over the members of the ranks of their scores `X` (n, m)."""
    return np.asarray(rank_parts(X, edges, ranks, high, width).sum(axis=1, keepdims=True))


def rank_parts(X: Matrix, edges: Matrix, ranks: Matrix, high: Vector, width: Vector) -> Matrix:
    """Return the rank (n, m) of each member's score.

    `edges` and `ranks` (m, q) are scores and their ``-log(1 - u)``, between which a rank is interpolated; `high` and
    `width` (m,) are the 0.95 quantiles and their distances from the medians.
    """
    m = X.shape[1]
    if edges.shape != ranks.shape or not len(edges) == len(high) == len(width) == m or not (width > 0).all():
        raise InputError(f"edges, ranks, high and width have shapes that do not fit {m} scores")
    found = np.empty(X.shape)
    with np.errstate(over="ignore"):
        for j in range(m):
            found[:, j] = np.interp(X[:, j], edges[j], ranks[j])
            found[:, j] += np.log1p(np.maximum(X[:, j] - high[j], 0.0) / width[j])
    return found


def learned_ranks(edges: Matrix, counts: Matrix, middle: Vector, high: Vector) -> dict[str, Any]:
    """Return the parameters of `summed_ranks` from counts (m, q + 1) of training scores between edges (m, q)."""
    n = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    ranks = -np.log(1.0 - np.minimum(shares_up_to(counts), 1.0 - 1.0 / np.maximum(n, 2.0)))
    return {"edges": edges, "ranks": ranks, "high": high, "width": spread(middle, high)}

"""Isolation trees whose cuts do not depend on rows: a site counts its rows in each leaf, and that is all it sends.

The coordinator draws full binary trees of depth h. All nodes of a level cut the same column at the same point, drawn in
the range of the column's bulk. So a tree is h comparisons, and the number of a row's leaf is their bits. Counts of the
leaves, summed over the sites, give the number of rows of every node. These give the depth at which a row of a leaf
would be alone in a subsample of the rows, as in an isolation forest. A node counts if its cut separates rows. A path
ends where the subsample has one row or fewer.

Nodes are numbered by level: the children of node k are 2 k + 1 and 2 k + 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step, transform
from fedspan.federation.site.parameters import ArrayOf, Matrix, Positive, Vector
from fedspan.gateway.scorer import leaf_numbers
from fedspan.sums.moments import row_totals
from fedspan.sums.quantiles import quantiles
from fedspan.sums.row_blocks import blocks, n_columns

Features = Annotated[NDArray[np.int64], ArrayOf("whole", 2, least=0, most=2**31)]

#: Cuts are drawn in the range between these quantiles of each column, and up to its width beyond.
RANGE = (0.02, 0.98)
#: Rows times trees that are followed at once.
_CELLS = 2**17
#: Cuts are drawn from a range that is wider, on each side by up to this part of it, to cut off rows beyond the bulk.
_MARGIN = 1.0
#: The largest depth, and the most leaves of all trees together.
DEEPEST, MOST_LEAVES = 14, 2**25
_EULER = 0.5772156649015329


def grown_trees(
    low: Vector, high: Vector, *, n_trees: int, depth: int, rng: np.random.Generator
) -> tuple[Features, Matrix]:
    """Return the columns and cuts (n_trees, depth) of the levels of trees over the ranges from `low` to `high` (d,)."""
    d, trees = len(low), np.arange(n_trees)[:, None]
    span = np.where(high > low, high - low, 1.0)
    features, place = rng.integers(d, size=(n_trees, depth)), rng.random((n_trees, depth))
    left = (low - _MARGIN * span * rng.random((n_trees, d)))[trees, features]
    right = (high + _MARGIN * span * rng.random((n_trees, d)))[trees, features]
    return features, left + (right - left) * place


def leaves_of(X: Array, features: Array, cuts: Array) -> NDArray[np.intp]:
    """Return the number (n_trees, n) of the leaf that each row reaches in each tree, from 0."""
    found, size = np.empty((len(cuts), len(X)), dtype=np.intp), max(1, _CELLS // len(cuts))
    for start in range(0, len(X), size):
        found[:, start : start + size] = leaf_numbers(X[start : start + size], features, cuts)
    return found


def of_leaves(site: Site, *, cuts: Array, **_: Any) -> int:
    """Return the mean number of rows per leaf: the smallest leaf has at most that."""
    return len(site) >> min(int(cuts.shape[-1]), DEEPEST)


@step("anomaly.leaf_counts", reveals="sums", counts=["n"], fewest=of_leaves, fewest_in_sums=False)
def local_leaf_counts(site: Site, features: Features, cuts: Matrix) -> dict[str, Any]:
    """Leaves the site: its number of rows, and the number of them in each leaf of each tree."""
    check_trees(features, cuts, n_columns(site))
    counts = counted_leaves(blocks(site), features, cuts)
    return {"n": len(site), "counts": counts.astype(np.min_scalar_type(len(site)))}


def counted_leaves(rows: Iterable[Array], features: Features, cuts: Matrix) -> NDArray[np.int64]:
    """Return the number (n_trees, 2^depth) of rows, which come in blocks, in each leaf of each tree."""
    trees, leaves = len(cuts), 1 << cuts.shape[1]
    counts, first = np.zeros(trees * leaves, dtype=np.int64), leaves * np.arange(trees)[:, None]
    for block in rows:
        size = max(1, _CELLS // trees)
        for start in range(0, len(block), size):
            places = leaves_of(block[start : start + size], features, cuts) + first
            counts += np.bincount(places.ravel(), minlength=trees * leaves)
    return counts.reshape(trees, leaves)


@dataclass(frozen=True)
class IsolationCounts:
    """Trees, the number of rows in their leaves (n_trees, 2^depth), and the number of all rows."""

    features: Features
    cuts: Matrix
    counts: Matrix
    n: int


def isolation_counts(
    fed: Federation, *, n_trees: int = 100, depth: int = 8, aggregator: Aggregator | None = None
) -> IsolationCounts:
    """Draw trees in the ranges of the columns' bulk, and count the rows of all sites in their leaves.

    With an `aggregator` ranges and shares of rows are combined by it, and the number of rows is an estimate.
    """
    low, high = quantiles(fed, level=RANGE, aggregator=aggregator, roughly=aggregator is None)
    features, cuts = grown_trees(low, high, n_trees=n_trees, depth=depth, rng=fed.rng)
    return IsolationCounts(features, cuts, *leaf_counts(fed, features=features, cuts=cuts, aggregator=aggregator))


def leaf_counts(
    fed: Federation, *, features: Features, cuts: Matrix, aggregator: Aggregator | None = None
) -> tuple[Matrix, int]:
    """Return the number of rows in the leaves of given trees, and that of all rows."""
    total = row_totals(["counts"], fed, local_leaf_counts, aggregator, features=features, cuts=cuts)
    counts = np.asarray(total.sums["counts"], dtype=np.float64)
    wanted = (len(cuts), 1 << cuts.shape[1])
    if counts.shape != wanted or total.n < 1 or (counts < 0).any():
        raise InputError(
            f"the sites' counts of {total.n} rows have the shape {counts.shape}, and must be numbers of at least 0 and "
            f"of the shape {wanted}"
        )
    return counts, round(total.n)


@transform("anomaly.isolation_score")
def isolation_score(X: Array, features: Features, cuts: Matrix, depths: Matrix, usual: Positive) -> Matrix:
    """Return ``2 ^ (-depth / usual)`` (n, 1), where a row's depth is the mean over the trees of `depths` at its leaves.

    `depths` is (n_trees, 2^h), and `usual` the mean depth of a row in a random tree of as many rows.
    """
    check_trees(features, cuts, X.shape[1], depths)
    found, tree = np.empty((len(X), 1)), np.arange(len(cuts))[:, None]
    size = max(1, _CELLS // len(cuts))
    for start in range(0, len(X), size):
        leaf = leaves_of(X[start : start + size], features, cuts)
        found[start : start + size, 0] = depths[tree, leaf].mean(axis=0)
    return np.asarray(np.exp2(-found / usual))


def isolation_shares(X: Array, features: Array, cuts: Array, depths: Array, gains: Array) -> Matrix:
    """Return the features' shares (n, d) of the isolation: by the `gains` (n_trees, 2^(h+1) - 1) of a row's nodes.

    A tree counts by the inverse of the row's depth, so that it counts most where the row is alone soonest.
    """
    tree, shares = np.arange(len(cuts))[:, None], np.zeros((X.shape[1], len(X)))
    leaf = leaves_of(X, features, cuts)
    node, weight = leaf + (1 << cuts.shape[1]) - 1, 1.0 / np.maximum(depths[tree, leaf], 1.0)
    for feature in features.T[::-1]:
        np.add.at(shares, feature, weight * gains[tree, node])
        node = (node - 1) // 2
    total = shares.sum(axis=0)
    return np.asarray((shares / np.where(total > 0, total, 1.0)).T)


def node_counts(leaf_counts: Array) -> Matrix:
    """Return the number of rows of all nodes (n_trees, 2^(h+1) - 1) from those of the leaves."""
    levels = [np.asarray(leaf_counts, dtype=np.float64)]
    while levels[-1].shape[1] > 1:
        levels.append(levels[-1].reshape(len(leaf_counts), -1, 2).sum(axis=2))
    return np.concatenate(levels[::-1], axis=1)


def leaf_depths(leaf_counts: Array, n: float, *, subsample: int, without: int = 0) -> Matrix:
    """Return the expected depths (n_trees, 2^h) at which rows of the leaves are alone in a subsample of n rows.

    With ``without=1`` they are those of a row that is one of the n, as if it had been left out.
    """
    share, counts = _share(n - without, subsample), node_counts(leaf_counts)
    node = np.arange(leaf_counts.shape[1]) + leaf_counts.shape[1] - 1
    path = [node]
    while path[-1][0]:
        path.append((path[-1] - 1) // 2)
    depths, alone = np.zeros(leaf_counts.shape), np.zeros(leaf_counts.shape, dtype=bool)
    above = np.maximum(counts[:, path[-1]] - without, 0) * share
    for node in path[-2::-1]:
        mass = np.maximum(counts[:, node] - without, 0) * share
        depths += ~alone & (above > mass)
        alone |= mass <= 1.0
        above = mass
    return np.asarray(depths + np.where(alone, 0.0, usual_depth(above)))


def isolation_gains(leaf_counts: Array, n: float, *, subsample: int) -> Matrix:
    """Return by how much each node's cut isolates (n_trees, 2^(h+1) - 1): the log of its parent's mass over its own.

    Masses below one row of the subsample count as one; the root has no gain.
    """
    mass = np.maximum(node_counts(leaf_counts) * _share(n, subsample), 1.0)
    parents = (np.arange(mass.shape[1]) - 1) // 2
    gains = np.log(mass[:, parents] / mass)
    gains[:, 0] = 0.0
    return np.maximum(gains, 0.0)


def usual_depth(rows: Any) -> Any:
    """Return the mean depth of a row in a random tree of this number of rows (Liu, Ting and Zhou 2008, equation 1).

    Examples
    --------
    >>> usual_depth(np.array([1.0, 2.0, 256.0])).round(2)
    array([ 0.  ,  1.  , 10.24])
    """
    m = np.asarray(rows, dtype=np.float64)
    many = np.maximum(m, 2.0)
    depth = 2.0 * (np.log(many - 1.0) + _EULER) - 2.0 * (many - 1.0) / many
    return np.where(m > 2.0, depth, np.where(m >= 2.0, 1.0, 0.0))


def _share(n: float, subsample: int) -> float:
    return min(1.0, subsample / max(n, 1.0))


def check_trees(features: Array, cuts: Array, d: int, depths: Array | None = None) -> None:
    """Refuse arrays that are not trees over rows of `d` columns, or of very many leaves."""
    trees, depth = cuts.shape
    leaves = 1 << min(depth, DEEPEST)
    fits = features.shape == cuts.shape and (depths is None or depths.shape == (trees, leaves))
    if not fits or not trees or not 0 < depth <= DEEPEST or trees * leaves > MOST_LEAVES or features.max() >= d:
        raise InputError(
            f"features, cuts and depths are not trees over rows of {d} columns, of a depth of at most {DEEPEST} and "
            f"with at most {MOST_LEAVES:,} leaves"
        )

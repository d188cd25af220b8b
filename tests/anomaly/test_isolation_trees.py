from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.anomaly.parts.isolation_trees import (
    grown_trees,
    isolation_counts,
    isolation_gains,
    isolation_score,
    leaf_counts,
    leaf_depths,
    leaves_of,
    node_counts,
    usual_depth,
)
from fedspan.errors import FedspanError, InputError


def trees(d=3, n_trees=7, depth=4, seed=0):
    return grown_trees(np.full(d, -1.0), np.full(d, 1.0), n_trees=n_trees, depth=depth, rng=np.random.default_rng(seed))


def rows(n=200, d=3, seed=1):
    return np.random.default_rng(seed).normal(size=(n, d))


def test_rows_follow_the_cuts_from_the_root_to_their_leaf():
    # One tree: the root cuts column 0 at 0, both its children cut column 1 at -1.
    features, cuts = np.array([[0, 1]]), np.array([[0.0, -1.0]])
    X = np.array([[-1.0, -2.0], [-1.0, -1.0], [0.0, -1.5], [3.0, 1.0]])
    assert leaves_of(X, features, cuts)[0].tolist() == [0, 1, 2, 3]


def test_cuts_are_within_the_range_and_its_width_beyond():
    features, cuts = grown_trees(
        np.array([0.0, 10.0]), np.array([1.0, 12.0]), n_trees=400, depth=5, rng=np.random.default_rng(0)
    )
    for column, (low, high) in enumerate([(-1.0, 2.0), (8.0, 14.0)]):
        own = cuts[features == column]
        assert low < own.min() < low + 0.1 * (high - low)
        assert high > own.max() > high - 0.1 * (high - low)


@pytest.mark.parametrize("depth", [3, 8, 11])
def test_any_number_of_rows_and_any_depth_have_the_leaves_of_single_rows(depth):
    features, cuts = trees(depth=depth, n_trees=300)
    X = rows(1000)
    found = leaves_of(X, features, cuts)
    for row in (0, 437, 999):
        bits = X[row][features] >= cuts
        np.testing.assert_array_equal(found[:, row], bits @ (2 ** np.arange(depth)[::-1]))


def test_counts_are_those_of_the_pooled_rows_for_any_split():
    X = rows()
    features, cuts = trees()
    whole, n = leaf_counts(fs.federate(X), features=features, cuts=cuts)
    parts, m = leaf_counts(fs.federate(X, sites=np.arange(200) % 7), features=features, cuts=cuts)
    assert n == m == 200
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole.sum(axis=1), 200)
    nodes = node_counts(whole)
    np.testing.assert_array_equal(nodes[:, 0], 200)
    np.testing.assert_array_equal(nodes[:, 1:][:, ::2] + nodes[:, 1:][:, 1::2], nodes[:, : nodes.shape[1] // 2])


def test_depths_by_hand():
    # A tree of depth two over 8 rows: leaves of 5, 0, 2 and 1 rows, all of them in the subsample.
    counts = np.array([[5, 0, 2, 1]])
    # The second cut on the left separates nothing: it does not count, and five rows are not yet alone.
    expected = [1 + float(usual_depth(5.0)), 2, 2 + float(usual_depth(2.0)), 2]
    np.testing.assert_allclose(leaf_depths(counts, 8, subsample=256)[0], expected)


@pytest.mark.parametrize("n", [30, 600])
def test_depths_without_a_row_are_those_of_the_counts_without_it(n):
    X = rows(n)
    features, cuts = trees(depth=5)
    counts, _ = leaf_counts(fs.federate(X), features=features, cuts=cuts)
    without = leaf_depths(counts, n, subsample=64, without=1)
    for row in range(0, n, 7):
        others, m = leaf_counts(fs.federate(np.delete(X, row, axis=0)), features=features, cuts=cuts)
        leaf = leaves_of(X[row : row + 1], features, cuts)[:, 0]
        tree = np.arange(len(leaf))
        np.testing.assert_allclose(without[tree, leaf], leaf_depths(others, m, subsample=64)[tree, leaf])


def test_scores_are_higher_where_rows_are_few():
    found = isolation_counts(fs.federate(rows(1000), sites=np.arange(1000) % 5), n_trees=60)
    depths = leaf_depths(found.counts, found.n, subsample=256)
    scores = isolation_score(np.diag([0.0, 4.0, 40.0]), found.features, found.cuts, depths, 10.0)[:, 0]
    assert 0 < scores[0] < scores[1] <= scores[2] < 1


def test_gains_are_of_masses():
    gains = isolation_gains(np.array([[6, 2, 0, 0]]), 8, subsample=256)
    np.testing.assert_allclose(gains[0], [0, 0, np.log(8), np.log(8 / 6), np.log(4), 0, 0])


def test_arrays_that_are_no_trees_are_refused():
    features, cuts = trees()
    depths = np.ones((7, 16))
    X = rows(5)
    for wrong in (features[:, 1:], features + 3, features[:0]):
        with pytest.raises(InputError, match="not trees over rows of 3 columns"):
            isolation_score(X, wrong, cuts[: len(wrong)], depths, 1.0)
    with pytest.raises(InputError, match="not trees"):
        isolation_score(X, features, cuts, depths[:, 1:], 1.0)
    with pytest.raises(InputError, match="at most 14"):
        isolation_score(X, np.zeros((1, 60), int), np.zeros((1, 60)), depths, 1.0)
    with pytest.raises(FedspanError, match="not trees"):
        leaf_counts(fs.federate(X), features=features + 3, cuts=cuts)


@pytest.mark.parametrize(("seed", "apart"), [(30, 0.0), (32, 10.0)])
def test_after_many_batches_the_share_above_the_threshold_is_the_nominal_one(seed, apart):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(7, 7))
    X = rng.normal(size=(10_000, 7))
    X = X + apart * rng.integers(0, 3, size=(10_000, 1)) if apart else X @ mixing
    detector = fs.FedIsolationDetector(random_state=0)
    for number, batch in enumerate(np.split(X, 50)):
        detector.partial_fit(batch, batch=str(number))
    assert abs(np.mean(detector.predict(X) == -1) - 0.05) < 0.0065

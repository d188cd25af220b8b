"""Moments of sets of rows: merged in any order and grouping they are those of all rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.sums.row_moments import RowMoments, packed, unpacked


def exact(X, weights):
    """Return mean and products about it in extended precision."""
    X, w = X.astype(np.longdouble), weights.astype(np.longdouble)
    mean = w @ X / w.sum()
    D = X - mean
    return mean.astype(float), ((D * w[:, None]).T @ D).astype(float)


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_any_split_gives_the_moments_of_all_rows(seed, n, d, parts, whole):
    """Also sets of one row, of no row and of rows without weight, with means 1e8 times the deviations."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 1e8 * rng.normal(size=d)
    weights = (rng.integers(0, 3, n) if whole else rng.exponential(size=n)).astype(float)
    weights[0] = 1.0
    labels = rng.integers(0, parts, n)
    for products in (True, False):
        sets = [RowMoments.of_rows(X[labels == i], weights[labels == i], products=products) for i in range(parts)]
        found = RowMoments.merged(sets)
        nested = RowMoments.merged([RowMoments.merged(sets[:2]), *sets[2:]])
        mean, gram = exact(X, weights)
        largest = np.abs(gram).max() + 1e-12
        assert found.n == nested.n == n
        assert found.weight == pytest.approx(weights.sum(), rel=1e-14)
        for one in (found, nested):
            np.testing.assert_allclose(one.mean, mean, rtol=1e-15, atol=1e-300)
            got = one.gram() if products else np.diag(one.squares)
            np.testing.assert_allclose(got, gram if products else np.diag(np.diag(gram)), atol=1e-13 * largest)


def test_whole_weights_are_repeated_rows():
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    weighted = RowMoments.of_rows(X, weights.astype(float))
    repeated = RowMoments.of_rows(np.repeat(X, weights, axis=0))
    assert weighted.weight == repeated.weight == repeated.n
    np.testing.assert_allclose(weighted.mean, repeated.mean, rtol=1e-14)
    np.testing.assert_allclose(weighted.scatter, repeated.scatter, rtol=1e-12, atol=1e-13)


def test_blocks_are_merged_a_few_at_a_time():
    X = np.random.default_rng(1).normal(size=(1000, 3)) + 5
    found = RowMoments.of_blocks(((X[i : i + 7], None) for i in range(0, 1000, 7)), 3)
    whole = RowMoments.of_rows(X)
    assert found.n == 1000
    np.testing.assert_allclose(found.scatter, whole.scatter, rtol=1e-12)
    assert RowMoments.of_blocks(iter(()), 3).n == 0


@pytest.mark.parametrize("weight", [None, 1e-12])
def test_a_light_first_block_far_from_the_others_costs_no_digits(weight):
    """A file that begins with one outlier, or rows whose weights grow."""
    rng = np.random.default_rng(3)
    light = 1 if weight is None else 2000
    X, weights = rng.normal(size=(20_000, 3)), np.ones(20_000)
    X[:light] += 1e6 * rng.normal(size=3)
    weights[:light] = weight or 1.0
    parts = (slice(0, light), slice(light, None))
    found = RowMoments.of_blocks(((X[part], None if weight is None else weights[part]) for part in parts), 3)
    mean, gram = exact(X, weights)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(found.gram(), gram, atol=1e-14 * np.abs(gram).max())


def test_scaling_forgets_weight_and_keeps_the_mean():
    X = np.random.default_rng(2).normal(size=(30, 3))
    old, new = RowMoments.of_rows(X[:20]), RowMoments.of_rows(X[20:])
    found = RowMoments.merged([old.scaled(0.25), new])
    mean, gram = exact(X, np.r_[np.full(20, 0.25), np.ones(10)])
    assert (found.n, found.weight) == (30, 15.0)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(found.gram(), gram, atol=1e-13)
    np.testing.assert_allclose(found.variance, np.diag(gram) / 15.0, rtol=1e-13)


def test_the_upper_triangle_is_the_matrix():
    S = np.arange(9.0).reshape(3, 3)
    S = S + S.T
    np.testing.assert_array_equal(packed(S), S[np.triu_indices(3)])
    np.testing.assert_array_equal(unpacked(packed(S)), S)

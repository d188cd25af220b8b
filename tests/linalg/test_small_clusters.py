"""k-means, k-medoids, linkage gaps, matchings and extrapolation."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan.errors import InputError
from fedspan.linalg import bottleneck_distance, k_means, k_medoids, linkage_gap, matched_share

seeds = st.integers(0, 10**6)


def blobs(seed, k=3, each=8, apart=20.0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(k), each)
    return apart * rng.permutation(np.eye(k))[labels] + rng.normal(size=(k * each, k)), labels


@given(seeds)
def test_k_means_finds_clear_clusters(seed):
    points, labels = blobs(seed)
    found = k_means(points, 3, np.random.default_rng(seed))
    assert matched_share(found.labels, labels) == 1.0
    for j in range(3):
        np.testing.assert_allclose(found.centres[j], points[found.labels == j].mean(axis=0))


def test_k_means_counts_weights():
    points = np.array([[0.0], [1.0], [10.0]])
    found = k_means(points, 2, np.random.default_rng(0), weights=np.array([3.0, 1.0, 1.0]))
    np.testing.assert_allclose(np.sort(found.centres[:, 0]), [0.25, 10.0])
    alone = k_means(points, 1, np.random.default_rng(0), weights=np.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(alone.centres, [[0.5]])


def test_k_means_of_points_that_coincide():
    found = k_means(np.zeros((4, 2)), 3, np.random.default_rng(0))
    assert found.cost == 0.0
    for k in (0, 5):
        with pytest.raises(InputError, match=f"k={k}"):
            k_means(np.zeros((4, 2)), k, np.random.default_rng(0))


@given(seeds, st.integers(1, 3))
@settings(max_examples=30)
def test_k_medoids_are_at_most_a_little_worse_than_the_best(seed, k):
    losses = np.random.default_rng(seed).random((12, 7))
    best = min(losses[:, list(columns)].min(axis=1).sum() for columns in combinations(range(7), k))
    chosen = k_medoids(losses, k)
    assert len(set(chosen)) == k
    assert losses[:, chosen].min(axis=1).sum() <= 1.15 * best


def test_k_medoids_change_a_first_choice_that_was_wrong():
    """The middle one is the best alone, and wrong as one of two."""
    points = np.array([-3.0, -2.9, 0.0, 2.9, 3.0])
    chosen = k_medoids(np.abs(points[:, None] - points), 2)
    assert points[chosen].tolist() in ([-2.9, 2.9], [-2.9, 3.0], [-3.0, 2.9])


def test_k_medoids_weights_and_refusal():
    losses = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert k_medoids(losses, 1, np.array([1.0, 3.0])) == [1]
    with pytest.raises(InputError, match="k=3"):
        k_medoids(losses, 3)


def test_linkage_gap_tells_a_missing_cluster():
    points, labels = blobs(0, apart=30.0)
    found, gap = linkage_gap(points, 3)
    assert matched_share(found, labels) == 1.0
    assert gap > 4.0
    assert linkage_gap(points[labels < 2], 3)[1] < 2.0
    assert linkage_gap(points, 1)[1] == np.inf
    assert linkage_gap(points[:3], 3)[1] == 0.0
    with pytest.raises(InputError, match="k=4"):
        linkage_gap(points[:3], 4)


@given(seeds, st.integers(1, 5))
def test_bottleneck_distance_is_the_best_permutation(seed, k):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, k, 3))
    expected = min(max(np.linalg.norm(A[list(p)] - B, axis=1)) for p in permutations(range(k)))
    assert bottleneck_distance(A, B) == pytest.approx(expected, rel=1e-14)


def test_bottleneck_is_not_the_sum_assignment():
    # In order the distances are 2 and 2; crossed 3 and 0.5: a smaller sum, but a larger maximum.
    models, truth = [[2.5, 0.0], [0.0, 0.0]], [[0.5, 0.0], [0.25, np.sqrt(4 - 0.0625)]]
    assert bottleneck_distance(models, truth) == pytest.approx(2.0)
    with pytest.raises(InputError, match="one shape"):
        bottleneck_distance([[1.0]], [[1.0], [2.0]])


def test_matched_share_with_other_names_and_numbers_of_labels():
    assert matched_share([7, 7, 9], [0, 0, 1]) == 1.0
    assert matched_share([0, 1, 2, 3], [0, 0, 1, 1]) == 0.5
    with pytest.raises(InputError, match="one length"):
        matched_share([0], [0, 1])

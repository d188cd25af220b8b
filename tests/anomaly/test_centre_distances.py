from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from fedspan.anomaly.parts.centre_distances import (
    NO_CENTRE,
    centre_score,
    centre_shares,
    left_out_growth,
    left_out_units,
)
from fedspan.errors import InputError


def example(n=50, k=9, d=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=d), rng.uniform(1, 2, d), rng.normal(size=(k, d))


def test_it_is_the_mean_distance_to_the_two_nearest_centres():
    X, mean, scale, centers = example()
    nearest = np.sort(cdist((X - mean) / scale, centers), axis=1)[:, :2]
    found = centre_score(X, mean, scale, centers, np.ones(9))
    np.testing.assert_allclose(found[:, 0], nearest.mean(axis=1))
    np.testing.assert_allclose(
        centre_score(X, mean, None, centers[:1], np.ones(1))[:, 0], cdist(X - mean, centers[:1])[:, 0]
    )


def test_a_common_shift_changes_nothing():
    X, mean, scale, centers = example()
    far = 1e9
    np.testing.assert_allclose(
        centre_score(X + far, mean + far, scale, centers, np.ones(9)),
        centre_score(X, mean, scale, centers, np.ones(9)),
        rtol=1e-5,
    )


def test_the_nearest_centre_grows_away_and_another_takes_its_place():
    X, mean, scale, centers = example()
    apart = np.sort(cdist((X - mean) / scale, centers), axis=1)
    gone = centre_score(X, mean, scale, centers, left_out_growth(np.ones(9)))
    np.testing.assert_allclose(gone[:, 0], apart[:, 1:3].mean(axis=1))
    grown = centre_score(X, mean, scale, centers, left_out_growth(np.full(9, 4.0)))
    both = np.sort(np.column_stack([1.5 * apart[:, 0], apart[:, 1:]]), axis=1)[:, :2]
    np.testing.assert_allclose(grown[:, 0], both.mean(axis=1))


def test_a_row_that_is_its_own_centre_has_none_when_it_is_left_out():
    X, mean, scale, centers = example()
    X[0] = mean + scale * centers[0]
    apart = np.sort(cdist((X[:1] - mean) / scale, centers), axis=1)
    found = centre_score(X[:1], mean, scale, centers, left_out_growth(np.ones(9)))
    np.testing.assert_allclose(found[0], apart[0, 1:3].mean(), rtol=1e-12)
    assert centre_score(X[:1], mean, scale, centers[:1], left_out_growth(np.ones(1))) == NO_CENTRE


def test_rows_are_left_out_of_the_deviations():
    X = np.random.default_rng(0).normal(size=(20, 3))
    X[:, 2] = 5.0
    X[0] = 9.0  # the row that widens the columns; the last one is constant without it
    mean, scale, rest = X.mean(axis=0), X.std(axis=0), X[1:]
    without = np.append(rest[:, :2].std(axis=0), 1.0)
    centers = (rest[:1] - mean) / scale
    found = centre_score(X[:1], mean, scale, centers, np.ones(1), trained=20)
    np.testing.assert_allclose(found, np.linalg.norm((X[0] - rest[0]) / without))
    assert (left_out_units((X - mean) / scale, scale, 20)[1:, :2] >= 1.0).all()


def test_shares_sum_to_one_and_name_the_column():
    X, mean, scale, centers = example()
    X[0] = mean
    X[0, 1] += 90
    shares = centre_shares(X, mean, scale, centers)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert shares[0].argmax() == 1
    assert not centre_shares(mean[None], mean, None, np.zeros((1, 4))).any()


def test_shapes_that_do_not_fit_are_refused():
    X, mean, scale, centers = example()
    for wrong in (centers[:, 1:], centers[:0]):
        with pytest.raises(InputError, match="do not fit"):
            centre_score(X, mean, scale, wrong, np.ones(len(wrong)))

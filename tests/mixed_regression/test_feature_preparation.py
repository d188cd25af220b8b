"""Maps and scales of features, and scales of targets."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import PolynomialFeatures

import fedspan as fs
from fedspan.aggregation import CoordinateMedian, Mean
from fedspan.attacks import RandomNoise
from fedspan.errors import FedspanError, InputError
from fedspan.mixed_regression.parts.feature_preparation import (
    feature_scaling,
    polynomial,
    products,
    target_moments,
    whitened,
)
from fedspan.sums.moments import local_sums

from .mixtures import mixture


def correlated(seed=0, n=400):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) @ rng.normal(size=(4, 4)) + [5.0, 0.0, -100.0, 1.0]
    return np.column_stack([X, X[:, 0] - X[:, 1], np.full(n, 7.0)])  # a combination of others, and a constant


def test_whitened_rows_have_the_unit_matrix_as_covariance():
    X = correlated()
    fed = fs.federate(X, sites=np.arange(400) % 7)
    found = fed.run(feature_scaling)
    Z = (X - found.mean) @ found.matrix
    assert Z.shape == (400, 4)
    np.testing.assert_allclose(Z.T @ Z / 400, np.eye(4), atol=1e-8)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-10)
    plain = fed.run(feature_scaling, center=False)
    Z = X @ plain.matrix
    np.testing.assert_allclose(Z.T @ Z / 400, np.eye(Z.shape[1]), atol=1e-7)
    np.testing.assert_array_equal(plain.mean, 0.0)
    scaled = fed.run(feature_scaling, scaling="standardize").matrix
    np.testing.assert_allclose(scaled[:5], 1 / X[:, :5].std(axis=0))
    np.testing.assert_array_equal(fed.run(feature_scaling, scaling="none").matrix, np.ones(6))
    with pytest.raises(InputError, match="scaling='other'"):
        feature_scaling(fed, scaling="other")


def test_a_resilient_whitening_blows_nothing_up():
    X = correlated(1)
    fed = fs.federate(X, sites=np.arange(400) % 20).corrupt(RandomNoise(1e4), sites=["1", "2", "3"])
    found = fed.run(feature_scaling, aggregator=CoordinateMedian())
    Z = (X - found.mean) @ found.matrix
    assert 0.02 < np.linalg.eigvalsh(np.cov(Z.T))[-1] < 30.0


def test_target_moments():
    made = mixture(7, sizes=(3, 4, 5, 6))
    y = made[1] + 1e6
    fed = fs.federate(made[0], y, sites=made[2])
    for aggregator in (None, Mean()):
        mean, deviation = fed.run(target_moments, aggregator=aggregator)
        assert mean == pytest.approx(y.mean(), rel=1e-12)
        assert deviation == pytest.approx(y.std(), rel=1e-6)
    y[3] = np.nan
    with pytest.raises(InputError, match=r"y contains NaN or infinity: site '0001' \(1 values\)"):
        target_moments(fs.federate(made[0], y, sites=made[2]))


def test_polynomials_are_those_of_scikit_learn():
    X = np.random.default_rng(0).normal(size=(5, 3))
    for degree, interactions in ((1, False), (3, False), (3, True)):
        expected = PolynomialFeatures(degree, interaction_only=interactions, include_bias=False).fit_transform(X)
        np.testing.assert_allclose(polynomial(X, degree, interactions), expected)
    with pytest.raises(InputError, match="more than 10000"):
        next(products(200, 3, False))
    np.testing.assert_array_equal(whitened(X, np.zeros(3), np.eye(3), intercept=True)[:, 0], 1.0)
    assert whitened(X, np.zeros(3), np.eye(3), intercept=False).shape == (5, 3)
    by_diagonal = whitened(X, np.ones(3), np.array([[1.0, 2.0, 3.0]]), intercept=True)
    np.testing.assert_allclose(by_diagonal, whitened(X, np.ones(3), np.diag([1.0, 2.0, 3.0]), intercept=True))


def test_a_site_refuses_high_powers():
    """In sums of them one row counts, and it could be read from the total."""
    fed = fs.federate(correlated(), sites=np.arange(400) % 5)
    for degree in (9, 900):
        with pytest.raises(FedspanError, match="degree must be a whole number from 1 to 8"):
            fed.apply(polynomial, degree=degree, interactions=False).sum(local_sums)

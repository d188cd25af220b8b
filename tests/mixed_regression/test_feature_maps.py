"""Feature maps of sites."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import PolynomialFeatures

from fedspan.errors import InputError
from fedspan.mixed_regression.parts.feature_maps import polynomial, products, whitened


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

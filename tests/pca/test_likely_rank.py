"""The number of components by maximum likelihood: that of scikit-learn, by sums of the sites."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import PCA

import fedspan as fs
from fedspan.errors import InputError
from fedspan.pca.parts.likely_rank import likely_rank


@pytest.mark.parametrize("load", [load_iris, load_wine, load_digits])
def test_the_likely_number_of_components_is_that_of_scikit_learn(load):
    X = load().data
    X = X[:, X.std(axis=0) > 0]
    pooled = PCA("mle").fit(X)
    model = fs.FedPCA("mle").fit(X, sites=np.arange(len(X)) % 3)
    assert model.n_components_ == pooled.n_components_
    np.testing.assert_allclose(model.noise_variance_, pooled.noise_variance_)


@pytest.mark.parametrize("seed", range(6))
def test_planted_ranks_are_found(seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 6))
    X = rng.normal(size=(300, k)) @ rng.normal(size=(k, 8)) * 3 + 0.2 * rng.normal(size=(300, 8))
    assert fs.FedPCA("mle").fit(X).n_components_ == PCA("mle").fit(X).n_components_


def test_one_column_and_equal_variances():
    assert likely_rank(np.array([2.0]), 10) == 1
    assert 1 <= likely_rank(np.ones(4), 10) <= 3


def test_what_can_not_be_chosen_is_refused():
    with pytest.raises(InputError, match="needs at least as many rows as columns, and there are 3 rows of 5 columns"):
        fs.FedPCA("mle").fit(np.eye(3, 5))
    with pytest.raises(InputError, match="which solver='stack' cannot know"):
        fs.FedPCA("mle", solver="stack").fit(np.eye(6, 3))

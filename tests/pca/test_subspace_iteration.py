"""Subspace iteration: when it stops, and where it starts."""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA

import fedspan as fs
from fedspan.federation import EndingKind

from .tables_of_low_rank import low_rank, sine


def test_subspace_iteration_converges_and_says_so():
    X, labels = low_rank(5, n=500, d=60)
    exact = PCA(4, svd_solver="full").fit(X)
    model = fs.FedPCA(4, solver="subspace_iteration", tol=1e-10).fit(X, sites=labels)
    assert sine(model.components_, exact.components_) <= 1e-8
    assert model.run_.stopped.kind is EndingKind.CONVERGED
    residuals = model.run_.metric("residual")
    assert residuals[-1] <= 1e-10 < residuals[-2]
    short = fs.FedPCA(4, solver="subspace_iteration", max_rounds=2).fit(X, sites=labels)
    assert short.run_.stopped.kind is EndingKind.ROUNDS_USED_UP
    narrow = fs.FedPCA(4, solver="subspace_iteration", oversampling=0, tol=1e-10).fit(X, sites=labels)
    assert len(narrow.run_.metric("residual")) > len(residuals)


def test_subspace_iteration_starts_from_the_seed():
    X, labels = low_rank(6, gap=False)
    fits = [
        fs.FedPCA(2, solver="subspace_iteration", max_rounds=3, random_state=seed).fit(X, sites=labels).components_
        for seed in (0, 0, 1, np.random.RandomState(0), np.random.RandomState(0))
    ]
    np.testing.assert_array_equal(fits[0], fits[1])
    np.testing.assert_array_equal(fits[3], fits[4])
    assert not np.array_equal(fits[0], fits[2])

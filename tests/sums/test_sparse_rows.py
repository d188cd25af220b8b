"""Sums over sparse rows: those of the dense rows, whatever shift and scale, without a dense copy."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

import fedspan as fs
from fedspan.errors import InputError
from fedspan.federation.site.site import _composed
from fedspan.sums.sparse_rows import SparseRows

SITES = np.arange(120) % 3


def matrix(seed=0, n=120, d=12, share=0.2):
    rng = np.random.default_rng(seed)
    return csr_array(np.where(rng.random((n, d)) < share, rng.normal(size=(n, d)) * np.linspace(1, 4, d) + 2, 0.0))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 9), st.integers(1, 5), st.booleans(), st.floats(-1e6, 1e6))
def test_sums_are_those_of_the_dense_rows(seed, n, d, weighted, shift):
    rng = np.random.default_rng(seed)
    x = matrix(seed, n, d, 0.4)
    shifts, scale = shift + rng.normal(size=d), rng.uniform(0.5, 3.0, d)
    weights = rng.integers(0, 4, n).astype(float) if weighted else None
    rows = SparseRows(x, shifts, scale, weights)
    Z, w = (x.toarray() - shifts) / scale, np.ones(n) if weights is None else weights
    close = {"rtol": 1e-9, "atol": 1e-9 * max(1.0, shift**2)}
    np.testing.assert_allclose(rows.sums(), w @ Z, **close)
    about = rng.normal(size=d)
    np.testing.assert_allclose(rows.squares(about), w @ (Z - about) ** 2, **close)
    V, T = rng.normal(size=(d, 2)), rng.normal(size=(n, 2))
    np.testing.assert_allclose(rows.times(V), Z @ V, **close)
    np.testing.assert_allclose(rows.transposed_times(T), Z.T @ T, **close)
    found = rows.moments()
    assert (found.n, found.weight) == (n, w.sum())
    if found.weight:
        np.testing.assert_allclose(found.mean, w @ Z / w.sum(), **close)


def test_shift_and_scale_of_transforms_one_after_the_other():
    x, shift, scale = np.array([3.0, 5.0]), np.array([1.0, 2.0]), np.array([2.0, 4.0])
    for first in ((None, None), (shift, None), (None, scale), (shift, scale)):
        for second in ((None, None), (scale, None), (None, shift), (scale, shift)):
            m, s = _composed(first, second)
            z = x
            for a, b in (first, second):
                z = (z - (0 if a is None else a)) / (1 if b is None else b)
            np.testing.assert_allclose((x - (0 if m is None else m)) / (1 if s is None else s), z)
    assert _composed((None, None), None) is None


@pytest.mark.parametrize("secure", [False, True])
def test_the_scaler_is_that_of_scikit_learn(secure):
    X = matrix()
    theirs = StandardScaler(with_mean=False).fit(X)
    fed = fs.federate(X, sites=SITES, policy=fs.Policy(secure_sum=secure))
    ours = fs.FedStandardScaler(with_mean=False).fit(fed)
    np.testing.assert_allclose(ours.scale_, theirs.scale_, rtol=1e-9)
    table = fs.FedStandardScaler(with_mean=False).fit(X, sites=SITES)
    scaled = table.transform(X)
    assert scaled.format == "csr"
    np.testing.assert_allclose(scaled.toarray(), theirs.transform(X).toarray())
    np.testing.assert_allclose(table.inverse_transform(scaled).toarray(), X.toarray())
    for call in (fs.FedStandardScaler().fit, fs.FedStandardScaler().fit(X.toarray()).transform):
        with pytest.raises(InputError, match="with_mean=False"):
            call(X)
    bad = X.copy()
    bad.data[3] = np.nan
    with pytest.raises((InputError, ValueError), match="NaN"):
        fs.FedStandardScaler(with_mean=False).fit(fs.federate(bad, sites=SITES, policy=fs.Policy(secure_sum=secure)))


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("solver", ["subspace_iteration", "covariance"])
def test_pca_is_that_of_the_dense_rows(solver, scale, secure):
    X = matrix()
    dense = PCA(3).fit(X.toarray() / (X.toarray().std(axis=0) if scale else 1.0))
    fed = fs.federate(X, sites=SITES, policy=fs.Policy(secure_sum=secure))
    model = fs.FedPCA(3, solver=solver, scale=scale).fit(fed)
    np.testing.assert_allclose(np.abs(np.sum(model.components_ * dense.components_, axis=1)), 1.0, atol=1e-6)
    np.testing.assert_allclose(model.noise_variance_, dense.noise_variance_, rtol=1e-6)
    table = fs.FedPCA(3, solver=solver, scale=scale).fit(X, sites=SITES)
    whole = table.transform(X.toarray())
    np.testing.assert_allclose(table.transform(X), whole, atol=1e-12)
    np.testing.assert_allclose(table.score(X), table.score(X.toarray()))


def test_k_means_is_that_of_the_dense_rows():
    X = matrix()
    start = X.toarray()[:3]
    theirs = KMeans(3, init=start, n_init=1, tol=0.0).fit(X.toarray())
    model = fs.FedKMeans(3, init=start, tol=0.0).fit(X, sites=SITES)
    np.testing.assert_allclose(model.cluster_centers_, theirs.cluster_centers_, atol=1e-12)
    np.testing.assert_array_equal(model.labels_, theirs.labels_)
    np.testing.assert_array_equal(model.predict(X), model.predict(X.toarray()))
    np.testing.assert_allclose(model.transform(X), model.transform(X.toarray()))
    assert model.score(X) == pytest.approx(theirs.score(X.toarray()))
    posted = fs.FedKMeans(3, init=start, tol=0.0, post_labels=True).fit(fs.federate(X, sites=SITES))
    assert len(posted.labels_) == 120


def test_weights_count_sparse_rows():
    X, weights = matrix(), np.random.default_rng(1).integers(0, 3, 120)
    ours = fs.FedStandardScaler(with_mean=False).fit(X, sites=SITES, sample_weight=weights)
    theirs = StandardScaler(with_mean=False).fit(X, sample_weight=weights)
    np.testing.assert_allclose(ours.scale_, theirs.scale_)


def test_a_wide_matrix_takes_no_dense_copy():
    rng = np.random.default_rng(0)
    n, d = 4000, 20_000  # 640 MB as a dense table
    x = csr_array((rng.normal(size=40_000), (rng.integers(n, size=40_000), rng.integers(d, size=40_000))), shape=(n, d))
    fed = fs.federate(x, sites=np.arange(n) % 4)
    tracemalloc.start()
    try:
        scaled = fs.FedStandardScaler(with_mean=False).fit(fed).transform(fed)
        fs.FedPCA(2, solver="subspace_iteration", max_rounds=2, tol=1.0).fit(scaled)
        assert tracemalloc.get_traced_memory()[1] < 10**8
    finally:
        tracemalloc.stop()
    with pytest.raises(fs.errors.QuorumError, match="would make a dense table"):
        fs.FedPCA(2, solver="subspace_median").fit(fs.federate(csr_array((n, 10 * d)), sites=np.arange(n) % 4))

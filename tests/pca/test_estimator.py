"""FedPCA: one site is scikit-learn's PCA, and in the exact mode any split is the pooled one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedspan as fs
from fedspan.errors import InputError
from fedspan.federation.journal import read_journal

from .tables_of_low_rank import low_rank, sine

ATTRIBUTES = (
    "components_",
    "explained_variance_",
    "explained_variance_ratio_",
    "singular_values_",
    "mean_",
    "noise_variance_",
    "n_components_",
    "n_samples_",
    "n_features_in_",
)


def assert_equals_scikit_learn(ours, theirs, X, tol=1e-8):
    for name in ATTRIBUTES:
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=tol, atol=tol, err_msg=name)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=tol * np.abs(X).max())
    rebuilt = theirs.inverse_transform(theirs.transform(X))
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), rebuilt, atol=tol * np.abs(X).max())
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-7)
    np.testing.assert_allclose(ours.score(X), theirs.score(X), rtol=1e-7)
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance(), rtol=10 * tol, atol=10 * tol)
    np.testing.assert_allclose(ours.get_covariance() @ ours.get_precision(), np.eye(X.shape[1]), atol=100 * tol)


@pytest.mark.parametrize("solver", ["covariance", "auto", "subspace_iteration", "stack"])
def test_one_site_is_scikit_learn(solver):
    X, _ = low_rank()
    tol = 1e-7 if solver == "subspace_iteration" else 1e-8
    assert_equals_scikit_learn(fs.FedPCA(3, solver=solver).fit(X), PCA(3, svd_solver="full").fit(X), X, tol)


@pytest.mark.parametrize("n_components", [None, 1, 12, 0.5, 0.95])
def test_number_of_components(n_components):
    X, labels = low_rank(1)
    ours = fs.FedPCA(n_components).fit(X, sites=labels)
    theirs = PCA(n_components, svd_solver="full").fit(X)
    assert_equals_scikit_learn(ours, theirs, X)
    assert list(ours.get_feature_names_out()) == [f"fedpca{i}" for i in range(ours.n_components_)]


@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(1, 8), st.integers(1, 9))
def test_any_split_equals_the_pooled_data(seed, n, d, sites):
    """Also fewer rows than columns, empty variance and tiny sites."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 10 * rng.normal(size=d)
    k = min(n, d)
    ours = fs.FedPCA(solver="covariance").fit(X, sites=rng.integers(0, sites, n))
    theirs = PCA(svd_solver="full").fit(X)
    top = theirs.explained_variance_[0]
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, atol=1e-12 * top)
    gaps = -np.diff(theirs.explained_variance_) / top
    for r in range(1, k):
        if gaps[r - 1] > 1e-4:
            assert sine(ours.components_[:r], theirs.components_[:r]) <= 1e-8


@pytest.mark.parametrize("load", [load_digits, load_breast_cancer])
@pytest.mark.parametrize("scale", [False, True])
def test_real_tables(load, scale):
    X = load().data
    labels = np.random.default_rng(0).integers(0, 10, len(X))
    ours = fs.FedPCA(6, solver="covariance", scale=scale).fit(X, sites=labels)
    Z = StandardScaler().fit_transform(X) if scale else X
    theirs = PCA(6, svd_solver="full").fit(Z)
    assert sine(ours.components_, theirs.components_) <= 1e-8
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-8)
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-9)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(Z), atol=1e-8 * np.abs(Z).max())


def test_float32_tables_are_analysed_in_double_precision():
    X = (low_rank(12, n=500, d=10, gap=False)[0] + 5).astype(np.float32)
    labels = np.arange(500) % 6
    ours = fs.FedPCA(3).fit(X, sites=labels)
    theirs = PCA(3, svd_solver="full").fit(X.astype(np.float64))
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-12)
    assert sine(ours.components_, theirs.components_) <= 1e-6  # they are rounded at the end


@pytest.mark.parametrize("policy", [None, fs.Policy(secure_sum=True)], ids=["plain", "secure"])
@pytest.mark.parametrize("options", [{}, {"scale": True}, {"center": False}], ids=str)
def test_whole_weights_are_repeated_rows(options, policy):
    X, labels = low_rank(7)
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    again = np.repeat(np.arange(len(X)), weights)
    repeated = fs.FedPCA(3, **options).fit(fs.federate(X[again], sites=labels[again], policy=policy))
    weighted = fs.FedPCA(3, **options).fit(fs.federate(X, sites=labels, sample_weight=weights, policy=policy))
    for name in ATTRIBUTES:
        np.testing.assert_allclose(
            getattr(weighted, name), getattr(repeated, name), rtol=1e-9, atol=1e-10, err_msg=name
        )


def test_weights_need_a_solver_that_uses_them():
    X, labels = low_rank(7)
    ones = np.ones(len(X))
    with pytest.raises(InputError, match=r"FedPCA\(solver='fedpg'\) takes no account of sample_weight"):
        fs.FedPCA(3, solver="fedpg").fit(X, sites=labels, sample_weight=ones)
    with pytest.raises(InputError, match=r"sample_weight adds up to 1, .* multiply the weights"):
        fs.FedPCA(3).fit(X, sites=labels, sample_weight=ones / len(X))
    weighted, plain = fs.FedPCA(3).fit(X, sites=labels, sample_weight=ones), fs.FedPCA(3).fit(X, sites=labels)
    assert weighted.n_samples_ == plain.n_samples_ == len(X)
    np.testing.assert_allclose(weighted.components_, plain.components_, atol=1e-12)


def test_the_exact_solver_is_one_call_and_keeps_no_parts(tmp_path):
    X, labels = low_rank(8, gap=False)
    fed = fs.federate(X, sites=labels, run_dir=tmp_path / "run")
    model = fs.FedPCA(3, solver="covariance").fit(fed)
    assert [(call.step, call.how) for call in model.run_.calls] == [("sums.moments", "merge")]
    _, entries = read_journal(tmp_path / "run" / "run-000" / "journal")
    assert [list(entry.collected.replies) for entry in entries] == [[""]]
    again = fs.FedPCA(3, solver="covariance").fit(fs.federate(X, sites=labels, run_dir=tmp_path / "run"))
    assert again.run_.calls[0].replayed
    assert again.components_.tobytes() == model.components_.tobytes()
    wired = fs.FedPCA(3, solver="covariance").fit(fs.federate(X, sites=labels, wire=True, n_jobs=3))
    assert wired.components_.tobytes() == model.components_.tobytes()


@pytest.mark.parametrize("sites", [1, 3, 40])
def test_means_of_a_hundred_million_deviations_cost_no_accuracy(sites):
    """Also where the sites' means differ: the reference has extended precision."""
    rng = np.random.default_rng(sites)
    labels = rng.integers(0, sites, 400)
    X = rng.normal(size=(400, 6)) @ np.diag([3.0, 2.0, 1.0, 0.5, 0.3, 0.1]) + rng.normal(size=(sites, 6))[labels] + 1e8
    D = X.astype(np.longdouble)
    D = (D - D.mean(axis=0)).astype(np.float64)
    ours = fs.FedPCA(3, solver="covariance").fit(X, sites=labels)
    assert sine(ours.components_, np.linalg.svd(D)[2][:3]) <= 1e-8
    np.testing.assert_allclose(ours.explained_variance_, np.linalg.svd(D)[1][:3] ** 2 / 399, rtol=1e-12)


def test_tiny_noise_keeps_its_digits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 8)) + 1e-5 * rng.normal(size=(60, 8))
    ours, theirs = fs.FedPCA(3).fit(X, sites=np.arange(60) % 4), PCA(3, svd_solver="full").fit(X)
    np.testing.assert_allclose(ours.noise_variance_, theirs.noise_variance_, rtol=1e-8)
    # scikit-learn inverts a covariance of condition 1e11 for its scores, and loses their last digits.
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-5)


def test_large_offsets_cost_no_accuracy():
    X, labels = low_rank(2)
    ours = fs.FedPCA(3).fit(X + 1e7, sites=labels)
    theirs = PCA(3, svd_solver="full").fit(X.astype(np.longdouble).astype(float))
    assert sine(ours.components_, theirs.components_) <= 1e-7


def test_without_centring_it_is_the_singular_vectors_of_the_rows():
    X, labels = low_rank(3)
    model = fs.FedPCA(4, center=False).fit(X, sites=labels)
    _, sizes, axes = np.linalg.svd(X, full_matrices=False)
    assert sine(model.components_, axes[:4]) <= 1e-8
    np.testing.assert_allclose(model.singular_values_, sizes[:4])
    np.testing.assert_array_equal(model.mean_, np.zeros(12))
    np.testing.assert_allclose(model.transform(X), X @ model.components_.T)


def test_scaled_scores_are_densities_of_the_data_as_given():
    X, labels = low_rank(4)
    X = X * np.logspace(-3, 3, 12)
    model = fs.FedPCA(3, scale=True).fit(X, sites=labels)
    scaler = StandardScaler().fit(X)
    inner = PCA(3, svd_solver="full").fit(scaler.transform(X))
    expected = inner.score_samples(scaler.transform(X)) - np.log(scaler.scale_).sum()
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-8)
    np.testing.assert_allclose(
        fs.FedPCA(scale=True)
        .fit(X, sites=labels)
        .inverse_transform(fs.FedPCA(scale=True).fit(X, sites=labels).transform(X)),
        X,
        rtol=1e-9,
    )


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"n_components": 13}, r"n_components=13 must be a whole number between 1 and 12, the smaller of n_samples"),
        ({"n_components": 0}, "n_components=0 must be a whole number between"),
        ({"n_components": 1.5}, "n_components=1.5"),
        ({"n_components": True}, "n_components=True"),
        ({"n_components": "most"}, "n_components='most'"),
        ({"n_components": 0.5, "solver": "stack"}, "cannot know"),
        ({"solver": "magic"}, "solver='magic' must be one of"),
        ({"oversampling": -1}, "oversampling=-1"),
        ({"max_rounds": 0}, "max_rounds=0"),
        ({"tol": 0}, "tol=0"),
    ],
)
def test_invalid_parameters_are_refused(parameters, reason):
    X, labels = low_rank()
    with pytest.raises(InputError, match=reason):
        fs.FedPCA(**parameters).fit(X, sites=labels)


def test_one_row_is_too_few():
    with pytest.raises(InputError, match="n_samples=1"):
        fs.FedPCA(1).fit(fs.federate(np.ones((1, 3)), sites=["a"]))


def test_scores_need_noise():
    X = np.outer(np.arange(10.0), [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="keep fewer"):
        fs.FedPCA(2).fit(X).score_samples(X)


def test_scores_with_a_redundant_column_do_not_depend_on_rounding():
    X = np.random.default_rng(0).normal(size=(30, 3))[:, [0, 1, 2, 2]]
    model = fs.FedPCA(4).fit(X)
    model.explained_variance_[-1] = 0.0  # or any rounding error
    at_zero = model.score_samples(X)
    model.explained_variance_[-1] = 1e-18
    np.testing.assert_array_equal(model.score_samples(X), at_zero)
    assert np.isfinite(at_zero).all()


@pytest.mark.parametrize("wire", [False, True])
def test_pipelines_work_on_federations(wire):
    X, labels = low_rank(8)
    fed = fs.federate(X, sites=labels, wire=wire)
    ours = make_pipeline(fs.FedStandardScaler(), fs.FedPCA(3)).fit(fed)
    theirs = make_pipeline(StandardScaler(), PCA(3, svd_solver="full")).fit(X)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-8)
    transformed = ours.transform(fed)
    assert isinstance(transformed, fs.Federation)
    assert transformed.sites == fed.sites

    @fs.step
    def rows(site):
        return {"X": site.X}

    seen = transformed.ask(rows)
    for name in fed.sites:
        np.testing.assert_allclose(seen[name]["X"], theirs.transform(X[labels == int(name)]), atol=1e-8)
    assert [step.run_.number for step in (ours[0], ours[1])] == [0, 1]
    table = ours.set_output(transform="pandas").transform(X)
    assert list(table.columns) == ["fedpca0", "fedpca1", "fedpca2"]
    assert isinstance(ours.transform(fed), fs.Federation)


def test_only_sums_are_needed_by_the_exact_solvers(tmp_path):
    """What the coordinator keeps of a run holds no single site's part."""
    X, labels = low_rank(9)
    fed = fs.federate(X, sites=labels, run_dir=tmp_path)
    fs.FedPCA(3, solver="covariance").fit(fed)
    kept = (tmp_path / "run-000" / "journal").read_bytes()
    part = X[labels == 2]
    assert part.sum(axis=0).tobytes() not in kept
    assert X[labels == 2][0].tobytes() not in kept


@pytest.mark.parametrize("scale", [False, True])
def test_whitened_coordinates_have_unit_variance_as_in_scikit_learn(scale):
    X, labels = low_rank()
    ours = fs.FedPCA(3, whiten=True, scale=scale).fit(X, sites=labels)
    theirs = PCA(3, whiten=True, svd_solver="full")
    rows = StandardScaler(with_std=scale).fit_transform(X)
    expected = theirs.fit_transform(rows)
    np.testing.assert_allclose(np.abs(ours.transform(X)), np.abs(expected), atol=1e-8)
    plain = fs.FedPCA(3, scale=scale).fit(X, sites=labels)
    np.testing.assert_array_equal(ours.components_, plain.components_)
    rebuilt = plain.inverse_transform(plain.transform(X))
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), rebuilt, atol=1e-9 * np.abs(X).max())
    np.testing.assert_array_equal(ours.score_samples(X), plain.score_samples(X))
    again = fs.FedPCA(3).fit(ours.transform(fs.federate(X, sites=labels)))
    np.testing.assert_allclose(again.explained_variance_, 1.0)
    with pytest.raises(InputError, match="whiten='no' must be True or False"):
        fs.FedPCA(whiten="no").fit(X)


def test_precision_needs_some_noise():
    X = np.random.default_rng(0).normal(size=(30, 2)) @ np.ones((2, 4))
    with pytest.raises(InputError, match="no inverse"):
        fs.FedPCA(3).fit(X).get_precision()


def test_float32_stays_float32():
    X, labels = low_rank()
    double, single = (fs.FedPCA(3).fit(rows, sites=labels) for rows in (X, X.astype(np.float32)))
    assert (double.components_.dtype, single.components_.dtype) == (np.float64, np.float32)
    assert single.mean_.dtype == np.float64  # of a large mean every digit counts
    frame = pd.DataFrame(X.astype(np.float32))
    assert fs.FedPCA(3).fit(frame).components_.dtype == np.float32
    assert fs.FedPCA(3).fit(frame.astype({0: np.float64})).components_.dtype == np.float64
    for model in (double, single):
        for kind in (np.float32, np.float64):
            T = model.transform(X.astype(kind))
            assert T.dtype == kind
            assert model.inverse_transform(T).dtype == kind
    np.testing.assert_allclose(single.components_, double.components_, atol=1e-5)
    fed = single.transform(fs.federate(X.astype(np.float32), sites=labels))
    np.testing.assert_allclose(fs.FedPCA(3).fit(fed).explained_variance_, single.explained_variance_, rtol=1e-4)


@pytest.mark.parametrize(
    ("T", "reason"),
    [
        (np.zeros((2, 4)), "X has 4 columns, and inverse_transform needs the 3 coordinates"),
        (np.full((2, 3), np.nan), "contains NaN"),
        (np.zeros(3), "Expected 2D array"),
        ([["a", "b", "c"]], "could not convert"),
    ],
)
def test_inverse_transform_checks_its_input(T, reason):
    X, labels = low_rank()
    with pytest.raises(ValueError, match=reason):
        fs.FedPCA(3).fit(X, sites=labels).inverse_transform(T)


@pytest.mark.parametrize("solver", ["covariance", "subspace_iteration", "fedpg"])
def test_units_do_not_matter(solver):
    X, labels = low_rank()
    one = fs.FedPCA(3, solver=solver, random_state=0).fit(X, sites=labels)
    for unit in (2.0**-280, 2.0**-440):
        other = fs.FedPCA(3, solver=solver, random_state=0).fit(unit * X, sites=labels)
        assert sine(other.components_, one.components_) < 1e-6
        assert other.run_.stopped == one.run_.stopped
    with pytest.raises(InputError, match="multiply the columns first"):
        fs.FedPCA(3, solver=solver).fit(1e-160 * X, sites=labels)

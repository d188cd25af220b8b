"""The solvers of FedPCA: which of them malicious sites can spoil, whom they trust, and what they take."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan import aggregation, attacks
from fedspan.errors import InputError
from fedspan.linalg import subspace_distance
from fedspan.pca.solvers import SOLVERS, cheaper_solver

from .subspace_sites import R

RESILIENT = [name for name, solver in SOLVERS.items() if solver.resilient]


@pytest.mark.parametrize("solver", ["resilient_covariance", "resilient_power", "subspace_median"])
def test_the_largest_finite_numbers_do_no_harm(data, solver):
    fed = fs.federate(data.X, sites=data.sites).corrupt(attacks.Ones(1.7e308), sites=["site-00"])
    model = fs.FedPCA(R, solver=solver, random_state=0).fit(fed)
    assert "site-00" not in model.sites_trusted_
    assert np.isfinite(model.components_).all()


def test_every_solver_names_the_sites_that_its_aggregator_trusted(data):
    fed = fs.federate(data.X, sites=data.sites).corrupt(attacks.Orthogonal(1e4), sites=["site-01", "site-05"])
    for solver in ("covariance", "subspace_iteration", "power", "resilient_power", "resilient_covariance"):
        model = fs.FedPCA(R, solver=solver, aggregator=aggregation.Krum(f=2), center=False, max_rounds=5).fit(fed)
        assert model.sites_trusted_
        assert not {"site-01", "site-05"} & set(model.sites_trusted_)
        assert model.site_weights_[[1, 5]].sum() == 0.0


@pytest.mark.parametrize("solver", RESILIENT)
@pytest.mark.parametrize("scale", [False, True])
def test_the_whole_fit_is_resilient_centre_and_scale_included(solver, scale):
    """Malicious sites rewrite every reply, from the first call on."""
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.normal(size=(12, 2)))[0]
    X = rng.normal(size=(600, 2)) * [6.0, 4.0] @ axes.T + 0.3 * rng.normal(size=(600, 12)) + 50.0
    labels = np.arange(600) % 12
    clean = fs.FedPCA(2, scale=scale).fit(X, sites=labels)
    for attack in (attacks.Ones(1e6), attacks.ScaledReverse(100.0), attacks.RandomNoise(1e4), attacks.NonFinite()):
        fed = fs.federate(X, sites=labels).corrupt(attack, sites=["0", "3", "7"])
        model = fs.FedPCA(2, solver=solver, scale=scale, groups=12, random_state=0).fit(fed)
        if solver == "subspace_median":
            assert subspace_distance(model.components_.T, clean.components_.T) < 0.15
            assert not {"0", "3", "7"} & set(model.sites_trusted_) or isinstance(attack, attacks.ScaledReverse)
        np.testing.assert_allclose(model.mean_, clean.mean_, atol=1.5)
        assert model.site_weights_.shape == (12,)
        np.testing.assert_allclose(model.explained_variance_[0], clean.explained_variance_[0], rtol=0.6)
        np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(2), atol=1e-10)


@pytest.mark.parametrize("solver", ["covariance", "subspace_iteration", "power"])
def test_exact_solvers_take_an_aggregator(solver):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(500, 6)) * [5, 4, 0.5, 0.5, 0.5, 0.5]
    labels = np.arange(500) % 10
    exact = fs.FedPCA(2).fit(X, sites=labels)
    by_mean = fs.FedPCA(2, solver=solver, aggregator=aggregation.Mean(), iterations=30).fit(X, sites=labels)
    assert subspace_distance(by_mean.components_.T, exact.components_.T) < 1e-6
    np.testing.assert_allclose(by_mean.explained_variance_, exact.explained_variance_, rtol=1e-6)
    bad = fs.federate(X, sites=labels).corrupt(attacks.Ones(1e5), sites=["2", "3"])
    resilient = fs.FedPCA(2, solver=solver, aggregator=aggregation.TrimmedMean(2)).fit(bad)
    assert subspace_distance(resilient.components_.T, exact.components_.T) < 0.3
    spoilt = fs.FedPCA(2, solver=solver).fit(bad)
    assert subspace_distance(spoilt.components_.T, exact.components_.T) > 0.5


def test_a_solver_that_averages_nothing_takes_no_aggregator():
    with pytest.raises(InputError, match="takes no aggregator"):
        fs.FedPCA(2, solver="stack", aggregator=aggregation.GeometricMedian()).fit(np.eye(5))
    with pytest.raises(InputError, match="n_components='auto' must be a number"):
        fs.FedPCA("auto").fit(np.eye(5))
    with pytest.raises(InputError, match="output='best'"):
        fs.FedPCA(2, output="best").fit(np.eye(5))


@pytest.mark.parametrize(
    "solver", ["subspace_median", "median_of_means", "resilient_power", "resilient_covariance", "power"]
)
def test_one_site_is_ordinary_pca(solver):
    X = np.random.default_rng(5).normal(size=(200, 6)) * [6, 4, 1, 0.5, 0.4, 0.3] + 3
    model = fs.FedPCA(2, solver=solver, iterations=30).fit(X)
    exact = fs.FedPCA(2).fit(X)
    np.testing.assert_allclose(model.components_, exact.components_, atol=1e-8)
    np.testing.assert_allclose(model.explained_variance_, exact.explained_variance_, rtol=1e-8)
    assert model.sites_trusted_ == ("site",)


def test_models_with_aggregators_are_saved(tmp_path):
    X = np.random.default_rng(6).normal(size=(60, 4))
    aggregator = aggregation.ClipNorm(aggregation.TrimmedMean(f=1), factor=3.0)
    model = fs.FedPCA(2, solver="resilient_covariance", aggregator=aggregator).fit(X, sites=np.arange(60) % 5)
    model.save(tmp_path / "m")
    assert fs.load(tmp_path / "m").aggregator == aggregator


def test_auto_chooses_by_bytes_and_logs_the_reason():
    rng = np.random.default_rng(0)
    narrow = fs.FedPCA(2).fit(rng.normal(size=(50, 10)), sites=np.arange(50) % 5)
    assert narrow.solver_ == "covariance"
    wide = fs.FedPCA(1, oversampling=1, max_rounds=3).fit(rng.normal(size=(30, 300)), sites=np.arange(30) % 3)
    assert wide.solver_ == "subspace_iteration"
    for model in (narrow, wide):
        assert model.run_.metric("solver") == [model.solver_]
        assert "bytes per site" in model.run_.metric("why")[0]
    small = fs.Policy(max_bytes=3000)
    fed = fs.federate(rng.normal(size=(50, 40)), sites=np.arange(50) % 5, policy=small)
    limited = fs.FedPCA(1, oversampling=0, max_rounds=3).fit(fed)
    assert limited.solver_ == "subspace_iteration"
    assert "largest message" in limited.run_.metric("why")[0]


def test_the_cheaper_solver_by_hand():
    assert cheaper_solver(10, 10, 10**6) == ("covariance", "440 bytes per site once, against 32000 in 20 rounds")
    # 8 * 100 * 101 / 2 bytes of a covariance, and 16 bytes for each of 100 columns, 3 directions and 20 rounds
    assert cheaper_solver(100, 3, 40_400)[0] == "covariance"
    assert cheaper_solver(100, 3, 40_399)[0] == "subspace_iteration"
    assert cheaper_solver(1000, 3, 10**9)[0] == "subspace_iteration"


def test_the_table_of_solvers():
    assert RESILIENT == ["subspace_median", "median_of_means", "resilient_power", "resilient_covariance"]
    assert [name for name, solver in SOLVERS.items() if solver.iterative] == ["subspace_iteration", "fedpe", "fedpg"]
    assert not any(solver.sums_only and solver.resilient for solver in SOLVERS.values())

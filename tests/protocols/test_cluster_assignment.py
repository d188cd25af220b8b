"""Posterior clusters, the number of clusters, preparation of features and targets, classes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import fedspan as fs
from fedspan.aggregation import CoordinateMedian, GeometricMedian, Mean
from fedspan.attacks import RandomNoise
from fedspan.errors import InputError
from fedspan.linalg import bottleneck_distance, matched_share
from fedspan.mixed_regression.logistic_fedx import local_held_back_loss, logistic_fedx
from fedspan.mixed_regression.parts.cluster_assignment import cluster_assignment
from fedspan.mixed_regression.parts.count_clusters import count_clusters
from fedspan.mixed_regression.parts.feature_maps import polynomial, products, whitened
from fedspan.mixed_regression.parts.feature_scaling import feature_scaling
from fedspan.mixed_regression.parts.target_moments import target_moments
from fedspan.mixed_regression.random_start import best_random_start

from .mixtures import federation, mixture


def test_shares_noise_and_labels_of_clear_clusters():
    made = mixture(0, sizes=(20,) * 60, k=2, proportions=[0.25, 0.75], noise=0.3)
    found = federation(made).run(cluster_assignment, models=made[4])
    np.testing.assert_array_equal(found.labels, made[3])
    np.testing.assert_allclose(found.shares, np.bincount(made[3]) / 60, atol=1e-3)
    np.testing.assert_allclose(found.noise, 0.3, rtol=0.1)
    assert found.rows.sum() == pytest.approx(1200)
    np.testing.assert_allclose(found.proba.sum(axis=1), 1.0)


def test_confidence_is_right_on_average_where_sites_have_two_rows():
    made = mixture(1, sizes=(2,) * 1500, k=3, d=3, noise=0.7, apart=1.5, proportions=[0.2, 0.3, 0.5])
    found = federation(made).run(cluster_assignment, models=made[4])
    right = (found.labels == made[3]).mean()
    assert 0.6 < right < 0.95
    assert found.proba.max(axis=1).mean() == pytest.approx(right, abs=0.03)


def test_the_likelihood_is_that_of_the_mixture():
    made = mixture(2, sizes=(3, 5, 4, 6), k=2, d=2, noise=0.5)
    X, y, sites, _, models, _ = made
    found = federation(made).run(cluster_assignment, models=models)
    expected = 0.0
    for name in np.unique(sites):
        rows = sites == name
        each = [
            np.log(found.shares[j])
            - 0.5 * np.sum(((y[rows] - X[rows] @ models[j]) / found.noise[j]) ** 2)
            - rows.sum() * np.log(found.noise[j] * np.sqrt(2 * np.pi))
            for j in range(2)
        ]
        expected += np.logaddexp(*each)
    assert found.log_likelihood == pytest.approx(expected, rel=1e-9)


def test_silent_sites_have_no_label_and_the_shares_as_probability():
    made = mixture(3, sizes=(6,) * 10)

    def silence(replies, bad, rng, call):
        return dict.fromkeys(bad)

    fed = federation(made).corrupt(silence, sites=["0004"])
    with fed.begin("silent") as run:
        found = cluster_assignment(run, models=made[4])
    assert found.labels[4] == -1
    np.testing.assert_allclose(found.proba[4], found.shares)
    assert [len(call.asked) for call in run.record.calls] == [10, 1, 1]
    assert len(found.labels) == 10


def test_without_any_noise_probabilities_are_still_numbers():
    found = federation(mixture(4, noise=0.0)).run(cluster_assignment, models=mixture(4, noise=0.0)[4])
    assert np.isfinite(found.proba).all()
    assert (found.proba.max(axis=1) > 0.999).all()
    assert (found.noise > 0.0).all()


def test_the_noise_is_a_median_where_sites_may_lie():
    made = mixture(5, sizes=(3,) * 200, noise=0.3)
    fed = federation(made).corrupt(RandomNoise(1e6), sites=[f"{i:04d}" for i in range(40)])
    spoilt = fed.run(cluster_assignment, models=made[4])
    with fed.begin("negative") as run:
        cluster_assignment(run, models=made[4])
    assert any("at least 0" in why for _, _, why in run.record.failures)
    found = fed.run(cluster_assignment, models=made[4], aggregator=GeometricMedian())
    assert spoilt.noise.max() > 100.0
    np.testing.assert_allclose(found.noise, 0.3, rtol=0.3)
    with pytest.raises(InputError, match="loss='other'"):
        cluster_assignment(fed, models=made[4], loss="other")


@pytest.mark.parametrize("k", [1, 2, 4])
def test_clusters_are_counted(k):
    rng = np.random.default_rng(k)
    X = rng.normal(size=(120 * 20, 8))
    y = X[np.arange(len(X)), np.repeat(np.arange(120) % k, 20)] + 0.2 * rng.normal(size=len(X))  # theta_j = e_j
    fed = fs.federate(X, y, sites=np.repeat([f"{i:03d}" for i in range(120)], 20))
    assert fed.run(count_clusters, start=np.zeros(8)) == k
    assert fed.run(count_clusters, start=np.zeros(8), most=1) == 1


def test_counting_needs_pairs_of_rows():
    with pytest.raises(InputError, match="no site has two rows"):
        count_clusters(federation(mixture(0, sizes=(1, 1, 1))), start=np.zeros(5))
    with pytest.raises(InputError, match="flips=0"):
        count_clusters(federation(mixture(0)), start=np.zeros(5), flips=0)


def test_halves_are_even_and_odd_rows_also_in_blocks(monkeypatch):
    from fedspan.mixed_regression.parts import regression_rows
    from fedspan.mixed_regression.parts.count_clusters import local_halves

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(11, 3)), rng.normal(size=11)
    expected = np.stack([y[0::2] @ X[0::2] / 6, y[1::2] @ X[1::2] / 5])
    np.testing.assert_allclose(local_halves(fs.Site("a", X, y), np.zeros(3))["halves"], expected)
    monkeypatch.setattr(regression_rows, "_BLOCK_BYTES", 8 * 3 * 3)
    np.testing.assert_allclose(local_halves(fs.Site("a", X, y), np.zeros(3))["halves"], expected)


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
    from sklearn.preprocessing import PolynomialFeatures

    X = np.random.default_rng(0).normal(size=(5, 3))
    for degree, interactions in ((1, False), (3, False), (3, True)):
        expected = PolynomialFeatures(degree, interaction_only=interactions, include_bias=False).fit_transform(X)
        np.testing.assert_allclose(polynomial(X, degree, interactions), expected)
    with pytest.raises(InputError, match="more than 10000"):
        next(products(200, 3, False))
    np.testing.assert_array_equal(whitened(X, np.zeros(3), np.eye(3), intercept=True)[:, 0], 1.0)
    assert whitened(X, np.zeros(3), np.eye(3), intercept=False).shape == (5, 3)
    by_diagonal = whitened(X, np.ones(3), np.array([1.0, 2.0, 3.0]), intercept=True)
    np.testing.assert_allclose(by_diagonal, whitened(X, np.ones(3), np.diag([1.0, 2.0, 3.0]), intercept=True))


# Classes.


def classes(seed=0, sizes=(30,) * 40, k=2, d=3, strength=3.0):
    rng = np.random.default_rng(seed)
    models = strength * rng.normal(size=(k, d)) / np.sqrt(d)
    labels = np.resize(np.arange(k), len(sizes))
    X = rng.normal(size=(sum(sizes), d))
    p = expit(np.einsum("nd,nd->n", X, models[np.repeat(labels, sizes)]))
    sites = np.repeat([f"{i:04d}" for i in range(len(sizes))], sizes)
    return X, (rng.random(len(p)) < p).astype(float), sites, labels, models


def logistic_fit(X, y):
    def loss(theta):
        t = X @ theta
        return np.logaddexp(0.0, np.where(y > 0.5, -t, t)).sum(), X.T @ (expit(t) - y)

    return minimize(loss, np.zeros(X.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-8}).x


def test_one_logistic_step_leads_to_the_maximum_of_the_likelihood():
    X, y, sites, labels, models = classes()
    fed = fs.federate(X, y, sites=sites)
    found = logistic_fedx(fed, models=models, local_steps=1, rate=2.0, max_rounds=400, tol=1e-10, acceleration=5)
    assert found.converged
    # The cluster of each site under these models, of which some are not the true ones.
    t = (X @ found.models.T).reshape(40, 30, 2)
    chosen = np.logaddexp(0.0, np.where(y.reshape(40, 30, 1) > 0.5, -t, t)).sum(axis=1).argmin(axis=1)
    assert matched_share(chosen, labels) > 0.7
    rows = np.repeat(chosen, 30)
    expected = np.stack([logistic_fit(X[rows == j], y[rows == j]) for j in range(2)])
    np.testing.assert_allclose(found.models, expected, atol=1e-6)


def test_logistic_options():
    X, y, sites, _, models = classes(1)
    fed = fs.federate(X, y, sites=sites)
    plain = logistic_fedx(fed, models=models, max_rounds=30)
    by_mean = logistic_fedx(fed, models=models, max_rounds=30, aggregator=Mean())
    np.testing.assert_allclose(by_mean.models, plain.models, atol=1e-8)
    soft = logistic_fedx(fed, models=models, max_rounds=30, assignment="soft")
    assert 0.0 < np.linalg.norm(soft.models - plain.models) < 0.5
    train = logistic_fedx(fed, models=models, max_rounds=30, part="train")
    kept = np.arange(len(y)) % 30 % 4 != 3
    same = logistic_fedx(fs.federate(X[kept], y[kept], sites=sites[kept]), models=models, max_rounds=30)
    assert np.linalg.norm(train.models - same.models) < 0.05  # the same rows, at the rate of all of them
    for options, words in (
        ({"part": "half"}, "part='half'"),
        ({"local_steps": 0}, "local_steps=0"),
        ({"rate": 0.0}, "rate=0.0"),
    ):
        with pytest.raises(InputError, match=words):
            logistic_fedx(fed, models=models, **options)


def test_held_back_rows_are_every_fourth():
    X, y, _, _, models = classes(2, sizes=(9,))
    reply = local_held_back_loss(fs.Site("a", X, y), models)
    train, held = np.arange(9) % 4 != 3, np.arange(9) % 4 == 3
    t = X @ models.T
    losses = np.logaddexp(0.0, np.where(y[:, None] > 0.5, -t, t))
    assert reply["n"] == 2
    assert reply["loss"] == pytest.approx(losses[held][:, losses[train].sum(axis=0).argmin()].sum())


def test_several_random_starts_find_clusters_of_classes():
    X, y, sites, _labels, models = classes(3, k=3, sizes=(40,) * 45)
    fed = fs.federate(X, y, sites=sites)
    with fed.begin("starts") as run:
        found = best_random_start(run, n_clusters=3, n_columns=3, starts=4, loss="logistic", scale=3.0)
    losses = run.record.metric("start_loss")
    assert len(losses) == 4
    held = fed.sum(local_held_back_loss, models=found.models)
    assert held["loss"] / held["n"] == pytest.approx(min(losses))
    assert bottleneck_distance(found.models, models) < 2.0
    resilient = fed.run(
        best_random_start, n_clusters=3, n_columns=3, starts=2, loss="logistic", scale=3.0, aggregator=GeometricMedian()
    )
    assert resilient.models.shape == (3, 3)
    who = fed.run(cluster_assignment, models=models, loss="logistic")
    assert matched_share(who.labels, _labels) > 0.9
    assert np.isnan(who.noise).all()


def test_other_classes_are_refused():
    X, y, sites, _, models = classes(4)
    fed = fs.federate(X, y + 1.0, sites=sites)
    with pytest.raises(fs.errors.QuorumError, match="classes 0 and 1"):
        logistic_fedx(fed, models=models, rate=1.0, max_rounds=1)

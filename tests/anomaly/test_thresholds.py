"""Scores of rows left out, against models that are fitted again without each row."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.anomaly.thresholds import few_rows, left_out_subspace, left_out_whitened
from fedspan.linalg import whitening_root


def rows(n=60, d=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_t(6, size=(n, d)) @ rng.normal(size=(d, d)) + 3.0


def refitted(X, center):
    """Return mean and covariance without each row."""
    for i in range(len(X)):
        rest = np.delete(X, i, axis=0)
        mean = rest.mean(axis=0) if center else np.zeros(X.shape[1])
        yield X[i] - mean, (rest - mean).T @ (rest - mean) / (len(rest) - center)


def model(X, center):
    n = len(X)
    mean = X.mean(axis=0) if center else np.zeros(X.shape[1])
    settings = {"free": n - 1, "shift": n / (n - 1)} if center else {"free": n, "shift": 1.0}
    return mean, (X - mean).T @ (X - mean) / settings["free"], settings


@pytest.mark.parametrize("center", [True, False])
def test_mahalanobis_distances_are_those_of_models_without_the_row(center):
    X = rows()
    mean, C, settings = model(X, center)
    found = left_out_whitened(X, mean, None, whitening_root(C, 1e-13), None, None, None, **settings)[:, 0]
    np.testing.assert_allclose(found, [v @ np.linalg.solve(C, v) for v, C in refitted(X, center)], rtol=1e-7)


@pytest.mark.parametrize("center", [True, False])
def test_distances_of_the_residual_are_those_of_covariances_without_the_row(center):
    X = rows()
    scale = np.array([1.0, 2.0, 3.0, 0.5, 0.1])
    mean, C, settings = model(X / scale, center)
    values, axes = np.linalg.eigh(C)
    U = axes[:, -2:]
    root = whitening_root(C, 1e-13, without=U)
    fixed = 1 / values[-2:] / settings["free"]  # as if only the variances within changed: the subspace stays
    found = left_out_whitened(X, mean * scale, scale, root, U.T, 1 / values[-2:], fixed, **settings)[:, 0]
    expected = []
    for v, without in refitted(X / scale, center):
        within = U.T @ v
        expected.append(v @ np.linalg.solve(without, v) - within @ np.linalg.solve(U.T @ without @ U, within))
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_residuals_come_near_those_of_subspaces_without_the_row():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 12)) * np.r_[6.0, 4.0, np.ones(10)]
    mean, C, settings = model(X, True)
    values, axes = np.linalg.eigh(C)
    U, leverage = axes[:, -2:], 1 / (79 * (values[-2:] - values[:-2].mean()))
    found = left_out_subspace(X, mean, None, U.T, None, 1.0, leverage, **settings)[:, 0]
    plain = np.sum(((X - mean) - (X - mean) @ U @ U.T) ** 2, axis=1)
    exact = []
    for v, without in refitted(X, True):
        W = np.linalg.eigh(without)[1][:, :-2]
        exact.append(np.sum((W.T @ v) ** 2))
    error, optimism = np.abs(found / exact - 1).mean(), np.abs(plain / exact - 1).mean()
    assert error < optimism / 5
    weighted = left_out_subspace(X, mean, None, U.T, None, 3.0, leverage, **settings)[:, 0]
    np.testing.assert_allclose(weighted, 3 * found)


def test_a_row_that_makes_an_axis_alone_is_no_nearer_than_it_is_to_the_mean():
    X = np.random.default_rng(0).normal(size=(50, 4))
    X[0] = [1e4, 0.0, 0.0, 0.0]
    mean, C, settings = model(X, True)
    values, axes = np.linalg.eigh(C)
    leverage = 1 / (49 * (values[-1:] - values[:-1].mean()))
    found = left_out_subspace(X, mean, None, axes[:, -1:].T, None, 1.0, leverage, **settings)[:, 0]
    assert found[0] == pytest.approx(np.sum((X[0] - X[1:].mean(axis=0)) ** 2))
    assert found[1:].max() < 30


def test_distances_within_a_subspace_are_those_without_the_row():
    X = rows()
    mean, C, settings = model(X, True)
    values, axes = np.linalg.eigh(C)
    U = axes[:, -2:].T
    inside = 1 / values[-2:]
    alone = left_out_subspace(X, mean, None, U, None, 0.5, np.zeros(2), **settings)
    both = left_out_subspace(X, mean, None, U, inside, 0.5, np.zeros(2), **settings)
    expected = [(U @ v) @ np.linalg.solve(U @ C @ U.T, U @ v) for v, C in refitted(X, True)]
    np.testing.assert_allclose((both - alone)[:, 0], expected, rtol=1e-7)


def false_alarms(distance, left_out, n=400, d=30, solver="auto", scale=True):
    """Return the share of new rows above the threshold of few, for ten samples."""
    rates = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(d, d)) * np.exp(-np.arange(d) / 8)[:, None]
        X = rng.standard_t(8, (n + 4000, d)) @ A + 0.1 * rng.normal(size=(n + 4000, d))
        detector = fs.FedPCADetector(5, solver=solver, distance=distance, left_out=left_out, scale=scale)
        detector.fit(X[:n], sites=np.arange(n) % 8)
        rates.append(np.mean(detector.predict(X[n:]) == -1))
    return np.mean(rates)


@pytest.mark.parametrize("distance", ["residual", "mahalanobis", "combined"])
def test_few_rows_have_the_false_positive_rate_of_the_quantile(distance):
    assert false_alarms(distance, "auto") == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(("n", "d"), [(400, 30), (3300, 30), (650, 10)])
@pytest.mark.parametrize("distance", ["residual", "mahalanobis", "combined"])
def test_unrelated_columns_have_the_false_positive_rate_of_the_quantile(distance, n, d):
    rates = []
    for seed in range(5):
        X = np.random.default_rng(seed).normal(size=(n + 4000, d))
        detector = fs.FedPCADetector(distance=distance).fit(X[:n], sites=np.arange(n) % 5)
        rates.append(np.mean(detector.predict(X[n:]) == -1))
    assert np.mean(rates) == pytest.approx(0.05, abs=0.01 if n > 500 else 0.015)


def test_without_leaving_rows_out_the_rate_is_too_high():
    assert false_alarms("mahalanobis", False) > 0.08
    assert false_alarms("combined", False) > 0.08


def test_other_solvers_and_rows_that_are_not_scaled():
    assert false_alarms("residual", True, solver="subspace_iteration", scale=False) == pytest.approx(0.05, abs=0.012)


def test_auto_leaves_rows_out_where_they_are_few():
    clear = np.array([9.0, 4.0])
    assert few_rows(150, 4, 0.95, clear, 0.01)
    assert not few_rows(400, 4, 0.95, clear, 0.01)
    assert few_rows(400, 4, 0.8, clear, 0.01)
    assert few_rows(400, 4, 0.95, np.array([9.0, 1.1]), 1.0)
    assert not few_rows(40, 4, 1.0, clear, 0.01)
    X = np.random.default_rng(0).normal(size=(400, 4)) * [9.0, 4.0, 0.1, 0.1]
    assert not fs.FedPCADetector(2, scale=False).fit(X).left_out_
    assert fs.FedPCADetector(2, scale=False).fit(X[:150]).left_out_
    plain = fs.FedPCADetector(2, left_out=False).fit(X[:150])
    scores = -plain.score_samples(X[:150])
    assert -plain.offset_ == pytest.approx(np.quantile(scores, 0.95, method="inverted_cdf"), rel=1e-8)
    assert fs.FedPCADetector(2, left_out=True).fit(X[:150]).offset_ < plain.offset_


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_other_values_of_left_out_are_refused(value):
    with pytest.raises(fs.errors.InputError, match=r"left_out=.* must be True, False or 'auto'"):
        fs.FedPCADetector(left_out=value).fit(np.eye(5))


def test_with_fewer_rows_than_columns_the_ridge_and_the_deviations_are_left_out_too():
    X = np.random.default_rng(0).normal(size=(30, 200))
    detector = fs.FedPCADetector(left_out=True).fit(X)
    transform, parameters = detector._training_transform()
    fits = [fs.FedPCADetector().fit(np.delete(X, i, axis=0)) for i in range(30)]
    want = [-fit.score_samples(X[i : i + 1])[0] for i, fit in enumerate(fits)]
    np.testing.assert_allclose(transform(X, **parameters)[:, 0], want, rtol=0.01)
    del parameters["ridge"]
    assert (transform(X, **parameters)[:, 0] < 0.95 * np.array(want)).all()

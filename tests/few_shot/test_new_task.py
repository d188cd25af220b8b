"""New tasks from a few rows: coefficients, expected errors, warnings."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import fedspan as fs
from fedspan import aggregation
from fedspan.datasets import make_few_shot_tasks
from fedspan.errors import InputError

from .regressor_examples import N, Q, R, fit, new_tasks, table


@pytest.fixture(scope="module")
def data():
    return table()


@pytest.fixture(scope="module")
def model(data):
    return fit(data, iterations=60)


@pytest.fixture(scope="module")
def new(data):
    return new_tasks(data)


def test_new_tasks_from_few_rows_are_as_good_as_theory_says(model, new):
    """Mean squared error of the coefficients against sigma^2 r / (m - r - 1), and what the task itself expects."""
    errors, expected = [], []
    for k in range(30):
        task = model.adapt(new.X[new.task == k][:20], new.y[new.task == k][:20])
        errors.append(np.sum((task.coef - new.coef[k]) ** 2))
        expected.append(task.expected_error)
        assert task.rows == 20
        assert task.residual_variance == pytest.approx(0.01, rel=2.0)
    theory = 0.01 * R / (20 - R - 1)
    assert np.mean(expected) == pytest.approx(theory + model.representation_error_, rel=0.3)
    assert theory < np.mean(errors) < 1.5 * np.mean(expected)
    X = new.X[new.task == 29][20:]
    np.testing.assert_array_equal(model.predict(X, task), task.predict(X))
    assert task.score(X, new.y[new.task == 29][20:]) > 0.95
    with pytest.raises(InputError, match="must have 25 columns"):
        task.predict(X[:, :4])


def repeated(rows):
    return np.repeat(rows[:2], 4, axis=0)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("aggregator", [None, aggregation.GeometricMedian()], ids=str)
def test_the_expected_error_is_the_mean_error(aggregator, intercept):
    """Over 300 new tasks, also where rows do not decide (1 and 2 of them, or the same two again), with any ridge."""
    noise = 0.3
    data = make_few_shot_tasks(N, Q, R, 60, 6, noise=noise, seed=1)
    level = 3.0 * intercept
    model = fs.FedFewShotRegressor(R, iterations=60, aggregator=aggregator, fit_intercept=intercept, share_coefs=False)
    model.fit(data.X, data.y + level, task=data.task, sites=data.sites)
    new = make_few_shot_tasks(N, 300, R, 40, 1, noise=noise, basis=data.basis, seed=2)
    rng = np.random.default_rng(3)
    ways = [(9, 0.0), (20, 0.0), (40, 0.0), (1, "auto"), (2, "auto"), (5, "auto"), (20, "auto"), (5, 5.0), (0, 1.0)]
    for rows, ridge in ways:
        errors, expected = [], []
        for k in range(300):
            X = new.X[new.task == k][:rows] if rows else repeated(new.X[new.task == k])
            y = X @ new.coef[k] + noise * rng.normal(size=len(X)) + level
            task = model.adapt(X, y, ridge=ridge)
            errors.append(np.sum((task.coef - new.coef[k]) ** 2))
            expected.append(task.expected_error)
        assert 1 / 1.5 < np.mean(errors) / np.mean(expected) < 1.5, (rows, ridge)


def test_rows_that_do_not_decide_give_a_warning_and_a_large_expected_error(model, new):
    X = np.repeat(new.X[:1], 8, axis=0)
    with pytest.warns(UserWarning, match="these 8 rows decide 1 of 3 directions: the others are taken as zero"):
        task = model.adapt(X, np.repeat(new.y[:1], 8))
    assert task.expected_error > 0.3 * np.trace(model.loadings_moment_)
    level = fs.FedFewShotRegressor(R, fit_intercept=True, iterations=20).fit(new.X, new.y, task=new.task)
    one = level.adapt(new.X[:1], new.y[:1], ridge=1.0)
    assert one.expected_error > 0.9 * np.trace(level.loadings_moment_)


def test_the_intercept_of_a_new_task(data):
    X, y = data.X + 1.0, data.y + 5.0
    model = fs.FedFewShotRegressor(R, fit_intercept=True, iterations=40).fit(X, y, task=data.task, sites=data.sites)
    task = model.adapt(X[:30], y[:30] + 7.0)
    own = LinearRegression().fit(X[:30] @ model.representation_, y[:30] + 7.0)
    np.testing.assert_allclose(task.loadings, own.coef_, atol=1e-9)
    assert task.intercept == pytest.approx(own.intercept_)
    np.testing.assert_allclose(task.predict(X[:30]), own.predict(X[:30] @ model.representation_), atol=1e-9)


def test_too_few_rows_are_refused_and_few_give_a_warning(model, new):
    X, y = new.X[:40], new.y[:40]
    with pytest.raises(InputError, match="2 rows do not decide 3 unknowns: give at least 3 rows"):
        model.adapt(X[:2], y[:2])
    for m in (3, 4, 5):
        with pytest.warns(UserWarning, match=f"{m} rows for 3 unknowns amplify the noise: the expected squared error"):
            task = model.adapt(X[:m], y[:m])
    T = X[:5] @ model.representation_
    noise = model.noise_variance_ + model.feature_variance_ * model.representation_error_
    theory = noise * np.trace(np.linalg.inv(T.T @ T)) + model.representation_error_
    assert task.expected_error == pytest.approx(theory)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        enough = model.adapt(X[:6], y[:6])
        ridged = model.adapt(X[:2], y[:2], ridge=0.1)
    assert np.isnan(ridged.residual_variance)
    assert np.isfinite(enough.residual_variance)
    T = X[:2] @ model.representation_
    np.testing.assert_allclose(ridged.loadings, np.linalg.solve(T.T @ T + 0.1 * np.eye(R), T.T @ y[:2]), atol=1e-12)
    assert 0 < ridged.expected_error < 10
    stronger = model.adapt(X[:9], y[:9], ridge=1e9)
    np.testing.assert_allclose(stronger.coef, 0.0, atol=1e-6)
    for ridge in (-1.0, np.nan, "1", True):
        with pytest.raises(InputError, match="ridge="):
            model.adapt(X, y, ridge=ridge)
    with pytest.raises(ValueError, match="NaN"):
        model.adapt(X, np.where(np.arange(40) == 3, np.nan, y))
    with pytest.raises(ValueError, match="inconsistent"):
        model.adapt(X, y[:5])
    with pytest.raises(ValueError, match="features"):
        model.adapt(X[:, :7], y)

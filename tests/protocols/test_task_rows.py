"""A site's rows by task: grouping, gradients, labels."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.few_shot.parts import task_rows
from fedspan.few_shot.parts.feature_spread import feature_spread
from fedspan.few_shot.parts.task_names import positions, task_labels
from fedspan.few_shot.parts.task_rows import Part, TaskRows, descent_sums, least_rows
from fedspan.few_shot.parts.truncated_moments import local_basis, theta

ALL = Part()


def ragged_site(seed=0, n=7, dtype=np.float64):
    """Tasks of 1 to 9 rows, their rows shuffled."""
    rng = np.random.default_rng(seed)
    task = np.repeat([5, 3, 8, 1, 9, 2], [4, 1, 9, 4, 2, 9])
    task = task[rng.permutation(len(task))]
    X = rng.normal(size=(len(task), n)).astype(dtype)
    return fs.Site("s", X, rng.normal(size=len(task)), task)


def loop(site, U, intercept=False):
    """The gradient as the paper writes it, task by task, of the tasks with more rows than unknowns."""
    gradient, moment, loss = np.zeros(U.shape), np.zeros((U.shape[1], U.shape[1])), 0.0
    for k in np.unique(site.task):
        X, y = site.X[site.task == k].astype(float), site.y[site.task == k]
        if len(y) <= U.shape[1] + intercept:
            continue
        A = np.c_[X @ U, np.ones(len(y))] if intercept else X @ U
        b = np.linalg.lstsq(A, y, rcond=None)[0]
        residual = A @ b - y
        b = b[: U.shape[1]]
        gradient += X.T @ np.outer(residual, b)
        moment += len(y) * np.outer(b, b)
        loss += residual @ residual
    return gradient, moment, loss


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("block", [1, 500, 10**9])
def test_sums_are_those_of_a_loop_over_the_tasks(monkeypatch, intercept, block):
    monkeypatch.setattr(task_rows, "_BLOCK_BYTES", block)
    site = ragged_site()
    U = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 2)))[0]
    found = descent_sums(TaskRows.of(site), U, intercept, ALL, ALL)
    gradient, moment, loss = loop(site, U, intercept)
    np.testing.assert_allclose(found.gradient, gradient, atol=1e-12)
    np.testing.assert_allclose(found.moment, moment, atol=1e-12)
    assert found.loss == pytest.approx(loss)
    assert found.rows == 26  # 4 + 4 + 9 + 9: a task of one row and one of two say nothing about two directions
    assert found.free == 26 - 4 * (2 + intercept)


def test_the_gradient_is_the_derivative_of_the_minimum_over_b():
    """Small steps agree with the gradient: half the derivative, because the papers leave out the factor two."""
    site = ragged_site()
    rng = np.random.default_rng(2)
    U, D = np.linalg.qr(rng.normal(size=(7, 2)))[0], rng.normal(size=(7, 2))

    def loss(U):
        return descent_sums(TaskRows.of(site), U, False, ALL, ALL).loss

    h = 1e-6
    slope = (loss(U + h * D) - loss(U - h * D)) / (2 * h)
    gradient = descent_sums(TaskRows.of(site), U, False, ALL, ALL).gradient
    assert slope == pytest.approx(2 * np.vdot(gradient, D), rel=1e-6)


def test_parts_of_a_sample_split_are_disjoint_and_each_is_used_for_what_it_is_for():
    rng = np.random.default_rng(3)
    task = np.repeat([0, 1], 12)
    site = fs.Site("s", rng.normal(size=(24, 5)), rng.normal(size=24), task)
    U = np.linalg.qr(rng.normal(size=(5, 2)))[0]
    found = descent_sums(TaskRows.of(site), U, False, Part(1, 3), Part(2, 3))
    gradient = np.zeros((5, 2))
    for k in (0, 1):
        X, y = site.X[task == k], site.y[task == k]
        b = np.linalg.lstsq(X[1::3] @ U, y[1::3], rcond=None)[0]
        gradient += X[2::3].T @ np.outer(X[2::3] @ U @ b - y[2::3], b)
    np.testing.assert_allclose(found.gradient, gradient, atol=1e-12)
    assert (found.rows, found.free) == (8, 8)
    assert least_rows(2, 3) == 9


def test_rows_that_lie_by_task_already_are_not_copied_and_single_precision_stays():
    X = np.ones((6, 3), dtype=np.float32)
    rows = TaskRows.of(fs.Site("s", X, np.zeros(6), [0, 0, 1, 1, 2, 2]))
    assert np.shares_memory(rows.X, X)
    assert rows.X.dtype == np.float32
    shuffled = TaskRows.of(fs.Site("s", X, np.arange(6), [2, 0, 1, 1, 0, 0]))
    assert shuffled.labels.tolist() == [2, 1, 0]  # by size
    assert shuffled.y.tolist() == [0.0, 2.0, 3.0, 1.0, 4.0, 5.0]


def test_theta_is_truncated_and_centred_where_there_is_an_intercept():
    site = fs.Site("s", np.arange(8.0).reshape(4, 2), [1.0, -9.0, 2.0, 4.0], ["a", "a", "b", "b"])
    np.testing.assert_allclose(theta(site, 25.0, False, 1), [[0.0, 1.0], [32.0, 38.0]])  # -9 is beyond 5
    centred = theta(site, 1e9, True, 1)
    np.testing.assert_allclose(centred, [[-10.0, -10.0], [2.0, 2.0]])
    np.testing.assert_allclose(theta(site, 1e9, False, 2), [[0.0, 1.0], [8.0, 10.0]])  # the first of two parts
    basis = local_basis(site, rank=1, alpha=1e9, intercept=True, parts=1)["basis"]
    np.testing.assert_allclose(np.abs(basis), np.sqrt(0.5) * np.ones((2, 1)))
    with pytest.raises(InputError, match="has 2 tasks, and needs at least 3"):
        local_basis(site, rank=3, alpha=1.0, intercept=False, parts=1)


def test_labels_of_tasks():
    assert task_labels([3, 1], "task").dtype == np.int64
    assert task_labels(np.array([True, False]), "task").tolist() == [1, 0]
    assert task_labels([0.5, 1.0], "task").tolist() == ["0.5", "1.0"]
    assert task_labels(np.array([1, 2], dtype=object), "task").tolist() == [1, 2]
    import pandas as pd

    assert task_labels(pd.Series(["x", "y"]), "task").tolist() == ["x", "y"]
    for missing in ([np.nan, 1.0], np.array(["a", None], dtype=object), pd.Series(["a", pd.NA])):
        with pytest.raises(InputError, match="every row must belong to a task"):
            task_labels(missing, "task")
    with pytest.raises(InputError, match="one label for each row"):
        task_labels(np.zeros((2, 2)), "task")
    with pytest.raises(InputError, match="whole numbers or text"):
        task_labels(np.array([b"a"]), "task")
    at, known = positions(np.array([3, 7]), np.array([1, 3]))
    assert (at[0], known.tolist()) == (1, [True, False])
    assert positions(np.array([3]), np.array(["10", "3"]))[1].tolist() == [True]


@pytest.mark.parametrize(
    ("site", "sentence"),
    [
        (fs.Site("s", np.ones((2, 2))), "has no targets"),
        (fs.Site("s", np.ones((2, 2)), ["a", "b"]), "one number for each row"),
        (fs.Site("s", np.ones((2, 2)), [1.0, np.nan]), "y contains NaN or infinity in 1 rows"),
        (fs.Site("s", np.array([[1.0, np.inf]]), [1.0]), "X contains NaN or infinity in 1 features"),
        (fs.Site("s", np.ones((0, 2)), []), "no rows"),
        (fs.Site("s", np.ones(2), [1.0, 2.0]), "table of rows and columns"),
    ],
)
def test_sites_that_cannot_be_learned_from_say_why(site, sentence):
    with pytest.raises(InputError, match=sentence):
        TaskRows.of(site)


def test_the_spread_of_features_is_told_from_chance():
    rng = np.random.default_rng(0)
    white = rng.standard_normal((1500, 200))
    assert feature_spread(white, False) == pytest.approx((1.0, 1.0), abs=0.02)
    largest, mean = feature_spread(3.0 * white * np.r_[4.0, np.ones(199)], False)
    assert largest == pytest.approx(144.0, rel=0.1)
    assert mean == pytest.approx(9.0 * (1 + 15 / 200), rel=0.1)
    assert feature_spread(white + 50.0, True)[0] == pytest.approx(1.0, abs=0.02)
    assert feature_spread(white + 50.0, False)[0] > 1e5
    assert feature_spread(np.zeros((5, 3)), False) == (0.0, 0.0)

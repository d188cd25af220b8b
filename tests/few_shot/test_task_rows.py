"""A site's tasks: labels, rows by task, least squares per task."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.few_shot.parts.task_rows import TaskRows, fitted, positions, task_labels


def test_rows_in_order_are_not_copied_and_single_precision_stays():
    X = np.ones((6, 3), dtype=np.float32)
    rows = TaskRows.of(fs.Site("s", X, np.zeros(6), [0, 0, 1, 1, 2, 2]))
    assert np.shares_memory(rows.X, X)
    assert rows.X.dtype == np.float32
    shuffled = TaskRows.of(fs.Site("s", X, np.arange(6), [2, 0, 1, 1, 0, 0]))
    assert shuffled.labels.tolist() == [2, 1, 0]  # by size
    assert shuffled.y.tolist() == [0.0, 2.0, 3.0, 1.0, 4.0, 5.0]


def test_labels_of_tasks():
    assert task_labels([3, 1], "task").dtype == np.int64
    assert task_labels(np.array([True, False]), "task").tolist() == [1, 0]
    assert task_labels([0.5, 1.0], "task").tolist() == ["0.5", "1.0"]
    assert task_labels(np.array([1, 2], dtype=object), "task").tolist() == [1, 2]
    assert task_labels(pd.Series(["x", "y"]), "task").tolist() == ["x", "y"]
    for missing in ([np.nan, 1.0], np.array(["a", None], dtype=object), pd.Series(["a", pd.NA])):
        with pytest.raises(InputError, match="every row must belong to a task"):
            task_labels(missing, "task")
    with pytest.raises(InputError, match="one label for each row"):
        task_labels(np.zeros((2, 2)), "task")
    with pytest.raises(InputError, match=r"labels of type \|S1"):
        task_labels(np.array([b"a"]), "task")
    at, known = positions(np.array([3, 7]), np.array([1, 3]))
    assert (at[0], known.tolist()) == (1, [True, False])
    assert positions(np.array([3]), np.array(["10", "3"]))[1].tolist() == [True]


def test_labels_are_the_same_when_they_read_the_same():
    common = np.arange(40)
    at_text, known = positions(np.array(["3", "10", "39", "40", "x", "03", "-1"]), common)
    assert known.tolist() == [True, True, True, False, False, False, False]
    assert at_text[:3].tolist() == [3, 10, 39]
    assert positions(np.array([10, 3]), np.array(["10", "3"]))[0].tolist() == [0, 1]
    assert not positions(np.array([1]), np.zeros(0, dtype=int))[1].any()


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
def test_unusable_data_are_refused_with_the_reason(site, sentence):
    with pytest.raises(InputError, match=sentence):
        TaskRows.of(site)


@pytest.mark.parametrize("intercept", [False, True])
def test_a_ridge_is_that_of_the_normal_equations(intercept):
    rng = np.random.default_rng(0)
    T, y = rng.normal(size=(5, 4, 2)), rng.normal(size=(5, 4))
    b, a = fitted(T, y, intercept, 0.3)
    for k in range(5):
        C, z = (T[k] - T[k].mean(axis=0), y[k] - y[k].mean()) if intercept else (T[k], y[k])
        np.testing.assert_allclose(b[k], np.linalg.solve(C.T @ C + 0.3 * np.eye(2), C.T @ z), atol=1e-12)
        assert a[k] == pytest.approx(y[k].mean() - T[k].mean(axis=0) @ b[k] if intercept else 0.0)

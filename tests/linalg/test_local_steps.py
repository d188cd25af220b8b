"""Local steps in closed form against the loops that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.errors import InputError
from fedspan.linalg import SiteStack, compressed, descent_operator, proximal_operator


def stepped(X, y, theta, rate, steps):
    for _ in range(steps):
        theta = theta - rate / len(y) * (X.T @ (X @ theta - y))
    return theta


def some(seed, n, d):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=d)


def test_two_steps_by_hand():
    # theta: 0 -> 0.5 * 2 * 3 = 3 -> 3 + 0.5 * 2 * (3 - 6) = 0, and Z = 0.5 * (1 + (1 - 0.5 * 4)) * 2 = 0
    np.testing.assert_allclose(descent_operator(np.array([[2.0]]), 0.5, 2), [[0.0]], atol=1e-15)
    np.testing.assert_allclose(descent_operator(np.array([[2.0]]), 0.5, 1), [[1.0]])


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 12), st.integers(1, 40), st.floats(0.01, 1.5))
def test_descent_is_the_loop(seed, n, d, steps, part):
    X, y, theta = some(seed, n, d)
    rate = part / np.linalg.norm(X, 2) ** 2 * n
    moved = theta + descent_operator(X, rate, steps).T @ (y - X @ theta)
    np.testing.assert_allclose(moved, stepped(X, y, theta, rate, steps), atol=1e-10 * np.abs(y).max())


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 12), st.floats(0.01, 10.0))
def test_proximal_is_the_minimum(seed, n, d, rate):
    X, y, theta = some(seed, n, d)
    moved = theta + proximal_operator(X, rate).T @ (y - X @ theta)
    gradient = X.T @ (X @ moved - y) / n + (moved - theta) / rate
    np.testing.assert_allclose(gradient, 0.0, atol=1e-9 / rate)


def test_directions_without_data_do_not_move_and_tiny_eigenvalues_keep_their_digits():
    X = np.array([[1.0, 0.0], [0.0, 1e-9]])
    Z = descent_operator(X, 0.5, 10, rows=1)
    np.testing.assert_allclose(Z[1, 1], 0.5 * 10 * 1e-9, rtol=1e-12)
    assert Z[0, 1] == 0.0


def test_operators_refuse_what_makes_no_step():
    with pytest.raises(InputError, match="steps=0"):
        descent_operator(np.eye(2), 0.1, 0)
    with pytest.raises(InputError, match="rate=0"):
        proximal_operator(np.eye(2), 0.0)


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 6), st.integers(1, 15))
def test_compressed_rows_have_all_squared_errors_and_the_same_steps(seed, n, d, block):
    X, y, theta = some(seed, n, d)
    R, c, rest = compressed([(X[i : i + block], y[i : i + block]) for i in range(0, n, block)], d)
    assert len(R) <= max(d, 1)
    for model in (theta, np.zeros(d)):
        np.testing.assert_allclose(
            np.sum((c - R @ model) ** 2) + rest, np.sum((y - X @ model) ** 2), rtol=1e-10, atol=1e-10
        )
    rate = 0.5 * n / np.linalg.norm(X, 2) ** 2
    small = theta + descent_operator(R, rate, 7, rows=n).T @ (c - R @ theta)
    np.testing.assert_allclose(small, stepped(X, y, theta, rate, 7), atol=1e-9)


def test_few_rows_stay_as_they_are():
    X, y, _ = some(0, 3, 5)
    R, c, rest = compressed([(X[:2], y[:2]), (X[2:], y[2:])], 5)
    np.testing.assert_array_equal(R, X)
    np.testing.assert_array_equal(c, y)
    assert rest == 0.0


def mixture(seed, sizes, d=6, k=3):
    rng = np.random.default_rng(seed)
    sizes = np.array(sizes)
    models = rng.normal(size=(k, d))
    X = rng.normal(size=(sizes.sum(), d))
    y = np.einsum("nd,nd->n", X, models[np.repeat(rng.integers(k, size=len(sizes)), sizes)])
    return SiteStack(X, y + 0.1 * rng.normal(size=len(y)), sizes), models + 0.2 * rng.normal(size=models.shape)


@pytest.mark.parametrize("weights", ["cluster", "total"])
def test_a_stacked_round_is_the_loop_over_sites(weights):
    stack, models = mixture(0, [3, 9, 1, 6, 4, 12, 2, 7])
    rate, steps = 0.05, 6
    moved, rows = np.zeros_like(models), np.zeros(len(models))
    for i, n in enumerate(stack.sizes):
        X, y = stack.X[stack.rows(i)], stack.y[stack.rows(i)]
        label = int(np.argmin([np.sum((y - X @ model) ** 2) for model in models]))
        moved[label] += n * (stepped(X, y, models[label], rate, steps) - models[label])
        rows[label] += n
    divisor = np.maximum(rows, 1.0) if weights == "cluster" else rows.sum()
    expected = models + moved / np.broadcast_to(divisor, rows.shape)[:, None]
    np.testing.assert_allclose(stack.refined(models, stack.descent(rate, steps), weights), expected, atol=1e-12)


def test_the_largest_eigenvalue_is_that_of_the_steepest_site():
    stack, _ = mixture(3, [4, 9, 2, 7])
    grams = [stack.X[stack.rows(i)].T @ stack.X[stack.rows(i)] / n for i, n in enumerate(stack.sizes)]
    assert stack.largest_eigenvalue() == pytest.approx(max(np.linalg.eigvalsh(gram)[-1] for gram in grams))


def test_a_model_without_sites_stays():
    stack, models = mixture(1, [5, 5, 5])
    far = np.vstack([models, 1e3 * np.ones((1, models.shape[1]))])
    for weights in ("cluster", "total"):
        np.testing.assert_array_equal(stack.refined(far, stack.proximal(0.1), weights)[-1], far[-1])
    np.testing.assert_array_equal(stack.fitted(np.zeros(3, dtype=int), far)[1:], far[1:])


def test_stacked_least_squares():
    stack, models = mixture(2, [30, 40])
    found = stack.fitted(np.array([0, 1]), models)
    np.testing.assert_allclose(found[0], np.linalg.lstsq(stack.X[:30], stack.y[:30], rcond=None)[0])
    np.testing.assert_allclose(found[1], np.linalg.lstsq(stack.X[30:], stack.y[30:], rcond=None)[0])


def test_stack_refuses_sizes_that_do_not_add_up():
    with pytest.raises(InputError, match="add up to the 3 rows"):
        SiteStack(np.zeros((3, 1)), np.zeros(3), np.array([2, 2]))

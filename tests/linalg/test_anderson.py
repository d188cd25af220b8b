"""Anderson's extrapolation of affine maps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedspan.linalg import Anderson

seeds = st.integers(0, 10**6)


@given(seeds)
def test_anderson_solves_affine_maps_in_as_many_steps_as_dimensions(seed):
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    A, b = Q * rng.uniform(0.01, 1.0, 5) @ Q.T, rng.normal(size=5)
    fast, x = Anderson(6), np.zeros(5)
    for _ in range(8):
        x = fast.next(x, b - A @ x)
    np.testing.assert_allclose(A @ x, b, atol=1e-5)


def test_anderson_without_memory_is_the_plain_iteration_and_can_forget():
    plain, fast = Anderson(0), Anderson(3)
    x = np.ones((2, 2))
    assert (plain.next(x, 0.5 * x) == 1.5).all()
    assert (plain.next(1.5 * x, 0.25 * x) == 1.75).all()
    fast.next(x, 0.5 * x)
    fast.forget()
    assert (fast.next(x, 0.25 * x) == 1.25).all()
    assert (fast.next(x, 100.0 * x) == 101.0).all()  # the residual grew: the history is of another map


def test_anderson_by_hand():
    """Of x <- x + (1 - x / 2): the first step is plain, and two points of a line give its zero, 2."""
    faster = Anderson(memory=3)
    assert faster.next(np.zeros(1), np.ones(1)).tolist() == [1.0]
    assert faster.next(np.ones(1), np.full(1, 0.5)).tolist() == [2.0]

"""Many small least-squares problems at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.errors import InputError
from fedspan.linalg.regression.stacked_least_squares import stacked_least_squares


@given(st.integers(1, 5), st.integers(1, 7), st.integers(1, 4), st.integers(0, 2**31))
def test_equals_lapack_one_by_one(q, m, r, seed):
    rng = np.random.default_rng(seed)
    A, y = rng.normal(size=(q, m, r)), rng.normal(size=(q, m))
    expected = [np.linalg.lstsq(A[k], y[k], rcond=None)[0] for k in range(q)]
    b = stacked_least_squares(A, y)
    for k in range(q):  # the error of a backward stable method grows with the square of the condition number at most
        condition = np.linalg.cond(A[k])
        np.testing.assert_allclose(b[k], expected[k], atol=1e-12 * condition**2 * (1 + np.abs(expected[k]).max()))


@pytest.mark.parametrize("scale", [1.0, 2.0**30, 2.0**-30])
def test_nearly_singular_stacks_keep_the_digits_that_an_orthogonal_factorisation_keeps(scale):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, 9, 3))
    for k, gap in enumerate([1.0, 1e-2, 1e-4, 1e-7]):
        A[k, :, 2] = A[k, :, 1] + gap * A[k, :, 2]
    A *= scale
    truth = rng.normal(size=(4, 3))
    found = stacked_least_squares(A, np.einsum("kmr,kr->km", A, truth))
    for k, bound in enumerate([1e-14, 1e-12, 1e-10, 1e-7]):
        assert np.abs(found[k] - truth[k]).max() < bound * 10


def test_rank_deficient_and_underdetermined_problems_get_the_least_norm():
    A = np.zeros((3, 4, 2))
    A[0, :, 0] = 1.0  # a zero column
    A[1, :, 0] = A[1, :, 1] = 1.0  # two equal ones
    A[2] = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    np.testing.assert_allclose(
        stacked_least_squares(A, np.full((3, 4), 6.0)), [[6.0, 0.0], [3.0, 3.0], [6.0, 6.0]], atol=1e-12
    )
    assert np.array_equal(stacked_least_squares(np.zeros((1, 3, 2)), np.ones((1, 3))), [[0.0, 0.0]])
    np.testing.assert_allclose(stacked_least_squares(np.ones((1, 1, 3)), np.array([[9.0]])), [[3.0, 3.0, 3.0]])


def test_scales_do_not_matter():
    rng = np.random.default_rng(1)
    A, y = rng.normal(size=(3, 6, 2)), rng.normal(size=(3, 6))
    once = stacked_least_squares(A, y)
    scales = np.array([1e-120, 1.0, 1e120])[:, None]
    np.testing.assert_allclose(stacked_least_squares(A * scales[:, :, None], y) * scales, once, rtol=1e-10)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="must be"):
        stacked_least_squares(np.ones((2, 3, 1)), np.ones((2, 4)))


def test_how_many_are_stacked_changes_none_of_them():
    """What counts as zero beside the largest singular value is a matter of one problem's own size."""
    A, y = np.tile(np.diag([1.0, 1e-15]), (64, 1, 1)), np.tile([1.0, 1e-15], (64, 1))
    np.testing.assert_allclose(stacked_least_squares(A[:1], y[:1]), [[1.0, 1.0]])
    np.testing.assert_allclose(stacked_least_squares(A, y), np.ones((64, 2)))

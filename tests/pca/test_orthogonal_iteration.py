"""Orthogonal iteration against singular vectors and eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.pca.parts.orthogonal_iteration import orthogonal_iteration, random_basis


def test_orthogonal_iteration_of_an_asymmetric_matrix_finds_left_singular_vectors():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(6, 6)) + np.outer(np.arange(6.0), np.ones(6)) * 3
    U = np.linalg.svd(Y)[0][:, :2]
    fed = fs.federate(np.eye(4), sites=[0, 0, 1, 1])
    found, _ = orthogonal_iteration(
        fed,
        product=lambda fed, Q: (Y @ Q, {}),
        transposed=lambda fed, Q: (Y.T @ Q, {}),
        start=random_basis(rng, 6, 2),
        iterations=60,
    )
    np.testing.assert_allclose(np.linalg.svd(U.T @ found)[1], 1.0, atol=1e-8)
    turned = orthogonal_iteration(
        fed, product=lambda fed, Q: (Y @ Q, {}), start=random_basis(rng, 6, 2), iterations=60
    )[0]
    assert np.linalg.svd(U.T @ turned)[1][1] < 0.999  # without the transposed product these are no singular vectors


@pytest.mark.parametrize("unit", [1.0, 1e160, 1e-170])
@pytest.mark.parametrize("smallest", [1e-3, 1e-9])
def test_the_qr_that_the_paper_leaves_out_saves_small_directions_and_absurd_units(unit, smallest):
    """Left out, singular values are squared between two QRs. It is the same iteration where that is harmless."""
    rng = np.random.default_rng(0)
    A, B = random_basis(rng, 20, 20), random_basis(rng, 20, 20)
    Y = unit * A * np.r_[1.0, 1e-2, smallest, np.full(17, 0.01 * smallest)] @ B.T
    start = random_basis(rng, 20, 3)

    def off(Q):
        return np.linalg.norm(A[:, :3] - Q @ (Q.T @ A[:, :3]))

    fed = fs.federate(np.eye(4), sites=[0, 0, 1, 1])
    ours = orthogonal_iteration(
        fed,
        product=lambda fed, Q: (Y @ Q, {}),
        transposed=lambda fed, Q: (Y.T @ Q, {}),
        start=start,
        iterations=2,
    )[0]
    as_written = start
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(2):
            product = Y @ (Y.T @ as_written)
            as_written = np.linalg.qr(product)[0] if np.isfinite(product).all() else np.full_like(start, np.nan)
    np.testing.assert_allclose(ours.T @ ours, np.eye(3), atol=1e-12)
    assert off(ours) < 1e-3
    if unit > 1.0:
        assert np.isnan(off(as_written))
    elif unit < 1.0:
        assert off(as_written) > 1.0
    elif smallest < 1e-8:  # the square is lost beside 1, and found again in later iterations
        assert off(as_written) > 20 * off(ours)
        for _ in range(10):
            as_written = np.linalg.qr(Y @ (Y.T @ as_written))[0]
        assert off(as_written) < 1e-5
    else:
        assert off(as_written) == pytest.approx(off(ours), rel=1e-2)


def test_extra_columns_keep_out_large_negative_eigenvalues():
    Y = np.diag([3.0, -5.0, 2.0, 0.5])
    fed = fs.federate(np.eye(4), sites=[0, 0, 1, 1])
    found, _ = orthogonal_iteration(
        fed,
        product=lambda fed, Q: (Y @ Q, {}),
        start=random_basis(np.random.default_rng(0), 4, 3),
        iterations=40,
        rank=2,
    )
    np.testing.assert_allclose(np.abs(found[1]), 0.0, atol=1e-6)
    np.testing.assert_allclose(np.abs(found[3]), 0.0, atol=1e-6)

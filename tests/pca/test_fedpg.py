"""One local step of FedPG: its gradient along the manifold, and the manifold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.linalg import q_factor
from fedspan.pca import fedpg

from .random_visits import Setting, slope, visited_site

seeds = st.integers(0, 2**20)


def random_tangent(setting):
    """Return a random direction of the Stiefel manifold at U."""
    G = setting.rng.normal(size=setting.shape)
    S = setting.U.T @ G
    return G - setting.U @ (S + S.T) / 2


@given(seeds)
def test_pg_gradient_agrees_with_finite_differences_along_the_manifold(seed):
    s = Setting(seed)
    along = random_tangent(s)
    expected = slope(s.F, lambda step: q_factor(s.U + step), along)
    assert np.sum(-s.pg_direction("corrected") * along) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(seeds)
def test_pg_as_written_sees_all_of_the_gradient_but_turns_within_the_span(seed):
    s = Setting(seed)
    A = s.rng.normal(size=(s.shape[1], s.shape[1]))
    turn = s.U @ (A - A.T)
    across = random_tangent(s)
    across -= s.U @ (s.U.T @ across)
    slope_across = slope(s.F, lambda step: q_factor(s.U + step), across)
    assert np.sum(-s.pg_direction("paper") * across) == pytest.approx(slope_across, rel=1e-6, abs=1e-6)
    # F changes when U turns within its span, and the projection of equation (17) does not know it.
    assert abs(slope(s.F, lambda step: q_factor(s.U + step), turn)) > 1e-4
    assert np.sum(s.pg_direction("paper") * turn) == pytest.approx(0.0, abs=1e-12)
    assert np.abs(s.pg_direction("paper")).max() > 0


@given(seeds, st.sampled_from(["corrected", "paper"]), st.floats(1e-4, 10.0))
def test_pg_stays_on_the_manifold_and_steps_along_it(seed, variant, eta):
    s = Setting(seed)
    U = s.pg_step(variant, eta)
    np.testing.assert_allclose(U.T @ U, np.eye(s.shape[1]), atol=1e-13)
    P = s.pg_direction(variant)
    np.testing.assert_allclose(s.U.T @ P + P.T @ s.U, 0.0, atol=1e-12)
    if eta < 1e-3:  # a small step is one along the gradient
        np.testing.assert_allclose(U - s.U, eta * P, atol=3 * eta**2 * np.sum(P**2))


@given(seeds, st.sampled_from(["corrected", "paper"]), st.floats(0.01, 1.0))
def test_pg_steps_go_downhill(seed, variant, part):
    """Steps as long as the protocol's, or shorter; where the dual is as arbitrary as here its size counts, too."""
    s = Setting(seed)
    eta = part / (2.0 * s.C.top + s.rho + np.linalg.norm(s.Y, 2))
    before, after = s.F(s.U), s.F(s.pg_step(variant, eta))
    assert after < before - 0.1 * eta * np.sum(s.pg_direction(variant) ** 2)


def test_pg_of_a_step_without_a_gradient_stays_where_it_is():
    s = Setting(0)
    S = s.X.T @ s.X / 20.0
    s.U = np.asfortranarray(np.linalg.eigh(S)[1][:, -3:])
    s.Z, s.Y = s.U, np.zeros(s.shape)
    np.testing.assert_allclose(s.pg_step("corrected", 0.1), s.U, atol=1e-14)


def test_one_visit_by_hand():
    """One column, one step: C = diag(4, 1), U = e2, Z = (0.6, 0.8), rho = 2, so that eta = 1 / (2 * 4 + 2)."""
    kept = {"U": np.array([[0.0], [1.0]]), "Y": np.zeros((2, 1)), "rho": 2.0}
    site = visited_site(np.diag([2.0, 1.0]), kept)
    Z = np.array([[0.6], [0.8]])
    reply = fedpg.local_update(site, Z, 2.0, 1.0, "corrected", 1, 1000)
    # Y = 2 (U - Z) = (-1.2, 0.4), F = f + <Y, U - Z> + |U - Z|^2 with f = 4 and |U - Z|^2 = 0.36 + 0.04
    assert reply["augmented_lagrangian"] == pytest.approx(4.0 + 0.72 + 0.08 + 0.4)
    assert reply["distance"] == pytest.approx(np.sqrt(0.4))
    assert reply["loss"] == pytest.approx(5.0 - (4 * 0.36 + 0.64))
    # minus the gradient: 2 C U + 2 Z - Y = (2.4, 3.2), of which (2.4, 0) is tangent; a tenth of it, then length 1
    U = np.array([[0.24], [1.0]]) / np.hypot(0.24, 1.0)
    np.testing.assert_allclose(site.state["U"], U, atol=1e-15)
    np.testing.assert_allclose(reply["message"], U + np.array([[-0.6], [0.2]]), atol=1e-15)
    assert reply["n"] == 2

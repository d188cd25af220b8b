"""Laws of one local step of FedPE and FedPG: the objective, its gradient, and the manifold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedspan as fs
from fedspan.linalg import q_factor
from fedspan.pca import fedpe, fedpg
from fedspan.pca.parts.consensus import augmented_lagrangian, begin_visit, end_visit
from fedspan.pca.parts.second_moment import SecondMoment, second_moment

seeds = st.integers(0, 2**20)


class Setting:
    """A random site, and random U, Z, Y, T near each other."""

    def __init__(self, seed, d=7, k=3, near=0.3):
        rng = np.random.default_rng(seed)
        self.rng, self.shape = rng, (d, k)
        self.X = rng.normal(size=(20, d)) * rng.uniform(0.2, 3.0, size=d)
        self.C = second_moment(fs.Site("s", self.X), 20.0, (d, k), 1000)
        self.U = q_factor(rng.normal(size=(d, k)))
        self.Z = self.U + near * rng.normal(size=(d, k))
        self.Y = rng.normal(size=(d, k))
        T = rng.uniform(size=(k, k))
        self.T = T + T.T
        self.rho = float(rng.uniform(0.5, 5.0))

    def f(self, U):
        """Equation (3), from the rows."""
        return float(np.sum((self.X - self.X @ U @ U.T) ** 2) / 20.0)

    def F(self, U):
        """Equation (14)."""
        return self.f(U) + np.sum(self.Y * (U - self.Z)) + self.rho / 2 * np.sum((U - self.Z) ** 2)

    def pull(self, eta):
        return np.asfortranarray(eta * (self.rho * self.Z - self.Y))

    def pg_direction(self, variant, U=None):
        """Return minus the projected gradient that FedPG steps along."""
        U = self.U if U is None else U
        return fedpg.MOVES[variant](U, self.C.add_product(self.pull(1.0), 2.0, U)) - U

    def pg_step(self, variant, eta):
        return fedpg.local_step(self.C, self.U, self.pull(eta), eta, fedpg.MOVES[variant])


def slope(function, at, along, h=1e-5):
    """Return the derivative of a function along a curve ``at(t)``, by central differences."""
    return (function(at(h * along)) - function(at(-h * along))) / (2 * h)


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


@given(seeds, st.booleans())
def test_pe_objective_and_gradient(seed, inside):
    """`inside`: columns too short for the penalty to see."""
    s = Setting(seed)
    U = np.asfortranarray((0.5 if inside else 1.2) * s.U + 0.1 * s.rng.normal(size=s.shape))

    def L(U):  # equation (6), from the rows
        h = np.maximum(0.0, U.T @ U - np.eye(U.shape[1])) ** 2
        return s.F(U) + np.sum(s.T * h) + s.rho / 2 * np.sum(h**2)

    assert fedpe.objective(s.C, U, s.Z, s.Y, s.T, s.rho) == pytest.approx(L(U), rel=1e-12)
    along, eta = s.rng.normal(size=s.shape), 0.01
    gradient = (U - fedpe.local_step(s.C, U, s.pull(eta), s.T, s.rho, eta)) / eta
    expected = slope(L, lambda step: U + step, along)
    assert np.sum(gradient * along) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    short = 1e-4 / (1.0 + np.linalg.norm(gradient))
    assert L(U - short * gradient) < L(U)


@given(seeds)
def test_the_augmented_lagrangian_of_a_site(seed):
    s = Setting(seed)
    assert augmented_lagrangian(s.f(s.U), s.U, s.Z, s.Y, s.rho) == pytest.approx(s.F(s.U), rel=1e-12)


def at_work(kept):
    return fs.Site("s", np.eye(3)).at_work(kept, seed=0, call=0)


def test_a_first_visit_starts_at_z_with_a_zero_dual():
    Z = np.array([[2.0], [0.0], [0.0]])
    for variant in ("corrected", "paper"):
        U, Y = begin_visit(at_work({}), Z, variant)
        np.testing.assert_array_equal(U, [[1.0], [0.0], [0.0]])
        np.testing.assert_array_equal(Y, np.zeros((3, 1)))


def test_a_later_visit_updates_its_dual_by_the_newest_z():
    U, Y, Z = np.array([[1.0], [0.0], [0.0]]), np.array([[0.0], [1.0], [0.0]]), np.array([[0.5], [0.5], [0.0]])
    kept = {"U": U, "Y": Y, "rho": 2.0}  # of the visit before, whatever it is now
    np.testing.assert_array_equal(begin_visit(at_work(kept), Z, "corrected")[1], [[1.0], [0.0], [0.0]])
    np.testing.assert_array_equal(begin_visit(at_work(kept), Z, "paper")[1], Y)
    site = at_work(kept)
    C = SecondMoment(lambda A, factor, V: A, trace=9.0, top=7.0)
    told = end_visit(site, C, U, Y, 2.0)
    assert told["message"].tolist() == [[1.0], [0.5], [0.0]]
    assert (told["rho"], told["top"]) == (2.0, 7.0)
    assert site.state["rho"] == 2.0


def test_one_visit_by_hand():
    """One column, one step: C = diag(4, 1), U = e2, Z = (0.6, 0.8), rho = 2, so that eta = 1 / (2 * 4 + 2)."""
    kept = {"U": np.array([[0.0], [1.0]]), "Y": np.zeros((2, 1)), "rho": 2.0}
    site = fs.Site("s", np.diag([2.0, 1.0])).at_work(kept, 0, 0)
    Z = np.array([[0.6], [0.8]])
    told = fedpg.local_update(site, Z, 2.0, 1.0, "corrected", 1, 1000)
    # Y = 2 (U - Z) = (-1.2, 0.4), F = f + <Y, U - Z> + |U - Z|^2 with f = 4 and |U - Z|^2 = 0.36 + 0.04
    assert told["augmented_lagrangian"] == pytest.approx(4.0 + 0.72 + 0.08 + 0.4)
    assert told["distance"] == pytest.approx(np.sqrt(0.4))
    assert told["loss"] == pytest.approx(5.0 - (4 * 0.36 + 0.64))
    # minus the gradient: 2 C U + 2 Z - Y = (2.4, 3.2), of which (2.4, 0) is tangent; a tenth of it, then length 1
    U = np.array([[0.24], [1.0]]) / np.hypot(0.24, 1.0)
    np.testing.assert_allclose(site.state["U"], U, atol=1e-15)
    np.testing.assert_allclose(told["message"], U + np.array([[-0.6], [0.2]]), atol=1e-15)
    assert told["n"] == 2


def test_two_visits_of_fedpe_by_the_formulas():
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(20, 5)), 1.1 * np.linalg.qr(rng.normal(size=(5, 2)))[0]
    C, rho, Y, T = X.T @ X / 20.0, 1.5, np.zeros((5, 2)), np.zeros((2, 2))
    U = np.linalg.qr(Z)[0] @ np.diag(np.sign(np.diagonal(np.linalg.qr(Z)[1])))
    kept = {}
    for visit in range(2):
        site = fs.Site("s", X).at_work(kept, seed=0, call=visit)
        told = fedpe.local_update(site, Z, rho, None, "corrected", 1, 1000)
        kept = site.changes().applied_to(kept)
        Y = Y + rho * (U - Z) * visit
        E = np.maximum(0.0, U.T @ U - np.eye(2))
        f = -4 * C @ U + 2 * C @ U @ U.T @ U + 2 * U @ U.T @ C @ U
        G = f + Y + rho * (U - Z) + 4 * U @ (E * (T + rho * E**2))
        size = max(1.0, np.linalg.norm(U.T @ U, np.inf))  # longer U and larger T have shorter steps
        bend = 8 * size * (np.linalg.norm(T, np.inf) + 3 * rho * np.linalg.norm(E, np.inf) ** 2)
        U = U - G / (8 * np.linalg.eigvalsh(C)[-1] * size + rho + bend)
        T = T + rho * np.maximum(0.0, U.T @ U - np.eye(2)) ** 2
        np.testing.assert_allclose(kept["U"], U, atol=1e-13)
        np.testing.assert_allclose(kept["T"], T, atol=1e-13)
        np.testing.assert_allclose(told["message"], U + Y / rho, atol=1e-13)
    assert T.max() > 0

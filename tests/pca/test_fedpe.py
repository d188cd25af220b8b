"""One local step of FedPE: its objective and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.pca import fedpe

from .random_visits import Setting, slope, visited_site

seeds = st.integers(0, 2**20)


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


def test_two_visits_of_fedpe_by_the_formulas():
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(20, 5)), 1.1 * np.linalg.qr(rng.normal(size=(5, 2)))[0]
    C, rho, Y, T = X.T @ X / 20.0, 1.5, np.zeros((5, 2)), np.zeros((2, 2))
    U = np.linalg.qr(Z)[0] @ np.diag(np.sign(np.diagonal(np.linalg.qr(Z)[1])))
    kept = {}
    for visit in range(2):
        site = visited_site(X, kept)
        reply = fedpe.local_update(site, Z, rho, None, "corrected", 1, 1000)
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
        np.testing.assert_allclose(reply["message"], U + Y / rho, atol=1e-13)
    assert T.max() > 0

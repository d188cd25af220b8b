"""Sums with noise: rows within bounds, one row at a time, shares of the noise, and what an account records."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import QuorumError
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.steps import find_step
from fedspan.privacy import GaussianMoments, Ledger, epsilon_of, mu_of
from fedspan.privacy.noisy_sums import in_unit_ball, on_grid, rows_in_bounds
from fedspan.sums.noisy_moments import local_noisy_sums, noisy_moments
from fedspan.sums.row_transforms import project

install_steps()
SECURE = fs.Policy(secure_sum=True)
QUERY = {"center": np.zeros(3), "width": np.ones(3), "box": True, "multiplier": 3.0, "sharers": 4, "colluding": 0}


def in_bounds(X, **bounds):
    return np.concatenate(list(rows_in_bounds(fs.Site("a", X).in_call(CallContext({}, number=0)), **bounds)))


def test_rows_within_a_ball_and_within_a_box():
    X = np.array([[3.0, 4.0], [30.0, 40.0], [np.nan, 1.0], [1e308, -1e308], [np.inf, 0.0]])
    ball = in_bounds(X, center=np.zeros(2), width=np.full(2, 10.0), box=False)
    np.testing.assert_allclose(ball, [[0.3, 0.4], [0.6, 0.8], [0, 0], [np.sqrt(0.5), -np.sqrt(0.5)], [0, 0]])
    box = in_bounds(X, center=np.zeros(2), width=np.array([10.0, 4.0]), box=True)
    np.testing.assert_allclose(box * np.sqrt(2), [[0.3, 1.0], [1, 1], [0, 0], [1, -1], [1, 0]])


def test_points_on_the_grid_have_exact_products_and_are_not_longer():
    U = in_unit_ball(np.random.default_rng(0).normal(size=(500, 40)))
    Z = on_grid(U)
    assert (np.linalg.norm(Z, axis=1) <= np.linalg.norm(U, axis=1)).all()
    assert np.abs(Z - U).max() < 2**-25
    every = [Z[:, order] @ Z[:, order].T for order in (slice(None), slice(None, None, -1))]
    np.testing.assert_array_equal(*every)


def test_a_row_alone_does_not_depend_on_its_place():
    """As a matrix product may do on some processors, the transform changes a row by its place among others."""

    def by_place(X):
        return X[:, :5] + 1e-15 * np.arange(len(X))[:, None]

    row = np.random.default_rng(0).normal(size=(1, 37))
    site = fs.Site("a", row.repeat(1025, axis=0)).through(by_place).in_call(CallContext({}, number=0))
    bounds = {"center": np.zeros(5), "width": np.full(5, 100.0), "box": False}
    assert len(np.unique(np.concatenate(list(rows_in_bounds(site, **bounds))), axis=0)) == 1
    assert len(np.unique(site.X, axis=0)) > 1


SHARES = {"multiplier": 1.0, "sharers": 1, "colluding": 0}
BALL = {"center": np.zeros(8), "width": np.full(8, 40.0), "box": False} | SHARES
WITH_TARGET = {"center": np.zeros(9), "width": np.full(9, 40.0), "box": False} | SHARES
CELLS = {"center": np.zeros(8), "clip": 40.0, "axes": np.eye(8)[:2], "centres": np.array([[0.0, 0.1], [0.1, 0.0]])}
TREES = {"features": np.arange(21).reshape(3, 7) % 8, "cuts": np.zeros((3, 7))}
BEHIND_A_PROJECTION = {
    "anomaly.noisy_leaf_counts": (TREES | SHARES, np.sqrt(3)),
    "sums.noisy_sums": (BALL, np.sqrt(2.25)),
    "sums.noisy_counts": ({"low": np.full(8, -1.0), "high": np.ones(8)} | SHARES, np.sqrt(8)),
    "pca.noisy_gram": (BALL, np.sqrt(1.5)),
    "regression.noisy_products": (WITH_TARGET, np.sqrt(1.5)),
    "clustering.noisy_cells": (BALL | {"centres": np.eye(8)[:3] / 2}, np.sqrt(1.25)),
    "maps.noisy_scatter": ({"center": np.zeros(8), "clip": 40.0} | SHARES, np.sqrt(1.5)),
    "maps.noisy_cells": (CELLS | SHARES, np.sqrt(1.25)),
}


@pytest.mark.parametrize("step", BEHIND_A_PROJECTION)
def test_behind_a_hostile_projection_a_row_moves_no_other_row(step, monkeypatch):
    """Products of huge components round a row by its place in a block: one more row would move one of every block."""
    monkeypatch.setattr("fedspan.privacy.noisy_sums.with_noise", lambda exact, **_: exact)
    rng = np.random.default_rng(0)
    payload, sensitivity = BEHIND_A_PROJECTION[step]
    X, components = rng.normal(size=(2050, 200)), 1e15 * rng.normal(size=(8, 200))
    X[1:] -= (np.linalg.pinv(components) @ (components @ X[1:].T)).T  # what is left of a product is its rounding
    sums = []
    for rows in (X[1:], X):
        fed = fs.LocalFederation([fs.Site("a", rows, np.zeros(len(rows)))]).apply(project, components=components)
        sums.append(fed.ask(find_step(step).function, **payload)["a"])
    moved = sum(np.sum((np.asarray(sums[1][key]) - sums[0][key]) ** 2) for key in sums[0])
    assert np.sqrt(moved) <= sensitivity * (1 + 1e-6)


def test_counts_of_cells_with_noise_take_no_mixed_columns():
    fed = fs.federate(np.zeros((20, 2)), sites=np.arange(20) % 2).apply(project, components=np.eye(2))
    payload = {"column": 0, "low": 0.0, "high": 1.0, "bins": 4, "by": -1, "groups": np.array([], dtype="U1")}
    with pytest.raises(QuorumError, match="transforms that treat each cell by itself"):
        fed.ask(find_step("describe.noisy_bins").function, **payload, **SHARES)


@pytest.mark.parametrize(
    ("policy", "change", "message"),
    [
        (None, {}, "adds a share of the noise only where a secure sum hides its part"),
        (SECURE, {"sharers": 6}, "knows 5 sites, itself included"),
        (SECURE, {"colluding": 1}, "a threshold of 4 of 5 sites is below the 5"),
    ],
)
def test_a_share_leaves_only_in_a_sum_that_has_all_of_the_noise(policy, change, message):
    fed = fs.federate(np.zeros((20, 3)), sites=np.arange(20) % 5, policy=policy)
    with pytest.raises(QuorumError, match=message):
        fed.sum(local_noisy_sums, **(QUERY | change))


def test_shares_are_charged_each_time_and_whole_noise_once(tmp_path):
    for name, policy, times in (("plain", None, 1), ("secure", SECURE, 2)):
        ledgers = [Ledger(tmp_path / f"{name}-{i}", epsilon=9.0, delta=1e-5) for i in range(4)]
        sites = [fs.Site(f"s{i}", np.ones((9, 3)), ledger=ledger) for i, ledger in enumerate(ledgers)]
        fed = fs.LocalFederation(sites, policy=policy)
        for _ in range(2):
            fed.run(noisy_moments, privacy=GaussianMoments(2.0, 1e-5, clip=2.0), n_columns=3)
        expected = epsilon_of(np.sqrt(times) * mu_of(2.0, 1e-5), 1e-5)
        assert [ledger.spent for ledger in ledgers] == [pytest.approx(expected)] * 4


def test_a_site_whose_budget_is_spent_refuses_and_is_named(tmp_path):
    sites = [fs.Site(f"s{i}", np.ones((9, 3))) for i in range(4)]
    sites.append(fs.Site("poor", np.ones((9, 3)), ledger=Ledger(tmp_path / "poor", epsilon=1.0, delta=1e-5)))
    model = fs.FedStandardScaler(privacy=GaussianMoments(2.0, 1e-5, clip=2.0))
    with pytest.warns(UserWarning, match="does not last"):
        model.fit(fs.LocalFederation(sites))
    assert model.privacy_.refused == ("poor",)
    assert model.privacy_.epsilon["poor"] == 0.0
    assert model.privacy_.simulated == ("s0", "s1", "s2", "s3")

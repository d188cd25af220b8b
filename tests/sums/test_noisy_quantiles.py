"""Quantiles with noise: how far a row moves the counts, what is found, and that no row moves another one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import fedspan as fs
from fedspan.errors import InputError, QuorumError
from fedspan.privacy import GaussianMoments, Ledger
from fedspan.sums.noisy_quantiles import local_noisy_counts
from fedspan.sums.quantiles import quantiles
from fedspan.sums.row_transforms import project
from tests.privacy.noisy_steps import D, exact_reply, moved, neighbours


@settings(max_examples=60, deadline=None)
@given(neighbours())
def test_no_row_moves_the_counts_beyond_the_bound(tables):
    *tables, bounds = tables
    low, high = bounds["center"] - bounds["width"], bounds["center"] + bounds["width"]
    with pytest.MonkeyPatch.context() as patch:
        assert moved(tables, local_noisy_counts, patch, low=low, high=high) == pytest.approx(np.sqrt(D))


def test_counts_of_parts(monkeypatch):
    X = np.array([[-5.0], [0.0], [0.5], [1.0], [7.9], [8.0], [9.0], [np.nan]])
    found = exact_reply(X, local_noisy_counts, monkeypatch, low=np.zeros(1), high=np.full(1, 8.0))
    np.testing.assert_array_equal(found, [2, 2, 0, 0, 0, 0, 0, 0, 2, 2])


@pytest.mark.parametrize("level", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("policy", [None, fs.Policy(secure_sum=True)], ids=["plain", "secure"])
def test_quantiles_are_near_those_of_the_rows(level, policy):
    X = np.random.default_rng(0).normal([0.0, 30.0], [1.0, 5.0], size=(4000, 2))
    fed = fs.federate(X, sites=np.arange(4000) % 4, policy=policy)
    found = quantiles(fed, level=level, privacy=GaussianMoments(4.0, 1e-5, lower=[-10.0, 0.0], upper=[10.0, 100.0]))
    assert np.abs((found >= X).mean(axis=0) - level).max() < 0.03
    exact = quantiles(fed, level=level, privacy=GaussianMoments(1e7, 1e-5, lower=[-10.0, 0.0], upper=[10.0, 100.0]))
    assert np.abs((exact >= X).mean(axis=0) - level).max() < 0.001


def test_values_beyond_the_bounds_are_at_their_sides():
    X = np.array([[100.0, -100.0]]).repeat(300, axis=0)
    privacy = GaussianMoments(1e6, 1e-5, clip=2.0, center=1.0)
    found = quantiles(fs.federate(X, sites=np.arange(300) % 2), level=0.5, privacy=privacy)
    np.testing.assert_allclose(found, [3.0, -1.0], atol=1e-3)


def test_a_row_does_not_depend_on_its_place(monkeypatch):
    """Products of equal rows differ in their last bits by the place in a block: here some rows are at an edge."""
    rng = np.random.default_rng(0)
    row, axes = rng.normal(size=(1, 37)) * 1e3, rng.normal(size=(5, 37))
    monkeypatch.setattr("fedspan.privacy.noisy_sums.with_noise", lambda exact, **_: exact)
    edge = (row @ axes.T)[0]
    for n in (1, 7, 64, 1025):
        fed = fs.LocalFederation([fs.Site("a", row.repeat(n, axis=0))]).apply(project, components=axes)
        noise = {"multiplier": 1.0, "sharers": 1, "colluding": 0}
        counts = fed.ask(local_noisy_counts, low=edge, high=edge + 1.0, **noise)["a"]["counts"]
        assert set(np.unique(counts)) == {0.0, n}


def test_what_is_spent_and_what_strict_ledgers_let_through(tmp_path):
    ledger = Ledger(tmp_path / "ledger", epsilon=2.5, delta=1e-6, strict=True)
    fed = fs.LocalFederation([fs.Site("a", np.arange(50.0)[:, None], ledger=ledger)])
    quantiles(fed, level=0.5, privacy=GaussianMoments(2.0, 1e-6, lower=0.0, upper=100.0))
    assert ledger.spent == pytest.approx(2.0)
    with pytest.raises(QuorumError):
        quantiles(fed, level=0.5)
    assert len(ledger.charges) == 5


def test_what_cannot_work_is_refused():
    fed = fs.LocalFederation([fs.Site("a", np.zeros((3, 2)))])
    noise = {"multiplier": 1.0, "sharers": 1, "colluding": 0}
    for low, high in ([1.0, 0.0], [0.0, 0.0]), ([0.0, 0.0], [0.0]), ([0.0, 0.0], [0.0, 1e301]), ([0.0], [1.0]):
        with pytest.raises(QuorumError):
            fed.ask(local_noisy_counts, low=np.array(low), high=np.array(high), **noise)
    with pytest.raises(InputError, match="must be None, or"):
        quantiles(fed, level=0.5, privacy=1.0)

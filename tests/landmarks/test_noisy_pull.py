"""Noise on FedDL's sums: one row never moves what a site sends beyond the bound that the noise is made for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.errors import InputError
from fedspan.landmarks.parts import noisy_pull
from fedspan.landmarks.parts.noisy_pull import (
    LANDMARKS_WITHIN,
    bounded_pull,
    gradient_sensitivity,
    local_noisy_pull,
    pull_sensitivity,
)


def moved(X, row, Y, gamma):
    """Return how far the sum moves when the first row is replaced."""
    changed = X.copy()
    changed[0] = row
    a, b = (bounded_pull(fs.Site("a", rows), Y, gamma) for rows in (X, changed))
    return np.linalg.norm(a - b)


def test_the_bound_by_hand():
    assert pull_sensitivity(500, 0.5) == pytest.approx(2 * np.sqrt(500 / np.e), rel=1e-5)
    # Delta = 8 gamma / (n_p sqrt(n_y)) (2 e gamma)^-1/2 = 3.43 sqrt(gamma) / (n_p sqrt(n_y))
    assert gradient_sensitivity(4000, 500, 0.01) == pytest.approx(3.431 * 0.1 / (4000 * np.sqrt(500)), rel=1e-3)


def test_the_bound_is_attained():
    gamma, Y = 0.7, np.ones((9, 3))
    X = np.zeros((5, 3))
    X[0] = Y[0] + [1 / np.sqrt(2 * gamma), 0, 0]
    bound = pull_sensitivity(9, gamma)
    assert 0.999 * bound < moved(X, Y[0] - [1 / np.sqrt(2 * gamma), 0, 0], Y, gamma) <= bound


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([1e-6, 0.05, 0.5, 20.0, 1e4]),
    st.sampled_from([0.1, 1.0, 10.0, 35.0, 1e6, 1e30]),
    st.sampled_from([0.0, 1.0, LANDMARKS_WITHIN]),
)
def test_no_row_moves_the_sum_beyond_the_bound(seed, dtype, gamma, far, out):
    rng = np.random.default_rng(seed)
    n, n_y, m = rng.integers(2, 40), rng.integers(2, 20), rng.integers(1, 30)
    Y = rng.normal(size=(n_y, m)) * rng.choice([0.0, 0.01, 0.3])
    Y = out * Y[:1] / max(np.linalg.norm(Y[0]), 1e-9) + 0.02 * rng.normal(size=(n_y, m)) if out else Y
    Y *= np.minimum(1, LANDMARKS_WITHIN / np.maximum(np.linalg.norm(Y, axis=1, keepdims=True), 1e-9))
    X = (rng.normal(size=(n, m)) + Y[rng.integers(n_y)]).astype(dtype)
    direction = rng.normal(size=m)
    direction /= np.linalg.norm(direction)
    X[0] = Y[0] + direction / np.sqrt(2 * gamma)
    for row in (Y[0] - direction / np.sqrt(2 * gamma), far * direction, Y[-1] + far * direction):
        bound = pull_sensitivity(int(n_y), gamma)
        assert moved(X, row.astype(dtype), Y.astype(dtype), gamma) <= bound


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_search_for_the_worst_row_does_not_pass_the_bound(dtype):
    rng = np.random.default_rng(0)
    gamma, Y = 0.5, (0.3 * rng.normal(size=(30, 6))).astype(dtype)
    X = rng.normal(size=(50, 6)).astype(dtype)
    best = 0.0
    for start in (3.0, 1.0, 0.3):
        pair = start * rng.normal(size=(2, 6))
        for _ in range(300):
            tried = pair + 0.1 * rng.normal(size=(2, 6))
            X[0] = tried[0]
            size = moved(X, tried[1].astype(dtype), Y, gamma)
            if size > best:
                best, pair = size, tried
    assert 0.5 * pull_sensitivity(30, gamma) < best <= pull_sensitivity(30, gamma)


@pytest.mark.parametrize("device", ["", "cpu"])
@pytest.mark.parametrize(("m", "gamma"), [(64, 1e4), (784, 1e3), (4096, 1e2), (4096, 1e4)])
def test_a_sharp_kernel_and_many_columns_stay_within_the_bound(m, gamma, device):
    """In single precision |x|^2 + |y|^2 - 2 x'y of rows far out is off by more than such a kernel forgives."""
    if device:
        pytest.importorskip("torch")
        pytest.importorskip("array_api_compat")
    rng = np.random.default_rng(0)
    reach, most = 1 / np.sqrt(2 * gamma), 0.0
    for trial in range(12):
        v = np.ones(m) if trial % 2 else rng.normal(size=m)
        v /= np.linalg.norm(v)
        y = LANDMARKS_WITHIN * rng.uniform(0.97, 1.0) * v
        Y = np.tile(y, (30, 1)).astype(np.float32)
        for far in (1.0, 1.5, 2.0):
            a, b = ((y + side * far * reach * v).astype(np.float32)[None] for side in (1, -1))
            sums = [bounded_pull(fs.Site("a", rows), Y, gamma, device) for rows in (a, b)]
            most = max(most, np.linalg.norm(sums[0] - sums[1]))
    assert 0.99 * pull_sensitivity(30, gamma) < most <= pull_sensitivity(30, gamma)


def test_replies_have_the_precision_of_the_query_or_double():
    fed = fs.LocalFederation([fs.Site("a", np.zeros((5, 3), dtype=np.float32))])
    for dtype, expected in ((np.float16, np.float64), (np.float32, np.float32), (np.float64, np.float64)):
        query = {"Y": np.zeros((4, 3), dtype=dtype), "gamma": 0.5, "multiplier": 1.0}
        assert fed.ask(local_noisy_pull, **query)["a"]["pull"].dtype == expected


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_reveals_nothing(bad):
    X = np.random.default_rng(0).normal(size=(6, 3))
    X[0, 1] = bad
    Y = np.zeros((4, 3))
    assert np.array_equal(bounded_pull(fs.Site("a", X), Y, 0.5), bounded_pull(fs.Site("a", X[1:]), Y, 0.5))


def test_batches_are_the_same_sum(monkeypatch):
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[7] = 1e9
    whole = bounded_pull(fs.Site("a", X), np.zeros((4, 3)), 0.5)
    monkeypatch.setattr("fedspan.landmarks.parts.kernel_pull._KEPT_BYTES", 0)
    monkeypatch.setattr("fedspan.landmarks.parts.kernel_pull._BATCH_ROWS", 7)
    np.testing.assert_allclose(bounded_pull(fs.Site("a", X), np.zeros((4, 3)), 0.5), whole, atol=1e-12)


@pytest.mark.parametrize("stored", [np.uint8, np.int16, np.float16, np.float32])
def test_rows_are_counted_in_the_precision_of_the_landmarks(stored):
    """The query decides the precision: squares of small integers overflow, and single precision needs more room."""
    X = np.random.default_rng(0).integers(0, 30, size=(20, 3)).astype(stored)
    Y = np.random.default_rng(1).normal(size=(4, 3))
    expected = bounded_pull(fs.Site("a", X.astype(np.float64)), Y, 0.5)
    np.testing.assert_allclose(bounded_pull(fs.Site("a", X), Y, 0.5), expected, atol=1e-12)


@pytest.mark.parametrize(
    "query",
    [
        {"gamma": 0.0},
        {"gamma": -1.0},
        {"gamma": np.nan},
        {"gamma": 1e5},
        {"multiplier": 0.0},
        {"multiplier": np.nan},
        {"multiplier": np.inf},
        {"Y": np.zeros(3)},
    ],
)
def test_a_site_refuses_queries_that_no_noise_covers(query):
    fed = fs.LocalFederation([fs.Site("a", np.zeros((5, 3)))], policy=fs.Policy(quorum=1))
    with pytest.raises((fs.errors.MessageError, fs.errors.QuorumError)):
        fed.ask(local_noisy_pull, **{"Y": np.zeros((4, 3)), "gamma": 0.5, "multiplier": 1.0, **query})


@pytest.mark.parametrize("where", [1.1 * LANDMARKS_WITHIN, 1e200, np.inf, np.nan])
def test_a_site_refuses_landmarks_that_are_far_out(where):
    with pytest.raises(InputError, match="landmarks must be within 8 times"):
        noisy_pull._check_landmarks(np.full((3, 2), where))
    fed = fs.LocalFederation([fs.Site("a", np.zeros((5, 2)))], policy=fs.Policy(quorum=1))
    if np.isfinite(where):
        with pytest.raises(fs.errors.QuorumError, match="landmarks must be within"):
            fed.ask(local_noisy_pull, Y=np.full((3, 2), where), gamma=0.5, multiplier=1.0)

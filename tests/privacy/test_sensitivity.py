"""Sums with noise: whatever rows and parameters, one row more moves a reply by its sensitivity at most."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.federation.site.call_context import CallContext
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.steps import find_step, installed_steps
from fedspan.federation.site.transforms import Transform
from fedspan.privacy import noisy_sums
from fedspan.privacy.accounting import Cost
from fedspan.privacy.ledger import SimulatedLedger

install_steps()
HOSTILE = (0.0, 1.0, -1.0, 5e-324, 1e-300, 1e15, 2.0**53, 1e100, 1e300, -1e308, np.nan, np.inf, -np.inf)
NONE = np.array([], dtype=str)


def numbers(rng, shape, low=-1e300, high=1e300):
    """Return numbers of all sizes; finite ones within bounds, where there are any."""
    found = rng.normal(size=shape) * 10.0 ** rng.choice([0, 0, 3, -3, 100])
    found = np.where(rng.random(shape) < 0.3, rng.choice(HOSTILE, size=shape), found)
    return np.clip(np.nan_to_num(found, nan=1.0, posinf=high, neginf=low), low, high) if np.isfinite(high) else found


def near(rng, k, d):
    found = rng.normal(size=(k, d))
    return found / np.maximum(1.0, np.linalg.norm(found, axis=1, keepdims=True) / 1.9)


def edges(rng, shape, most):
    return np.sort([numbers(rng, shape, -most, most), numbers(rng, shape, -most, most)], axis=0)


def bounds(rng, d):
    width = np.clip(np.abs(numbers(rng, (d,))), 1e-300, 1e300)
    return {"center": numbers(rng, (d,)), "width": width, "box": bool(rng.random() < 0.5)}


def table(rng, d):
    low, high = edges(rng, (d,), 1e99)
    text = {"text": np.array([], dtype=np.int64), "listed": "", "sizes": np.array([], dtype=np.int64)}
    return {
        "columns": np.arange(d),
        "low": low,
        "high": np.where(high > low, high, 2e99),
        "bins": 4,
        "by": -1,
        "groups": NONE,
        **text,
    }


def leaves(rng, d):
    return {"features": rng.integers(d, size=(2, 3)), "cuts": numbers(rng, (2, 3))}


def on_axes(rng, d):
    clip = float(np.clip(np.abs(numbers(rng, ())), 5e-324, 1e308))
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return {"center": numbers(rng, (d,)), "clip": clip, "axes": axes, "centres": near(rng, 3, d)}


PAYLOADS = {
    "pca.noisy_gram": bounds,
    "sums.noisy_sums": bounds,
    "regression.noisy_products": lambda rng, d: bounds(rng, d + 1),
    "sums.noisy_counts": lambda rng, d: dict(zip(("low", "high"), edges(rng, (d,), 1e300), strict=True)),
    "clustering.noisy_cells": lambda rng, d: {**bounds(rng, d), "centres": near(rng, 3, d)},
    "maps.noisy_cells": on_axes,
    "maps.noisy_scatter": lambda rng, d: {key: on_axes(rng, d)[key] for key in ("center", "clip")},
    "anomaly.noisy_leaf_counts": leaves,
    "describe.noisy_table": table,
    "describe.noisy_bins": lambda rng, d: {
        "column": 0, "low": -1e100, "high": float(numbers(rng, (), -1e99, 1e99)), "bins": 5, "by": -1, "groups": NONE
    },
}  # fmt: skip
#: Moved by one replaced row, and tried with their own bounds (`landmarks`), or made of two counts (`cross_counts`).
ELSEWHERE = {"landmarks.noisy_pull", "landmarks.noisy_descent", "describe.noisy_cross_counts"}


def test_all_steps_with_noise_are_tried():
    own = {id for id, one in installed_steps().items() if one.noisy and one.function.__module__.startswith("fedspan.")}
    assert own == PAYLOADS.keys() | ELSEWHERE
    assert MILD.keys() == PAYLOADS.keys()


@pytest.mark.parametrize("step", PAYLOADS)
def test_one_row_moves_a_reply_by_its_sensitivity_at_most(step, monkeypatch):
    seen = []

    def instead(exact, key, *, sensitivity, multiplier, sharers=1, numbers=None):
        seen.append(exact.ravel() / sensitivity)
        return exact

    monkeypatch.setattr(noisy_sums, "with_noise", instead)
    rng, found = np.random.default_rng(0), find_step(step)
    for _ in range(60):
        n, d = (int(rng.integers(1, most)) for most in (9, 5))
        X, y = numbers(rng, (n + 1, d), high=np.inf), rng.normal(size=n + 1)
        payload = found.validated({**PAYLOADS[step](rng, d), "multiplier": 1.0, "sharers": 1, "colluding": 0})
        scale = {"mean": numbers(rng, (d,)), "scale": np.abs(numbers(rng, (d,))) + 1e-300}
        before = [Transform("sums.standardize", scale)] if rng.random() < 0.3 else []
        kept = np.arange(n + 1) != rng.integers(n + 1)
        seen.clear()
        for rows in (slice(None), kept):
            site = fs.Site("a", X[rows], y[rows])
            for transform in before:
                site = transform.applied_to(site)
            with np.errstate(all="ignore"):
                found.function(site.in_call(CallContext({}, "r", 0, simulated=SimulatedLedger)), **payload)
        whole, less = seen
        assert np.isfinite(whole).all()
        assert np.linalg.norm(whole - less) <= 1 + 1e-9


CANARIES = 1500  # draws of noise for each of two tables that differ in one row
CANARY_BOUNDS = {"center": np.zeros(2), "width": np.full(2, 3.0), "box": False}
AXES = {"center": np.zeros(2), "clip": 3.0}
MILD = {
    "pca.noisy_gram": CANARY_BOUNDS,
    "sums.noisy_sums": CANARY_BOUNDS,
    "regression.noisy_products": {"center": np.zeros(3), "width": np.full(3, 3.0), "box": True},
    "sums.noisy_counts": {"low": np.full(2, -1.0), "high": np.ones(2)},
    "clustering.noisy_cells": {**CANARY_BOUNDS, "centres": np.eye(2)},
    "maps.noisy_cells": {**AXES, "axes": np.eye(2), "centres": np.eye(2)},
    "maps.noisy_scatter": AXES,
    "anomaly.noisy_leaf_counts": {"features": np.zeros((2, 3), dtype=np.int64), "cuts": np.zeros((2, 3))},
    "describe.noisy_table": {**table(np.random.default_rng(0), 2), "low": np.full(2, -3.0), "high": np.full(2, 3.0)},
    "describe.noisy_bins": {"column": 0, "low": -3.0, "high": 3.0, "bins": 4, "by": -1, "groups": NONE},
}


@pytest.mark.parametrize("step", MILD)
def test_a_canary_is_noticed_as_often_as_the_charge_allows(step):
    """An attacker that knows all other rows looks for one row, along the direction in which it moves the reply."""
    found, delta, multiplier = find_step(step), 1e-5, 0.4
    payload = found.validated({**MILD[step], "multiplier": multiplier, "sharers": 1, "colluding": 0})
    X, y = np.random.default_rng(1).normal(size=(6, 2)), np.random.default_rng(2).normal(size=6)
    X[-1], y[-1] = 40.0, 40.0  # the canary, beyond all bounds

    def replies(n):
        site, drawn, mu2 = fs.Site("a", X[:n], y[:n]), [], set()
        for seed in range(CANARIES):
            context = CallContext({}, "r", 0, seed, step, payload, simulated=SimulatedLedger)
            reply = found.function(site.in_call(context), **payload)
            mu2.add(sum(charge for _, charge, _ in context.charged))
            drawn.append(np.concatenate([np.ravel(reply[key]) for key in sorted(reply)]))
        return np.array(drawn), mu2

    (without, mu2), (with_it, same) = replies(5), replies(6)
    assert mu2 == same == {multiplier**-2}
    half = CANARIES // 2  # the direction is found with other draws than those that are judged
    direction = with_it[:half].mean(axis=0) - without[:half].mean(axis=0)
    shown, hidden = with_it[half:] @ direction, without[half:] @ direction
    mu = (shown.mean() - hidden.mean()) / np.sqrt((shown.var() + hidden.var()) / 2)
    assert 0.3 / multiplier < mu < 1.1 / multiplier  # the row is seen, and no better than the noise allows
    epsilon = Cost(mu2.pop()).epsilon(delta)
    for level in np.linspace(hidden.min(), shown.max(), 50):
        for hits, misses in ((shown >= level, hidden >= level), (hidden < level, shown < level)):
            often = hits.mean() - 3 * np.sqrt(hits.var() / half) - delta
            seldom = misses.mean() + 3 * np.sqrt(misses.var() / half) + 5 / half
            assert often <= np.exp(epsilon) * seldom

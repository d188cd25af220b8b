"""The methods of the detection tables on little traffic: scores, thresholds and costs."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.papers.fedpca.methods_paper import BASELINES, QUANTILE_STEPS, bytes_per_round, principal
from fedspan.papers.fedpca.traffic_paper import Traffic


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    """Normal rows near a subspace of ten dimensions, and attacks off it."""
    rng = np.random.default_rng(0)
    axes = rng.normal(size=(10, 14))
    normal = rng.normal(size=(700, 10)) @ axes + 0.05 * rng.normal(size=(700, 14))
    attacks = normal[:100] + rng.normal(size=(100, 14))
    X_test, y_test = np.concatenate([normal[500:], attacks]), np.repeat([0, 1], [200, 100])
    sites = np.repeat([f"{i:02d}" for i in range(20)], 25)
    return Traffic("made up", normal[:500], X_test, y_test, sites, np.arange(14).astype(str), y_test.astype(str))


@pytest.mark.parametrize("name", ["pooled PCA", "exact (covariance)", "self-learning PCA"])
def test_principal_components_find_attacks(traffic, name):
    fitted = {**BASELINES, **principal()}[name](traffic, 0)
    assert len(fitted.scores) == (10 if name == "self-learning PCA" else 1)
    scores, threshold = fitted.scores[0]
    alarm = scores > threshold
    assert alarm[traffic.y_test == 1].mean() > 0.95
    assert alarm[traffic.y_test == 0].mean() < (0.7 if name == "self-learning PCA" else 0.15)


def test_the_exact_method_has_the_scores_of_pooled_components(traffic):
    pooled, exact = ({**BASELINES, **principal()}[name](traffic, 0) for name in ("pooled PCA", "exact (covariance)"))
    np.testing.assert_allclose(pooled.scores[0][0], exact.scores[0][0], rtol=1e-6)


def test_everything_is_flagged_by_the_baseline(traffic):
    scores, threshold = BASELINES["flag everything"](traffic, 0).scores[0]
    assert np.all(scores > threshold)


def test_bytes_per_round_are_those_of_the_training_step(traffic):
    record = principal(rounds=50)["FedPG, corrected"](traffic, 0).record
    assert set(QUANTILE_STEPS) & {call.step for call in record.calls}
    step, size = bytes_per_round(record)
    assert step == "fedpg_update"
    assert 2 * 8 * 14 * 10 < size < 4 * 8 * 14 * 10

"""The methods of the detection tables on little traffic: scores, thresholds and costs."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.papers.fedpca.methods_paper import BASELINES, QUANTILE_STEPS, bytes_per_round, principal
from fedspan.papers.fedpca.traffic_paper import Traffic

from .little_traffic import little_traffic


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return little_traffic()


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

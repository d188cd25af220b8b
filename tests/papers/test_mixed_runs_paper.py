"""Stacked rounds of refinement are those of the federation, with and without changing labels."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.mixed_regression.fedx import fedx
from fedspan.papers.mixed_runs_paper import MixedSetting, Update, rounds_to, trajectory

CLUSTER = Update(5, "cluster")


def test_stacked_rounds_are_those_of_the_federation():
    setting = MixedSetting("C1", 301)
    near = setting.made.coef + 0.02 * np.random.default_rng(0).standard_normal((3, 100))
    models, errors = setting.refined(near, CLUSTER, rounds=30)
    found = fedx(setting.federation, models=near, local_steps=5, max_rounds=30)
    np.testing.assert_allclose(models, found.models, atol=1e-10)
    assert errors[-1] == pytest.approx(setting.error(found.models))
    # The affine maps that stand for rounds with unchanged labels give what the rounds themselves do.
    plain = near
    for _ in range(30):
        plain = setting.stack.refined(plain, setting.operator(CLUSTER), "cluster")
    np.testing.assert_allclose(models, plain, atol=1e-12)


def test_changing_labels_are_not_overlooked():
    """From a random start labels change for many rounds: the shortcut must give them all."""
    setting = MixedSetting("C1", 302)
    Z = Update(1).operator(setting.stack)
    plain, seen = setting.random, []
    for _ in range(60):
        seen.append(setting.error(plain))
        plain = setting.stack.refined(plain, Z, "cluster")
    models, errors = trajectory(setting.stack, Z, setting.random, "cluster", 60, setting.error)
    np.testing.assert_allclose(models, plain, atol=1e-10)
    np.testing.assert_allclose(errors[:-1], seen, atol=1e-10)


def test_rounds_are_counted_to_where_the_error_stays():
    assert rounds_to([3.0, 1.0, 2.0, 1.0, 1.0], 1.5) == 3.0
    assert rounds_to([1.0, 1.0], 1.5) == 0.0
    assert rounds_to([1.0, 2.0], 1.5) == np.inf

"""The loop of refinements: when it extrapolates."""

from __future__ import annotations

import numpy as np

from fedspan.mixed_regression.parts.cluster_rounds import MovedModels
from fedspan.mixed_regression.parts.refinement import Accelerator, StopRule, refine

from .mixtures import federation, mixture


def test_a_loss_that_grows_ends_extrapolation_where_a_rule_may_jump():
    slopes = np.array([[0.05, 0.5]])

    def path(acceleration, *, cautious, growth=2.0):
        losses = iter(growth ** np.arange(20.0))

        def one_round(models, belief):
            return MovedModels(slopes * (1.0 - models), np.ones(1), np.ones(1), next(losses), ("a",))

        return refine(
            one_round,
            federation(mixture(0)),
            np.zeros((1, 2)),
            accelerator=Accelerator(acceleration, cautious=cautious),
            stop_rule=StopRule(0.0),
            weights="cluster",
            assignment="hard",
            max_rounds=20,
        ).models

    np.testing.assert_array_equal(path(5, cautious=True), path(0, cautious=True))
    assert np.abs(path(5, cautious=True, growth=0.9) - 1.0).max() < 1e-9 < np.abs(path(0, cautious=True) - 1.0).max()
    np.testing.assert_array_equal(path(5, cautious=False), path(5, cautious=True, growth=0.9))

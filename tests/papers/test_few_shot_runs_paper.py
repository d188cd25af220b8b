"""Runs of few-shot learning: their costs are those of the start and of the iterations."""

from __future__ import annotations

import pytest

from fedspan.papers.few_shot_runs_paper import FewShotSetting, RunCost, curve


def test_bytes_are_those_of_the_theory_per_iteration_and_of_the_start_once():
    made, fed = FewShotSetting(100, 40, 3, 8, 6).data(0)
    costs: dict[str, RunCost] = {}
    for iterations in (5, 15):
        curve(fed, made.basis, costs=costs, name=f"{iterations}", iterations=iterations)
    theory = 8 * 100 * 3
    for cost in costs.values():
        assert 2 * theory < cost.bytes < 2.3 * theory
        assert cost.seconds > 0
    assert theory < costs["5"].start_bytes < 5 * theory
    assert costs["15"].start_bytes == pytest.approx(costs["5"].start_bytes)

"""The loss gap of FedPE and FedPG on little traffic."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.papers.fedpca import convergence_paper as paper

from .little_traffic import little_traffic


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(paper, "traffic", lambda name, seed, n_sites: little_traffic(n_sites // 5))


def test_the_gap_of_the_leading_axes_is_nothing_and_that_of_others_is_not(little):
    problem = paper.Problem(0)
    axes = np.linalg.eigh(problem.covariance)[1]
    assert problem.gap(axes[:, -2:]) < 1e-10
    assert problem.gap(axes[:, :2]) > 1.0
    assert 0.5 < problem.auc(axes[:, -10:]) <= 1.0


def test_the_gap_falls_by_round(little):
    chart, curves = paper.by_round(range(1), (1, 30), participation=1.0, methods=("FedPG, corrected",))
    first, last = chart.lines["FedPG, corrected"]
    assert last < 0.1 * first
    seconds, gaps = curves.lines["FedPG, corrected"]
    assert gaps.tolist() == [first, last]
    assert seconds[-1] > 0


def test_an_effect_is_measured_for_each_value(little):
    gap, auc = paper.effect("n_sites", "number of sites", (20, 50), range(1), 3)
    assert gap.x == [20, 50]
    assert {len(line) for line in (*gap.lines.values(), *auc.lines.values())} == {2}
    assert all(0.0 <= value <= 1.0 for line in auc.lines.values() for value in line)

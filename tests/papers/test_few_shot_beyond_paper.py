"""Few-shot learning beyond the paper, in half of the size of the reproduction."""

from __future__ import annotations

import pytest

from fedspan.papers import few_shot_beyond_paper as beyond
from fedspan.papers.few_shot_runs_paper import FewShotSetting, curve


@pytest.fixture
def half(monkeypatch):
    """What goes beyond the paper, in half of its size."""
    monkeypatch.setattr(beyond, "SETTING", FewShotSetting(100, 100, 4, 20, 10))


@pytest.mark.slow
def test_the_default_step(half):
    errors = []
    for seed in range(2):
        made, attacked = beyond.problem(seed)
        errors.append(curve(attacked, made.basis, iterations=40)[-1])
    assert max(errors) <= 1e-5


@pytest.mark.slow
def test_splits_by_tasks_are_as_accurate_as_splits_by_rows(half):
    table = beyond.splits(range(1))
    by_rows, by_tasks = ([float(cell.split()[0]) for cell in row[1:]] for row in table.rows)
    assert all(b <= 2 * a for a, b in zip(by_rows, by_tasks, strict=True))


@pytest.mark.slow
def test_new_tasks_from_few_rows(half):
    exact, noisy = beyond.excess_risk(range(1), noises=(0.0, 0.1), quick=True)
    at = {m: i for i, m in enumerate(beyond.COUNTS)}
    assert exact.lines["learned"][at[8]] <= 1e-9
    assert exact.lines["least norm"][at[8]] >= 0.8 * 4 * (1 - 8 / 100)
    assert noisy.lines["learned"][at[20]] <= 2 * noisy.lines["knows U*"][at[20]]

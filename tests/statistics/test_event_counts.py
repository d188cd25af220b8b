"""Counts on a grid: where rows leave, and what an owner refuses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedspan.errors import InputError
from fedspan.statistics.survival.event_counts import last_at_risk, pair, times_and_events
from tests.owner.owner_desk import Desk

GRID = np.array([2.0, 4.0, 6.0])


def test_events_are_moved_up_and_censored_rows_down():
    times = np.array([1.0, 2.0, 2.5, 6.0, 7.0, 1.0, 2.0, 5.9, 99.0])
    events = np.array([1.0, 1, 1, 1, 1, 0, 0, 0, 0])
    at, happens = last_at_risk(times, events, GRID)
    assert at.tolist() == [0, 0, 1, 2, 2, -1, 0, 1, 2]
    assert happens.tolist() == [True, True, True, True, False, False, False, False, False]


def test_fields_of_truth_values_are_events():
    y = np.array([(True, 3.0), (False, 4.0)], dtype=[("died", bool), ("days", float)])
    assert pair(y).tolist() == [[3.0, 1.0], [4.0, 0.0]]
    with pytest.raises(InputError, match="must have two: a time and an event"):
        pair(np.zeros(2, dtype=[("a", float)]))
    with pytest.raises(InputError, match="y holds text"):
        times_and_events(np.array([["1", "dead"]], dtype=object))


def test_an_owner_names_two_columns_and_refuses_counts_of_few_rows(tmp_path):
    row = np.arange(60)
    frame = pd.DataFrame({"arm": row % 2, "days": 1.0 + row % 6, "died": row // 6 % 2})
    desk = Desk(tmp_path / "a", "least_set = 5", frame, 'target = ["days", "died"]')
    assert desk.owned.site.y.shape == (60, 2)
    assert desk.owned.site.feature_names == ("arm",)
    assert desk.owned.describe()["target"] == ["days", "died"]
    days = {"grid": np.arange(1.0, 7.0), "by": -1, "groups": "all"}
    assert desk.ask("survival.counts", payload=days)["events"].tolist() == [[5] * 6]
    uneven = {**days, "grid": np.array([0.5, 6.0])}
    assert desk.ask("survival.counts", 1, payload=uneven, after=0)["n"] == 60
    by_arm = {**days, "by": 0, "groups": "1\n0\n7"}
    found = desk.ask("survival.counts", 2, payload={**by_arm, "groups": "1"}, after=1)
    assert found["others"] == 30
    assert "about 6 rows or more" in Desk(tmp_path / "b", "least_set = 6", frame, 'target = ["days", "died"]').ask(
        "survival.counts", payload=days
    )

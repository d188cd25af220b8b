"""The tables of streams, on small windows."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.papers import streams_paper as streams


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {"ROWS": 150, "WINDOWS": 7, "BEGIN": 3}.items():
        monkeypatch.setattr(streams, name, value)


def of(shift):
    return lambda seed: streams.generated(streams.SHIFTS[shift], seed, windows=7)


def numbers(table):
    return {row[0]: [float(cell) for cell in row[1:]] for row in table.rows}


def test_learning_on_survives_a_new_service():
    by_window = streams.judged_by_all(of("a new service in a third of the rows"), (0,))
    found = numbers(streams.stream_table("t", by_window, (0,), 4, ""))
    charts = streams.over_time("t", by_window, (0,))
    assert [len(chart.lines) for chart in charts] == [len(streams.LEARNERS)] * 3
    (once, _, once_alarms, _), (on, _, on_alarms, _) = found["fitted once"], found["partial_fit, decay 0.8"]
    assert on > once
    assert on_alarms < once_alarms
    assert set(found) == set(streams.LEARNERS)


def test_without_drift_all_are_alike():
    found = numbers(streams.stream_table("t", streams.judged_by_all(of("no drift"), (0,)), (0,), 1, ""))
    for auc, _, alarms, _ in found.values():
        assert auc > 0.95
        assert abs(alarms - 5.0) < 3.0


def test_drift_is_noticed_soon_and_no_other_window_raises_an_alarm():
    rows = {row[0]: row[1:] for row in streams.noticed_table((0, 1)).rows}
    assert rows["a column in another unit"][0] == "1"
    assert all(false.startswith("0 of") for _, _, false in rows.values())


def test_a_poisoned_site_meets_the_cap():
    rows = {row[0]: row[1:] for row in streams.poisoned_table((0,)).rows}
    assert float(rows["cap 0.5"][0]) <= 0.5
    assert rows["cap 0.5"][1] == "1 of 1"


def test_resilient_partial_fits_survive_poisoned_batches():
    rows = {row[0]: [float(cell) for cell in row[1:]] for row in streams.poisoned_batches_table((0,)).rows}
    plain = rows.pop("partial_fit by sums")
    assert len(rows) == 2
    for auc, f1, alarms in rows.values():
        assert auc > 0.95
        assert f1 > plain[1]
        assert abs(alarms - 5.0) < 4.0


def test_windows_have_the_rows_and_labels_that_they_should():
    before, after = (streams.generated(streams.SHIFTS[name], 0, 4) for name in ("no drift", "a column in another unit"))
    np.testing.assert_array_equal(before[0].X, after[0].X)
    np.testing.assert_array_equal(before[3].X[:, 2] * 10.0, after[3].X[:, 2])
    assert 0.01 < before[0].y.mean() < 0.1
    assert len(before[0].normal().sites) == streams.SITES

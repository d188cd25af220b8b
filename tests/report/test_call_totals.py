"""Totals of calls by site and step, and rounds counted through a run."""

from __future__ import annotations

from fedspan.federation.record import Metrics
from fedspan.report.sections.call_totals import by_site, by_step, round_index, run_names

from .report_reading import a_record, of_loops, two_runs


def test_totals_by_site_add_up_to_the_record():
    records = two_runs()
    totals = by_site(records, also=["z"])
    assert list(totals) == ["a", "b", "c", "z"]
    assert (totals["b"].requested, totals["b"].answered, totals["b"].failed) == (4, 2, 2)
    assert (totals["b"].down, totals["b"].up) == (5 + 1 + 2000, 100 + 2)
    assert sum(t.up for t in totals.values()) == sum(r.bytes_up for r in records)
    assert sum(t.down for t in totals.values()) == sum(r.bytes_down for r in records)


def test_totals_by_step_keep_the_order_of_first_calls():
    steps = by_step(two_runs()[1:])
    assert [(id, s.calls, s.requested, s.answered, s.failed) for id, s in steps.items()] == [
        ("x.start", 1, 3, 3, 0),
        ("x.multiply", 2, 6, 3, 3),
    ]
    assert (steps["x.multiply"].down, steps["x.multiply"].up, steps["x.multiply"].seconds) == (6000, 6000, 2.0)


def test_runs_are_named_by_what_ran_and_a_number_where_it_ran_twice():
    records = [a_record(what, number=n) for n, what in enumerate(["A", "B", "A"])]
    assert run_names(records) == ["A (run 0)", "B", "A (run 2)"]


def test_rounds_are_counted_through_the_loops_of_a_run():
    record = a_record()
    record.metrics += [Metrics(i, turn, {"loss": 1.0}) for i, turn in enumerate([0, 1, 0, 1, None, 2])]
    found = [one and (one.loop, one.number) for one in round_index(record).metrics]
    assert found == [(0, 0), (0, 1), (1, 2), (1, 3), None, (2, 6)]
    assert round_index(record).total == 0  # no call was made
    assert round_index(of_loops([[1.0] * 3, [1.0] * 2], [None])).total == 5

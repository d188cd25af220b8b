"""Rounds and bytes: the numbers are those of the records."""

from __future__ import annotations

from fedspan.report.sections.traffic import traffic_section

from .report_reading import SITES, Page, a_call, a_record, of_loops, two_runs


def test_every_call_has_its_line_up_to_fifty():
    page = Page(traffic_section(two_runs()))
    assert "4 calls in 2 rounds" in page.text
    assert "2 x.multiply 1 1 of 3 2 000 3 000 1.0000" in page.text
    assert "all 9 of 12 6 306 6 018 2.7500" in page.text
    assert len(page.all("tr", "group")) == 2
    fifty = a_record(calls=[a_call(i, "f", SITES) for i in range(50)])
    assert len(Page(traffic_section([fifty])).all("tr")) == 52
    fifty.calls.append(a_call(50, "f", SITES))
    assert len(Page(traffic_section([fifty])).all("tr")) == 3


def test_calls_read_from_a_journal_are_marked():
    record = a_record(calls=[a_call(0, "f", SITES, replayed=True), a_call(1, "f", SITES)])
    assert Page(traffic_section([record])).text.count("from the journal") == 1
    record.calls *= 40
    assert "40 from the journal" in Page(traffic_section([record])).text


def test_many_steps_are_cut_and_summed():
    record = a_record(calls=[a_call(i, f"step-{i:03d}", ["a"]) for i in range(60)])
    page = Page(traffic_section([record]))
    assert "and 10 more steps, counted in the last line" in page.text
    assert "all 60 60 of 60 1 200 600 30.00" in page.text
    assert "and 55 steps with less" in page.text


def test_bytes_so_far_end_at_the_record_s_bytes():
    record = a_record(calls=[a_call(i, "f", ["a"], up=250, down=0) for i in range(4)])
    page = Page(traffic_section([record]))
    titles = [words for words in page.words if words.startswith("up at ")]
    assert titles == ["up at 0: 0 B", "up at 1: 250 B", "up at 2: 500 B", "up at 3: 750 B", "up at 4: 1 kB"]


def test_rounds_of_several_loops_add_up():
    assert "7 calls in 5 rounds" in Page(traffic_section([of_loops([[1.0] * 3, [1.0] * 2], [None])])).text

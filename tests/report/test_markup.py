"""Text as HTML: escaped unless it is marked as HTML, numbers readable."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.report.markup import (
    Html,
    count,
    duration,
    esc,
    few,
    header,
    more,
    number,
    number_with,
    pairs,
    percent,
    plural,
    script_json,
    size,
    superscript,
    table,
)

from .report_reading import Page


@given(st.text())
def test_any_text_is_only_text_once_escaped(text):
    page = Page(f"<p>{esc(text)}</p>")
    assert [tag for tag, _ in page.tags] == ["p"]


def test_control_characters_and_long_texts():
    assert esc("a\x00b\x9fc\td") == "a\ufffdb\ufffdc\td"
    assert esc("refused\u202eyna\u2066") == "refused\ufffdyna\ufffd"  # turns the order of signs
    assert esc("x" * 301 + "y" * 301) == "x" * 149 + "…" + "y" * 150
    assert esc("x" * 301, 10) == "x" * 9 + "…"
    assert esc("x" * 300) == "x" * 300


@given(st.text() | st.lists(st.text()))
def test_json_in_a_script_reads_back_and_has_no_tags(value):
    text = script_json(value)
    assert json.loads(text) == value
    assert not set("<>&") & set(text)


def test_numbers_by_hand():
    cases = {
        0.0: "0",
        1234567.0: "1 235 000",
        1e7: "1×10⁷",
        -0.00012: "−0.00012",
        99999.5: "100 000",
        1e-300: "1×10⁻³⁰⁰",
    }
    assert {value: number(value).replace("\u202f", " ") for value in cases} == cases
    assert number(float("-inf")) == "−∞"
    assert count(-1234) == "−1\u202f234"
    assert [size(v) for v in (0, 999_600, 1e9, 2.5e12)] == ["0 B", "1 MB", "1 GB", "2.5 TB"]
    assert [size(v) for v in (999, 1500, 2_340_000)] == ["999 B", "1.5 kB", "2.34 MB"]
    assert (number_with(-0.5, 2), number_with(-0.001, 2), number_with(1234.5, 1)) == ("−0.50", "0.00", "1\u202f234.5")
    assert (superscript(-3), percent(0.1234)) == ("⁻³", "12.3 %")
    assert [duration(v) for v in (0.0123, 75.0, 7200.0)] == ["0.0123 s", "1 min 15 s", "2 h 0 min"]
    assert duration(59.99) == "60 s"
    assert duration(3599.7) == "1 h 0 min"


@given(st.floats(-1e300, 1e300))
def test_numbers_read_back_to_their_digits(value):
    text = number(value).replace("\u202f", "").replace("−", "-").replace("×10", "e")
    text = text.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    assert float(text) == pytest.approx(value, rel=6e-4, abs=0)


def test_table_escapes_cells_separates_thousands_and_scrolls():
    page = Page(table(["name", "n"], [["<b>", 1234], ["group"], [Html("<i>x</i>"), "y"]], foot=["all", 5]))
    assert page.all("b") == []
    assert len(page.all("i")) == 1
    assert "1\u202f234" in page.words
    assert page.all("div", "scroll")
    assert [a.get("colspan") for a in page.all("th")].count("2") == 1
    assert len(page.all("tfoot")) == 1
    assert len(page.all("td", "n")) == 3


def test_pairs_escape_both_sides():
    assert Page(pairs([("<b>", "<i>")])).text == "<b> <i>"


def test_counts_and_lists_of_names():
    assert [plural(1, "site"), plural(2, "site"), plural(2, "reply", "replies")] == ["1 site", "2 sites", "2 replies"]
    assert few(["a", "b", "a", "c"], most=2) == "a, b and 1 more"
    assert few(["a", "b"]) == "a, b"
    assert more(0, "site") == []
    assert Page(more(3, "site", ", silent")[0]).text == "and 3 more sites, silent"


def test_the_head_of_a_page_marks_the_bad_number():
    page = Page(header("<b>", "done", [("calls", "3"), ("failed", "1")], bad="failed"))
    assert page.text == "<b> done calls 3 failed 1"
    assert len(page.all("div", "bad")) == 1

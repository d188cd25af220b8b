"""The page of an audit: its headline is the worst of the card."""

from __future__ import annotations

from fedspan.audit import LeakCard, LeakEntry
from fedspan.report.leak_page import render_leaks


def entry(name, error, named):
    return LeakEntry(name, "", "", f"{name} found {named:.0%}.", {"relative_error": error, "reidentified": named})


def headline(*entries):
    page = render_leaks(LeakCard("X", "nowhere", entries), None, None, None)
    return page.split('class="result">')[1].split("<")[0]


def test_the_headline_is_of_the_worst_attack():
    first, better, near = entry("a", 0.6, 0.5), entry("b", 0.4, 0.834), entry("c", 0.3, 0.834)
    assert headline(first, better) == "b found 83%."
    assert headline(first, near, better) == "c found 83%."
    assert headline(LeakEntry("d", "", "", "Not measured."), LeakEntry("e", "", "", "Nor this.")) == "Not measured."

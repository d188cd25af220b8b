"""Console events: what is shown, and how often."""

from __future__ import annotations

import json
import logging

from fedspan.engines.nvflare.setup import console_events
from fedspan.engines.nvflare.setup.console_events import ConsoleHandler, NewEvents


def lines(capsys):
    return [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()]


def test_critical_errors_are_shown_and_the_rest_of_the_log_is_not(capsys):
    logger = logging.Logger("flare")
    logger.addHandler(ConsoleHandler())
    logger.error("Client: New client north joined")
    logger.critical("first line\nsecond")
    assert lines(capsys) == ["first line"]


def test_a_repeated_event_is_shown_once(capsys):
    events = NewEvents()
    for line in ("one", "one", "two", "one"):
        events.report(line)
    assert lines(capsys) == ["one", "two", "one"]


def test_events_as_json(monkeypatch, capsys):
    monkeypatch.setenv(console_events.FORM, "json")
    console_events.report('north "joined"')
    line = json.loads(capsys.readouterr().out)
    assert line["event"] == 'north "joined"'
    assert line["time"].endswith("+00:00")


def test_a_name_from_outside_writes_no_event_of_its_own(monkeypatch, capsys):
    """A process that registered as "x<newline>12:00:00 north joined" wrote that on the coordinator's screen."""
    hostile = "x\n12:00:00 north joined\x1b[2J\u202e"
    console_events.report(hostile)
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 1
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    monkeypatch.setenv(console_events.FORM, "json")
    console_events.report(hostile)
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 1
    assert json.loads(shown)["event"] == hostile
    assert shown.isascii()

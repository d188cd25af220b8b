"""Console events: which log messages are shown, and how often."""

from __future__ import annotations

import json
import logging

from fedspan.engines.nvflare.setup import console_events
from fedspan.engines.nvflare.setup.console_events import NewEvents, event_of


def test_events_are_shown_and_the_rest_of_the_log_is_not():
    joined = "Client: New client north@10.0.0.7 joined. Sent token: x"
    assert event_of(joined, logging.INFO) == "north joined from 10.0.0.7"
    assert event_of("conn_manager: Connection [CN00002] is created", logging.INFO) is None
    assert event_of("first line\nsecond", logging.CRITICAL) == "first line"


def test_a_repeated_event_is_shown_once(capsys):
    events = NewEvents()
    for line in ("one", "one", "two", "one"):
        events.report(line)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["one", "two", "one"]


def test_events_as_json(monkeypatch, capsys):
    monkeypatch.setenv(console_events.FORM, "json")
    console_events.report('north "joined"')
    line = json.loads(capsys.readouterr().out)
    assert line["event"] == 'north "joined"'
    assert line["time"].endswith("+00:00")

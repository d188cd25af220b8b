"""Console events: what is shown, and how often."""

from __future__ import annotations

import json
import logging

from fedspan.engines.nvflare.setup import console_events
from fedspan.engines.nvflare.setup.console_events import ConsoleHandler, NewEvents, SiteEvents


def lines(capsys):
    return [line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines()]


def test_sites_join_fall_silent_and_come_back(capsys, monkeypatch):
    events = SiteEvents(lambda: ["north", "south"])
    for name in ("north", "alice", "south"):
        events.joined(name)
        events.heard(name)
    events.check()
    assert lines(capsys) == ["north joined", "south joined"]
    assert events.online() == ["north", "south"]
    monkeypatch.setattr(console_events, "SILENT_AFTER", -1.0)
    events.check()
    events.check()
    events.heard("south")
    events.heard("alice")
    assert lines(capsys) == ["north is silent", "south is silent", "south is back"]
    assert events.online() == ["south"]


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


def test_a_removed_site_that_still_sends_heartbeats_is_not_reported_again_and_again(monkeypatch, capsys):
    sites = {"north"}
    events = SiteEvents(lambda: sites)
    events.joined("north")
    sites.clear()
    monkeypatch.setattr(console_events, "SILENT_AFTER", -1.0)
    for _ in range(3):
        events.check()
        events.heard("north")
    assert [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()] == [
        "north joined",
        "north is silent",
    ]

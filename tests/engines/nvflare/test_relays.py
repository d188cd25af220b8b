"""Relays that are being started: whom they wait for in vain. Nothing here is started."""

from __future__ import annotations

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install fedspan[nvflare]")
from fedspan.engines.nvflare.client import relay_start as starting
from fedspan.engines.nvflare.client.relay_groups import Gathering, Roster


def test_a_site_that_will_not_come_is_told_from_one_that_is_slow(monkeypatch):
    now, wanted = [100.0], frozenset("abc")
    monkeypatch.setattr(starting.time, "monotonic", lambda: now[0])
    relay, heard = starting.Starting("job"), {"a": 1.0, "b": 1.0, "c": 1.0}

    def look(running, seconds=1.0, **newer):
        now[0] += seconds
        heard.update(newer)
        return relay.gone(wanted, running, heard)

    there = {"a": {"job"}, "b": {"job"}, "c": set()}
    assert look({site: set() for site in "abc"}, 60.0) == set()  # the server has not started it yet
    assert look(there) == set()
    assert look({"a": {"job"}, "b": {"job"}}) == set()  # c gives no answer
    assert look({"a": {"job"}, "b": {"job"}}, starting.SILENT + 1, c=2.0) == set()  # and is slow only
    assert look({"a": {"job"}, "b": {"job"}}, starting.SILENT + 1) == {"c"}
    assert look({"a": {"job"}, "b": set(), "c": {"job"}}) == {"b"}  # b has had it
    assert look({"a": {"job"}, "b": {"job"}, "c": {"job"}}) == set()
    del heard["a"]
    assert look({"b": {"job"}, "c": {"job"}}) == {"a"}


def test_a_site_that_was_started_anew_and_knows_nothing_of_a_relay_is_noticed(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(starting.time, "monotonic", lambda: now[0])
    relay, heard = starting.Starting("job"), {"a": 1.0, "b": 1.0}
    running = {"a": {"job"}, "b": set()}
    assert relay.gone(frozenset("ab"), running, heard) == set()
    now[0] += starting.LATE / 2
    assert relay.gone(frozenset("ab"), running, heard) == set()
    now[0] += starting.LATE
    assert relay.gone(frozenset("ab"), running, heard) == {"b"}


def test_a_site_that_died_is_there_again_when_it_is_heard_of_again():
    roster = Roster()
    roster.heard = {"a": 5.0, "b": 5.0, "c": 5.0}
    roster.lose(["a", "b"], {"b": set()})
    assert roster.there() == {"b", "c"}
    assert [roster.why_not(site) for site in "ad"] == ["a does not answer", "d is not connected"]
    roster.heard = {"a": 6.0}
    assert roster.there() == {"a"}


def test_who_comes_at_the_same_time_shares_a_relay():
    gathering, two, three = Gathering(), frozenset("ab"), frozenset("abc")
    assert gathering.groups(three, "abc") == [three]  # nobody else could come
    assert [gathering.groups(two, "abc") for _ in range(3)] == [[], [], [two]]
    gathering.hurry()
    assert gathering.groups(frozenset("b"), "abc") == [frozenset("b")]
    assert gathering.groups(frozenset("a"), "abc") == []
    gathering.part("ab")  # one of them kept a relay from starting
    assert gathering.groups(three, "abc") == [frozenset("a"), frozenset("b"), frozenset("c")]
    assert gathering.groups(three, "abc") == [three]

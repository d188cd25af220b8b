"""Relays: which leads to which site, which sites share one, and which will never start. Nothing here is started."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install fedspan[nvflare]")
from nvflare.fuel.flare_api.api_spec import JobNotFound

from fedspan.engines.nvflare.client import relays
from fedspan.engines.nvflare.client.relay_monitor import RelayMonitor
from fedspan.engines.nvflare.client.relays import RelayGroups, RelayJob, Relays, Roster
from fedspan.engines.nvflare.client.user_session import JobEndedError, UserSession


def test_a_dead_site_is_distinguished_from_a_slow_one(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(relays.time, "monotonic", lambda: now[0])
    relay, heard = RelayJob("job", frozenset("abc")), {"a": 1.0, "b": 1.0, "c": 1.0}

    def look(running, seconds=1.0, **newer):
        now[0] += seconds
        heard.update(newer)
        return relay.dead(running, heard)

    there = {"a": {"job"}, "b": {"job"}, "c": set()}
    assert look({site: set() for site in "abc"}, 60.0) == set()  # the server has not started it yet
    assert look(there) == set()
    assert look({"a": {"job"}, "b": {"job"}}) == set()  # c does not answer
    assert look({"a": {"job"}, "b": {"job"}}, relays.SILENT + 1, c=2.0) == set()  # and is only slow
    assert look({"a": {"job"}, "b": {"job"}}, relays.SILENT + 1) == {"c"}
    assert look({"a": {"job"}, "b": set(), "c": {"job"}}) == {"b"}  # b ran it before
    assert look({"a": {"job"}, "b": {"job"}, "c": {"job"}}) == set()
    del heard["a"]
    assert look({"b": {"job"}, "c": {"job"}}) == {"a"}


def test_a_restarted_site_that_does_not_know_a_relay_is_noticed(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(relays.time, "monotonic", lambda: now[0])
    relay, heard = RelayJob("job", frozenset("ab")), {"a": 1.0, "b": 1.0}
    running = {"a": {"job"}, "b": set()}
    assert relay.dead(running, heard) == set()
    now[0] += relays.LATE / 2
    assert relay.dead(running, heard) == set()
    now[0] += relays.LATE
    assert relay.dead(running, heard) == {"b"}


def test_a_site_that_died_is_online_when_it_is_heard_of_again():
    roster = Roster()
    roster.heard = {"a": 5.0, "b": 5.0, "c": 5.0}
    roster.lose(["a", "b"], {"b": set()})
    assert roster.online() == {"b", "c"}
    assert [roster.why_not(site) for site in "ad"] == ["a is silent", "d is not connected"]
    roster.heard = {"a": 6.0}
    assert roster.online() == {"a"}


def test_sites_that_connect_at_the_same_time_share_a_relay():
    groups, two, three = RelayGroups(), frozenset("ab"), frozenset("abc")
    assert groups.next(three, "abc") == [three]  # no other site can come
    assert [groups.next(two, "abc") for _ in range(3)] == [[], [], [two]]
    groups.hurry()
    assert groups.next(frozenset("b"), "abc") == [frozenset("b")]
    assert groups.next(frozenset("a"), "abc") == []
    groups.separate("ab")  # one of them kept a relay from starting
    assert groups.next(three, "abc") == [frozenset("a"), frozenset("b"), frozenset("c")]
    assert groups.next(three, "abc") == [three]


def test_each_site_has_the_newest_relay_that_leads_to_it():
    relays, old, new = Relays(), RelayJob("old", frozenset("ab")), RelayJob("new", frozenset("b"))
    relays.jobs.append(old)
    assert relays.starting() == {"a", "b"}
    relays.opened(old, "ab")
    relays.jobs.append(new)
    assert relays.starting() == {"b"}
    relays.opened(new, "b")
    assert (relays.routes["a"], relays.routes["b"]) == (old, new)
    relays.leave("a")
    assert relays.unused() == [old]
    assert relays.unused([old]) == []
    relays.ended(new, "it ended")
    assert relays.routes == {}
    assert new.ended.result() == "it ended"


class RestartedServer:
    """A session with a server that has forgotten all jobs."""

    status = UserSession.status

    class _flare:  # noqa: N801
        @staticmethod
        def get_job_meta(job):
            raise JobNotFound(f"no such job: {job}")

    _guard = staticmethod(UserSession._guard)

    def command(self, job, **data):
        raise JobEndedError("no such job")


@pytest.mark.parametrize("ready", [True, False])
def test_a_relay_that_the_server_has_forgotten_is_removed_even_while_it_starts(ready):
    monitor = RelayMonitor.__new__(RelayMonitor)
    monitor._changed, monitor._relays, monitor._groups = threading.Condition(), Relays(), RelayGroups()
    job = RelayJob("lost", frozenset("a"), ready=ready)
    monitor._relays.jobs.append(job)
    monitor._check_relay(RestartedServer(), job)
    assert monitor._relays.jobs == []
    assert job.ended.done()

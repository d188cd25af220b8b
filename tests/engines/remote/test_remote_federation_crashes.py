"""Crashes: whichever process is killed, and whenever, a run of all sites ends with the bytes of an undisturbed one."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.durable import append_file
from fedspan.federation.journal import Journal
from tests.laws.protocol_laws import as_bytes

from .network import Killed, Network
from .runs import RUNS, expected, sites
from .steps import walk, wander

ALL = fs.Policy(quorum="all", run_deadline=600.0)


def run(name, net, folder=None):
    protocol, options = RUNS[name]
    return as_bytes(net.federation(ALL, folder).run(protocol, **options))


class CoordinatorKilled(BaseException):
    """The user's process is killed here."""


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("moment", ["before the call", "after the answers", "in the journal", "after the journal"])
def test_the_coordinator_is_killed_at_every_call(name, moment, tmp_path, monkeypatch):
    """One run is killed again and again and continued by another process, with the sites' disks as they were."""
    net = Network(sites(), tmp_path / "sites")
    whole_send, whole_append = Network.send, Journal.append
    left = [0]

    def at(where):
        if where == moment:
            left[0] -= 1
            if left[0] < 0:
                raise CoordinatorKilled

    def send(self, requests, deadline):
        at("before the call")
        answers = whole_send(self, requests, deadline)
        at("after the answers")
        return answers

    def append(self, entry):
        if moment == "in the journal":
            end = self._file.end
            whole_append(self, entry)
            if left[0] == 0:  # this entry is cut short
                os.truncate(self.path, (end + self._file.end) // 2)
            at(moment)
        else:
            whole_append(self, entry)
            at("after the journal")

    monkeypatch.setattr(Network, "send", send)
    monkeypatch.setattr(Journal, "append", append)
    kills = 0
    while True:
        # Each process comes a little further than the one before it; first it requests reports, and what sites hold.
        left[0] = {"in the journal": 1, "after the journal": 0}.get(moment, 3)
        try:
            found = run(name, net, tmp_path / "run")
        except CoordinatorKilled:
            kills += 1
            assert kills < 60
        else:
            break
    assert found == expected(name)
    assert kills >= 3


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_a_site_is_killed_at_every_write(name, where, tmp_path, monkeypatch):
    """At each moment in which a site writes to its disk its process is killed once, and comes back."""
    net = Network(sites(), tmp_path / "sites")
    whole = append_file._write
    writes, kills = [0], [0]

    def write(file, parts, at):
        writes[0] += 1
        fatal = writes[0] % 3 == 0
        if fatal and where != "before":
            data = b"".join(parts)
            whole(file, (data if where == "after" else data[: len(data) // 2],), at)
        if fatal:
            kills[0] += 1
            raise Killed
        return whole(file, parts, at)

    monkeypatch.setattr(append_file, "_write", write)
    net.after_send = lambda: [net.start(site) for site in list(net.gone)]
    assert run(name, net) == expected(name)
    assert kills[0] > 5


@st.composite
def troubles(draw):
    """Draw what happens at each send: nothing, or that a site loses a request or an answer, or is killed, or leaves."""
    kinds = st.sampled_from(["request", "answer", "kill", "leave"])
    return draw(st.dictionaries(st.integers(1, 25), st.tuples(kinds, st.sampled_from("abc")), max_size=8))


@settings(max_examples=12, phases=[Phase.generate])
@pytest.mark.parametrize("name", RUNS)
@given(plan=troubles(), resumed=st.integers(0, 12))
def test_the_bytes_are_the_same_whatever_happens(name, plan, resumed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    net = Network(sites(), folder / "sites")
    sends = [0]

    def lose(site, what):
        return plan.get(sends[0]) == (what, site)

    def online():
        """An offline site comes back after it was looked for once."""
        there = frozenset(net.sites) - net.gone
        for site in list(net.gone):
            net.start(site)
        return there

    def after_send():
        sends[0] += 1
        kind, site = plan.get(sends[0], ("", ""))
        if kind == "kill":
            net.start(site)
        elif kind == "leave":
            net.stop(site)
        if sends[0] == resumed:
            raise CoordinatorKilled

    net.lose, net.after_send, net.online = lose, after_send, online
    try:
        found = run(name, net, folder / "run")
    except CoordinatorKilled:
        found = run(name, net, folder / "run")
    assert found == expected(name)
    net.close()


def test_with_a_lower_quorum_a_run_continues_and_includes_a_site_again(tmp_path):
    net = Network(sites(), tmp_path / "sites")
    fed = net.federation(fs.Policy(deadline=60.0))
    sends = [0]

    def after_send():
        sends[0] += 1
        if sends[0] == 4:
            net.stop("b")
        if sends[0] == 8:
            net.start("b")

    net.after_send = after_send
    with fed.begin("wander") as running:
        wander(running, rounds=8)
    (absence,) = running.record.absences
    assert absence.startswith("site b was offline in call")
    assert "back in call" in absence
    assert running.record.calls[-1].answered == ("a", "b", "c")


def test_a_finished_run_needs_no_site(tmp_path):
    net = Network(sites(), tmp_path / "sites")
    before = run("feddl", net, tmp_path / "run")
    for site in net.sites:
        net.stop(site)
    assert run("feddl", net, tmp_path / "run") == before


def added(fed, *, rounds):
    """Add up random walks: sites keep state, and every sum depends on it."""
    return [fed.sum(walk, pull=0.1 / (t + 1))["position"] for t in fed.rounds(rounds)]


@pytest.mark.parametrize("secure", [False, True])
def test_a_site_whose_file_lost_its_end_runs_the_lost_calls_again(secure, tmp_path):
    """The site's disk has lost what it wrote last, at any byte, and the run goes on to the same bytes."""
    rng = np.random.default_rng(5)
    settings = fs.SecureSum(least=2) if secure else None
    policy = fs.Policy(quorum="all", run_deadline=600.0, secure_sum=settings or False)
    protocol, options = (added, {"rounds": 5}) if secure else RUNS["fedpg"]

    def made(net, folder=None):
        found = net.federation(policy, folder).run(protocol, **options)
        return np.round(found, 12).tobytes() if secure else as_bytes(found)  # the last bits of secure sums are random

    whole = made(Network(sites(), tmp_path / "undisturbed", settings))
    for cut in range(5 if secure else 10):
        folder = tmp_path / str(cut)
        net = Network(sites(), folder / "sites", settings)
        last = int(rng.integers(4, 16 if secure else 9))

        def after_send(net=net, last=last):
            if len(net.sends) == last:
                raise CoordinatorKilled

        net.after_send = after_send
        with pytest.raises(CoordinatorKilled):
            made(net, folder / "run")
        net.after_send = lambda: None
        net.stop("b")
        (file,) = (folder / "sites" / "b").glob("*.run")
        os.truncate(file, int(rng.integers(0, file.stat().st_size)))
        net.start("b")
        assert made(net, folder / "run") == whole
        net.close()

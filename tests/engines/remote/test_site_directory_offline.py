"""Offline sites: when they are waited for, and how they come back."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.remote.coordinator import site_directory
from fedspan.engines.remote.coordinator.site_directory import SiteDirectory
from fedspan.errors import QuorumError
from fedspan.federation.run import Observer

from .network import Network, three_sites
from .steps import count, heard, odd, walk, wander

ALL = fs.Policy(quorum="all", run_deadline=60.0)


@pytest.fixture
def net(tmp_path):
    network = Network(three_sites(), tmp_path / "sites")
    yield network
    network.close()


def test_an_offline_site_costs_one_attempt_and_comes_back(net):
    seen = []
    with net.federation() as fed:
        fed.ask(walk, pull=0.1)
        net.lose = lambda site, what: site == "c"
        fed.ask(walk, pull=0.1)
        net.lose = lambda site, what: seen.append(site) or False
        net.stop("c")
        for _ in range(3):
            fed.ask(walk, pull=0.1)
        assert "c" not in seen
        net.start("c")
        replies = fed.ask(walk, pull=0.1)
        # It has missed calls 1 to 4, and goes on from its own disk.
        assert {site: reply["steps"] for site, reply in replies.items()} == {"a": 6, "b": 6, "c": 2}
        assert fed.record.absences == ["site c was offline in calls 1 to 4 and back in call 5"]
        assert "site c was offline in calls 1 to 4 and back in call 5" in fed.record.summary()
        assert fed.record.calls[2].failed["c"] == "offline: no answer within the deadline"


def test_a_site_that_hangs_is_probed_now_and_then_only(net, monkeypatch):
    """It seems to be connected, and does not answer: probes take a tenth of the time, and no deadline each."""
    clock = [0.0]
    monkeypatch.setattr(site_directory, "monotonic", lambda: clock[0])

    def lose(site, what):
        clock[0] += 2.0 if site == "c" else 0.0
        return site == "c"

    with net.federation() as fed:
        fed.ask(count)
        net.lose = lose
        for _ in range(100):
            fed.ask(count)
            clock[0] += 1.0
        asked = [sites for sites in net.sends[2:] if "c" in sites]
        assert asked == [("a", "b", "c")] + [("c",)] * 6  # the call itself, then a short probe every 20 s
        net.lose = lambda site, what: False
        clock[0] += 20.0
        assert "c" in fed.ask(count)


def test_with_a_quorum_of_all_a_site_is_waited_for(net):
    class Restarts(Observer):
        waited = ()

        def waiting(self, sites):
            self.waited += sites
            net.start("b")

    expected = fs.LocalFederation(three_sites(), seed=1).run(wander)
    fed = net.federation(ALL)
    observer = Restarts()
    fed.observe(observer)
    sends = [0]

    def after():
        sends[0] += 1
        if sends[0] == 4:
            net.stop("b")

    net.after_send = after
    np.testing.assert_array_equal(fed.run(wander), expected)
    assert observer.waited == ("b",)


def test_a_run_that_waits_logs_for_which_site_and_why(net, monkeypatch, caplog):
    def rest(seconds):
        if caplog.messages:
            net.start("b")

    monkeypatch.setattr(site_directory, "_SILENT", 0.0)
    monkeypatch.setattr(site_directory, "sleep", rest)
    with net.federation(ALL) as fed:
        fed.ask(count)
        net.stop("b")
        assert set(fed.ask(count)) == {"a", "b", "c"}
    assert caplog.messages == ["waiting for b: the site is not connected"]


def test_the_last_reason_counts(net, caplog):
    """A site that was only late is gone when it is probed."""
    fed = net.federation(fs.Policy(quorum=0.5))
    fed.ask(count)
    directory = fed.engine.directory
    directory.lost("b", "no answer within the deadline")
    net.lose = lambda site, what: site == "b"
    directory.lost("b", "the site's worker is restarting")
    assert directory.offline(["b"]) == {"b": "no answer within the deadline"}  # as the probe has found
    fed.close()


def test_a_run_waits_until_its_deadline_and_can_be_resumed(net, tmp_path, monkeypatch):
    expected = fs.LocalFederation(three_sites(), seed=1).run(wander)
    whole, left = SiteDirectory.wait, []
    monkeypatch.setattr(SiteDirectory, "wait", lambda self, sites, s: left.append(s) or whole(self, sites, s / 600))
    net.after_send = lambda: len(net.sends) == 5 and net.stop("b")
    with pytest.raises(QuorumError, match="b: offline: the site is not connected"):
        net.federation(ALL, tmp_path / "run").run(wander)
    assert 0 < left[0] < ALL.run_deadline
    net.start("b")
    np.testing.assert_array_equal(net.federation(ALL, tmp_path / "run").run(wander), expected)


def test_no_site_is_waited_for_where_that_would_not_help(net):
    """One site is offline and another has failed: with a quorum of all the run is over at once."""
    fed = net.federation(fs.Policy(quorum="all", run_deadline=1000.0, max_bytes=100_000))
    fed.ask(count)
    net.stop("c")
    with pytest.raises(QuorumError, match=r"oversize.*offline: the site is not connected"):
        fed.ask(odd, what="size", where="b")


def test_a_site_whose_data_cannot_be_read_is_waited_for(net, monkeypatch):
    """Its database is down, say: the site is closed until it is back."""
    monkeypatch.setattr(site_directory, "_REST", 0)
    sends = []

    def after():
        sends.append(len(net.sends))
        if len(sends) == 5:
            net.workers["b"].admission.closed = ""

    with net.federation(policy=ALL) as fed:
        fed.ask(count)
        net.workers["b"].admission.closed = "this site is closed"
        net.after_send = after
        assert set(fed.ask(count).ok) == set("abc")
        assert len(sends) >= 5
        net.workers["b"].admission.closed = "this site is closed"
        net.after_send = lambda: None
        less = net.federation(policy=fs.Policy(quorum=2))  # with a lower quorum the run goes on without it
        assert less.ask(count).failed["b"] == "offline: this site is closed"
        net.workers["b"].admission.closed = ""


def test_a_request_that_is_too_large_for_a_site_is_refused_before_it_travels(net):
    for worker in net.workers.values():
        worker.max_bytes = 100_000
    with net.federation(policy=fs.Policy(max_bytes=2**40)) as fed:
        fed.ask(count)
        before = len(net.sends)
        with pytest.raises(
            QuorumError, match=r"oversize: the request has 800,.* bytes, and site 'a' accepts at most 100,000"
        ):
            fed.ask(heard, x=np.zeros(100_000))
        assert len(net.sends) == before


def test_a_site_that_measures_a_request_itself_says_so(net):
    """It has another limit than the one that it has reported: the user reads its words, not "stale"."""
    with net.federation() as fed:
        fed.ask(count)
        for worker in net.workers.values():
            worker.max_bytes = 100_000
        with pytest.raises(QuorumError, match=r"refused: the message has .* bytes, more than the 100000 allowed"):
            fed.ask(heard, x=np.zeros(200_000))

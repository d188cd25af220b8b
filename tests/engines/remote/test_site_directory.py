"""The site directory: what sites report, and what the coordinator warns of."""

from __future__ import annotations

import warnings

import pytest

from fedspan.engines.remote.coordinator import site_directory
from fedspan.engines.remote.messages import environment
from fedspan.engines.remote.messages.envelope import Opened
from fedspan.engines.remote.messages.identity import Participant
from fedspan.engines.remote.site import site_worker
from fedspan.errors import QuorumError

from .network import Network, three_sites
from .steps import count, wander


@pytest.fixture
def net(tmp_path):
    network = Network(three_sites(), tmp_path / "sites")
    yield network
    network.close()


def test_another_version_at_a_site_is_reported(net, monkeypatch):
    own = environment.fedspan_version()
    monkeypatch.setattr(site_directory, "fedspan_version", lambda: "9.9")
    with net.federation() as fed, pytest.raises(QuorumError) as caught:
        fed.ask(count)
    assert f"refused: site 'a' runs fedspan {own}, and this is fedspan 9.9: use one version" in str(caught.value)
    assert all(len(f.read_bytes()) == 0 for s in net.sites for f in (net.folder / s).glob("*.run"))


def test_other_libraries_are_warned_about_once(net, monkeypatch):
    monkeypatch.setattr(site_worker, "environment", lambda: {**environment.environment(), "numpy": "1.0"})
    fed = net.federation()
    with pytest.warns(UserWarning, match=r"site '.' has numpy 1\.0 \(here .*\): the last bits of results may") as w:
        [fed.run(wander, rounds=1) for _ in range(2)]
    assert len(w) == 3
    assert fed.sum(count)["n"] == 21
    fed.close()


def test_the_sites_reports_can_be_requested(net):
    net.stop("b")
    with net.federation() as fed:
        reports = fed.engine.reports()
        assert list(reports) == ["a", "c"]
        assert fed.engine.directory.refused["b"].refused == "the site is not connected"
        assert reports["a"].fingerprint.startswith("6x3 float64 #")
        net.start("b")
        assert list(fed.engine.reports(refresh=True)) == ["a", "b", "c"]
        assert fed.engine.directory.refused == {}
        net.meddle = lambda site, what, data: b"?" + data[1:] if (site, what) == ("a", "request") else data
        assert list(fed.engine.reports(refresh=True)) == ["b", "c"]
        assert "a" in fed.engine.directory.refused


def publish(net, kinds):
    """Let each site's owner publish the kinds of its columns."""
    for name, worker in net.workers.items():
        worker._describe = lambda name=name: {"columns": kinds[name]}


def test_kinds_that_differ_between_sites_are_warned_of_once(net):
    publish(net, {"a": {"age": "integer", "d": "time"}, "b": {"age": "number", "d": "text"}, "c": {"age": "text"}})
    with net.federation() as fed:
        with pytest.warns(UserWarning, match="the sites' tables differ") as caught:
            fed.engine.reports()
        assert len(fed.engine.reports()) == 3
    assert [str(warning.message) for warning in caught] == [
        "the sites' tables differ: column 'age' holds numbers at a, b and text at c; "
        "column 'd' holds time at a and text at b"
    ]


def test_numbers_of_several_kinds_are_numbers(net):
    publish(net, {"a": {"v": "integer"}, "b": {"v": "number"}, "c": {"v": "boolean"}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with net.federation() as fed:
            assert len(fed.engine.reports()) == 3


@pytest.mark.parametrize(
    "owner", [b"", b"\xff", b"[]", b'{"columns": 3}', b"{}", None, b'{"rows": "x"}', b"[" * 100_000, b"[]," * 2**20]
)
def test_what_an_owner_publishes_is_ignored_where_it_is_unreadable(owner):
    report = site_directory.SiteReport(**site_directory._published(owner))
    assert (report.rows, report.columns, report.allowed, report.approval) == (None, {}, (), False)


def test_a_report_of_100_000_brackets_is_refused_in_a_sentence():
    head = {"kind": "about", "instance": "i"}
    answer = Opened(Participant("a"), head, {"about": memoryview(b"[" * 100_000), "key": memoryview(b"")}, {}, "")
    assert site_directory._read(answer).refused == "the answer lacks a field that it must have"

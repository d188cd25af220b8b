"""A site's end of the connection."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[nvflare]' in a checkout")
from fedspan.engines.nvflare.flare import LARGE, RefusedError
from fedspan.engines.nvflare.site import site_link
from fedspan.engines.nvflare.site.site_link import SiteLink
from fedspan.engines.remote.messages import identity as identity_module
from fedspan.engines.remote.messages.identity import Authority
from fedspan.engines.remote.site.byte_link import ByteLink
from tests.engines.remote.people import member_list, signed, write_kit

from .conftest import wait_until


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A worker that repeats what it gets, and counts its connections."""
    monkeypatch.chdir(tmp_path)
    listener, links = socket.socket(socket.AF_UNIX), []
    listener.bind("worker.sock")
    listener.listen()

    def serve(link):
        while True:
            try:
                link.send(bytes(link.receive()) * 2)
            except (EOFError, OSError):
                links.remove(link)
                return

    def accept():
        while True:
            try:
                links.append(ByteLink(listener.accept()[0]))
            except OSError:
                return
            threading.Thread(target=serve, args=(links[-1],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield links
    listener.close()


def sent(link, body=b"", topic="call", sender="server", **head):
    return link.answer(sender, topic, {"keep": 60.0} | head, body)


def test_the_worker_answers_and_its_connection_is_kept(worker, tmp_path):
    link = SiteLink(tmp_path)
    assert [sent(link, b"ab") for _ in range(3)] == [({}, b"abab")] * 3
    assert len(worker) == 1
    assert sent(link, topic="alive") == ({"instance": link.instance}, b"")


def test_a_large_answer_waits_until_it_is_fetched_once(worker, tmp_path):
    link = SiteLink(tmp_path)
    head, body = sent(link, bytes(LARGE))
    assert (head["size"], body) == (2 * LARGE, b"")
    link.release()
    assert sent(link, topic="fetch", answer=head["answer"]) == ({}, bytes(2 * LARGE))
    with pytest.raises(RefusedError, match="the site has no such answer any more"):
        sent(link, topic="fetch", answer=head["answer"])
    late, _ = sent(link, bytes(LARGE), keep=0.0)
    link.release()
    with pytest.raises(RefusedError):
        sent(link, topic="fetch", answer=late["answer"])


def test_no_site_is_called_by_another_site(worker, tmp_path):
    with pytest.raises(RefusedError, match="only the federation's server may call a site"):
        sent(SiteLink(tmp_path), b"request", sender="south")
    assert not worker


def test_a_worker_that_is_not_there_is_a_sentence(tmp_path, capsys):
    link = SiteLink(tmp_path)
    for _ in range(2):
        with pytest.raises(RefusedError, match="the site's worker is restarting"):
            sent(link, b"request")
    assert capsys.readouterr().out.count("this site's worker cannot be reached: No such file or directory") == 1


def test_the_worker_is_left_alone_when_no_user_is_connected(worker, tmp_path, monkeypatch):
    """So that it may read its data again."""
    link = SiteLink(tmp_path)
    assert sent(link, b"a")[1] == b"aa"
    monkeypatch.setattr(site_link, "IDLE", -1.0)
    link.release()
    wait_until(lambda: not worker, "the connection is still open")
    assert sent(link, b"b")[1] == b"bb"
    link._heard = 0.0
    sent(link, topic="alive", used=False)
    assert link._heard == 0.0
    sent(link, topic="alive", used=True)
    assert link._heard > 0.0


@pytest.fixture
def events(monkeypatch):
    """What the site's process does: starts again, leaves, or reports."""
    seen = []
    for name in ("restart", "leave", "report"):
        monkeypatch.setattr(site_link, name, lambda why, name=name: seen.append((name, why)))
    return seen


def test_a_site_follows_the_list_and_leaves_when_it_is_removed(tmp_path, events):
    write_kit(tmp_path, "site", "a", members=member_list(3, ["a", "b"]))
    link = SiteLink(tmp_path)
    sent(link, signed(member_list(4, ["a", "b", "c"])), "members")
    assert Authority.from_kit(tmp_path).sites == {"a", "b", "c"}
    sent(link, signed(member_list(2, ["a"])), "members")
    assert "a list of participants is refused: the list has the version 2" in events.pop()[1]
    sent(link, signed(member_list(9, ["a"])).replace(b"clinics", b"klinics"), "members")
    assert "is refused" in events.pop()[1]
    sent(link, b"a copy, at 10.0.0.9, was refused", "notice")
    assert events.pop() == ("report", "a copy, at 10.0.0.9, was refused")
    sent(link, signed(member_list(5, ["b"])), "members")
    wait_until(lambda: events, "the site does not leave")
    assert events[0][0] == "leave"
    assert "'a' is not on the list of participants of clinics (version 5)" in events[0][1]


def test_a_site_starts_again_with_a_new_key_and_at_a_new_address(tmp_path, events):
    write_kit(tmp_path, "site", "a", members=member_list(3, ["a"]))
    link, began = SiteLink(tmp_path), site_link.kit_identity(tmp_path)
    link.check_kit(began)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        sent(link, signed(member_list(4, ["a"], server=address)), "members")
        link.check_kit(began)
        assert events == [("restart", f"the coordinator is at {address} now")]
    link.check_kit(began)  # it is not there: the site stays where it is
    assert len(events) == 1
    (tmp_path / "startup" / "client.key").write_bytes(b"another")
    link.check_kit(began)
    assert events[-1] == ("restart", "the site's key was replaced: connecting with the new one")


def test_a_site_starts_again_when_the_coordinator_speaks_another_transport(tmp_path, events, monkeypatch):
    write_kit(tmp_path, "site", "a", members=member_list(3, ["a"]))
    link, began = SiteLink(tmp_path), site_link.kit_identity(tmp_path)
    why = ["it speaks the old one still"]
    monkeypatch.setattr(site_link, "trouble", lambda kit, seconds: f"{why[0]} {kit.transport}" if why else None)
    sent(link, signed(replace(member_list(4, ["a"]), transport="http")), "members")
    link.check_kit(began)
    assert events == []
    why.clear()
    link.check_kit(began)
    assert events == [("restart", "messages travel by http now")]


def test_a_list_that_is_damaged_while_the_site_runs_is_written_again(tmp_path, monkeypatch):
    write_kit(tmp_path, "site", "a", members=member_list(3, ["a"]))
    monkeypatch.setattr(site_link, "EVERY", 0.01)
    monkeypatch.setattr(identity_module, "_COPYING", 0.1)
    file = tmp_path / "members.json"
    whole = file.read_bytes()
    read = threading.Event()
    monkeypatch.setattr(SiteLink, "check_kit", lambda self, began: read.set())
    monkeypatch.setattr(site_link, "trouble", lambda kit: None)
    threading.Thread(target=SiteLink(tmp_path).watch, daemon=True).start()
    wait_until(read.is_set, "the list is not read")
    for damage in (whole[:100], b""):
        file.write_bytes(damage)
        wait_until(lambda: file.read_bytes() == whole, "the list is not written again")

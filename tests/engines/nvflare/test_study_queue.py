"""The coordinator's queue of studies, without a server: what it makes of damaged files and odd requests."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time

import pytest

from fedspan.engines.nvflare.client.study_client import PURPOSE
from fedspan.engines.nvflare.flare import RefusedError
from fedspan.engines.nvflare.server import study_queue
from fedspan.engines.nvflare.server.study_queue import StudyQueue, disabled_sites
from fedspan.engines.remote.messages.envelope import FORMAT, Opened, Sealed, _signed
from fedspan.engines.remote.messages.identity import Participant
from fedspan.errors import InputError
from fedspan.wire import as_array, encode
from tests.engines.remote.people import member_list, user, write_kit

from .conftest import wait_until


@pytest.fixture
def queue(tmp_path):
    write_kit(tmp_path, "coordinator", "coordinator", members=member_list(sites=["a"]))
    for name, about in (("a" * 12, {"who": "alice", "state": "done"}), ("b" * 12, "[" * 100_000), ("c" * 12, "{}")):
        folder = tmp_path / "studies" / name
        folder.mkdir(parents=True)
        (folder / "about.json").write_text(about if isinstance(about, str) else json.dumps(about))
    return StudyQueue(tmp_path)


def opened(who="alice", role="analyst", **head):
    return Opened(Participant(who, role), {"time": time.time(), **head}, {}, {}, "")


def test_a_damaged_study_does_not_hide_the_others(queue):
    assert queue.answer(opened(kind="list")) == {"studies": [{"who": "alice", "state": "done"}]}
    with pytest.raises(InputError, match="has no study"):
        queue.answer(opened(kind="fetch", study="b" * 12))


@pytest.mark.parametrize("moment", [0.0, float("nan"), float("inf")])
def test_a_request_of_another_time_is_refused(queue, moment):
    with pytest.raises(InputError, match="too old"):
        queue.answer(opened(kind="list", time=moment))


def test_a_request_of_100_000_brackets_is_refused(queue):
    raw = encode({"format": FORMAT, "federation": "clinics", "kind": "list", "parts": "[" * 100_000})
    signed = {"head": as_array(raw), "signature": as_array(user().sign(_signed(PURPOSE, raw)))}
    request = encode(signed | {"certificate": as_array(user().certificate)})
    with pytest.raises(RefusedError, match="digests"):
        queue.request("alice", "list", {}, request)
    honest = Sealed(user(), PURPOSE, {"federation": "clinics", "kind": "list", "time": time.time()}, {}).to("")
    assert "studies" in queue.request("alice", "list", {}, honest)[0]


def test_each_role_does_what_it_may(queue, tmp_path):
    queue._studies["a" * 12] = {"who": "alice", "state": "waiting"}
    for who, role in (("carol", "analyst"), ("bob", "viewer"), ("olga", "operator")):
        listed = queue.answer(opened(who, role, kind="list"))["studies"]
        assert [about["who"] for about in listed] == ([] if role == "analyst" else ["alice"])
    for who, role, kind in (
        ("bob", "viewer", "cancel"),
        ("bob", "viewer", "submit"),
        ("bob", "viewer", "disable"),
        ("olga", "operator", "submit"),
        ("olga", "operator", "fetch"),
        ("alice", "analyst", "enable"),
        ("x", "runner", "list"),
    ):
        with pytest.raises(InputError, match=f"'{who}' has the role '{role}', which may not"):
            queue.answer(opened(who, role, kind=kind, study="a" * 12, site="a"))
    with pytest.raises(InputError, match="carol has no study"):
        queue.answer(opened("carol", kind="cancel", study="a" * 12))
    about = queue.answer(opened("olga", "operator", kind="cancel", study="a" * 12))["about"]
    assert (about["state"], about["why"]) == ("cancelled", "cancelled by olga")


def test_the_studies_of_a_user_that_wait_are_few(queue, monkeypatch):
    """One analyst could fill the coordinator's disk."""
    monkeypatch.setattr(study_queue, "MOST_WAITING", 2)
    monkeypatch.setattr(study_queue, "check_delegation", lambda *_: Participant("alice", "analyst"))
    parts = {"delegation": memoryview(b"d"), "study": memoryview(b"s")}
    request = Opened(
        Participant("alice", "analyst"), {"time": time.time(), "kind": "submit", "title": "t"}, parts, {}, ""
    )
    first, _ = queue.answer(request), queue.answer(request)
    with pytest.raises(InputError, match="2 of your studies wait here"):
        queue.answer(request)
    queue.answer(opened(kind="cancel", study=first["study"]))
    queue.answer(request)


def test_an_operator_disables_a_site_until_it_is_enabled(queue, tmp_path):
    with pytest.raises(InputError, match="no site 'b'"):
        queue.answer(opened("olga", "operator", kind="disable", site="b"))
    found = queue.answer(opened("olga", "operator", kind="disable", site="a"))["disabled"]
    assert found["a"].startswith("disabled by the operator olga since ")
    assert found["a"].endswith(" UTC"), "users in other time zones read it"
    assert disabled_sites(tmp_path) == found
    assert (
        queue.answer(opened("olga", "operator", kind="enable", site="a"))["disabled"] == {} == disabled_sites(tmp_path)
    )


def test_a_study_whose_file_is_damaged_while_the_coordinator_runs_is_recorded_again(queue, tmp_path):
    file = tmp_path / "studies" / ("a" * 12) / "about.json"
    whole = file.read_bytes()
    listed = queue.answer(opened(kind="list"))
    queue._check()
    for damage in (lambda: os.truncate(file, len(whole) // 2), lambda: os.truncate(file, 0), file.unlink):
        damage()
        queue._check()
        assert queue.answer(opened(kind="list")) == listed
        assert json.loads(file.read_bytes()) == json.loads(whole)


def test_a_damaged_file_enables_no_site(queue, tmp_path):
    found = queue.answer(opened("olga", "operator", kind="disable", site="a"))["disabled"]
    os.truncate(tmp_path / "disabled.json", 5)
    assert disabled_sites(tmp_path, found) == found
    (tmp_path / "disabled.json").unlink()
    assert disabled_sites(tmp_path, found) == {}


def test_a_full_disk_does_not_end_the_queue(queue, tmp_path, monkeypatch):
    """A study that can't be recorded is recorded when there is room again; the queue goes on, and users read why."""
    full = OSError(errno.ENOSPC, "No space left on device")
    failing = threading.Event()
    failing.set()

    def write(path, content):
        if failing.is_set():
            raise full
        kept(path, content)

    kept = study_queue.write_whole
    monkeypatch.setattr(study_queue, "write_whole", write)
    monkeypatch.setattr(study_queue, "write_json", lambda path, content: write(path, study_queue.json_bytes(content)))
    request = {"federation": "clinics", "kind": "cancel", "time": time.time(), "study": "a" * 12}
    queue._studies["a" * 12] = {"who": "alice", "state": "waiting"}
    monkeypatch.setattr(queue, "_start", lambda name: None)
    threading.Thread(target=queue.watch, daemon=True).start()
    with pytest.raises(RefusedError, match="the coordinator can't write it down: No space left on device"):
        queue.request("alice", "cancel", {}, Sealed(user(), PURPOSE, request, {}).to(""))
    failing.clear()
    file = tmp_path / "studies" / ("a" * 12) / "about.json"
    wait_until(lambda: json.loads(file.read_bytes())["state"] == "cancelled", "it is not recorded")


def test_a_study_whose_folder_is_deleted_is_forgotten(queue, tmp_path):
    shutil.rmtree(tmp_path / "studies" / ("a" * 12))
    queue._check()
    assert queue.answer(opened(kind="list")) == {"studies": []}

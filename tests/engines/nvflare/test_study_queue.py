"""The coordinator's queue of studies, without a server: what it makes of damaged files and odd requests."""

from __future__ import annotations

import json
import time

import pytest

from fedspan.engines.nvflare.client.study_client import PURPOSE
from fedspan.engines.nvflare.flare import RefusedError
from fedspan.engines.nvflare.server.study_queue import StudyQueue
from fedspan.engines.remote.messages.envelope import FORMAT, Opened, Sealed, _signed
from fedspan.engines.remote.messages.identity import Participant
from fedspan.errors import InputError
from fedspan.wire import as_array, encode
from tests.engines.remote.people import root_certificate, user


@pytest.fixture
def queue(tmp_path):
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "rootCA.pem").write_bytes(root_certificate())
    (tmp_path / "fedspan.json").write_text(json.dumps({"federation": "clinics", "sites": ["a"]}))
    for name, about in (("a" * 12, {"who": "alice", "state": "done"}), ("b" * 12, "[" * 100_000), ("c" * 12, "{}")):
        folder = tmp_path / "studies" / name
        folder.mkdir(parents=True)
        (folder / "about.json").write_text(about if isinstance(about, str) else json.dumps(about))
    return StudyQueue(tmp_path)


def opened(**head):
    return Opened(Participant("alice", "analyst"), {"time": time.time(), **head}, {}, {}, "")


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

"""Signed requests: which answers the coordinator accepts, and the serial numbers that it sends."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.remote.coordinator.signed_requests import Serials
from fedspan.engines.remote.messages.envelope import Sealed
from fedspan.engines.remote.site import site_worker
from fedspan.engines.remote.site.run_file import RunFile
from fedspan.errors import QuorumError
from fedspan.wire import decode, encode

from .network import Network, three_sites
from .people import identity
from .steps import count, odd, walk, wander


@pytest.fixture
def net(tmp_path):
    network = Network(three_sites(), tmp_path / "sites")
    yield network
    network.close()


def test_a_site_that_sends_more_than_is_allowed_is_not_read(net, monkeypatch):
    monkeypatch.setattr(
        site_worker.SiteWorker,
        "_reply",
        lambda self, opened, head, request, file: (
            {"kind": "reply", "rows": 1},
            {"reply": encode({"value": np.zeros(300_000)})},
        ),
    )
    with (
        net.federation(fs.Policy(max_bytes=100_000)) as fed,
        pytest.raises(QuorumError, match=r"refused: the message has .* more than the 100000 allowed"),
    ):
        fed.ask(odd, what="", where="")


def test_a_tampered_answer_is_refused(net):
    def meddle(site, what, data):
        if what == "request" or site != "b":
            return data
        outer = decode(data)
        if "part reply" not in outer:
            return data
        changed = outer["part reply"].copy()
        changed[-1] ^= 1
        return encode({**outer, "part reply": changed})

    net.meddle = meddle
    with net.federation() as fed:
        assert fed.ask(count).failed == {"b": "refused: the message's 'reply' is not the one that was signed"}


def test_a_tampered_request_is_refused_by_the_site(net):
    def meddle(site, what, data):
        outer = decode(data)
        if what == "answer" or site != "b" or "part payload" not in outer:
            return data
        return encode({**outer, "part payload": np.frombuffer(encode({"pull": 9.0}), dtype=np.uint8)})

    net.meddle = meddle
    with net.federation() as fed:
        failed = fed.ask(walk, pull=0.5).failed
        assert failed == {"b": "refused: the message's 'payload' is not the one that was signed"}


def test_answers_to_other_requests_and_of_other_sites_are_refused(net):
    kept = {}

    def meddle(site, what, data):
        if what == "request":
            return data
        kept[site] = [*kept.get(site, []), data]
        return {"a": kept["a"][-1], "b": kept.get("b", [b""])[0], "c": kept["a"][-1]}[site]

    with net.federation(fs.Policy(quorum=1)) as fed:
        fed.ask(count)
        net.meddle = meddle
        fed.ask(count)
        failed = fed.ask(count).failed
        assert failed["b"] == "stale: the answer is to another request"
        assert failed["c"] == "refused: the answer is signed by 'a', not by 'c'"


def test_a_message_of_another_run_is_refused(net):
    """The server stores a request and sends it to the sites again later, in another run."""
    net.keep_requests = True
    fed = net.federation()
    fed.run(wander, rounds=1)
    old = dict(net.requests[1])
    net.meddle = lambda site, what, data: old.get(site, data) if what == "request" else data
    with pytest.raises(QuorumError, match="stale: the answer is to another request"):
        fed.sum(count)


def test_a_clock_that_was_set_back_is_no_obstacle(net, monkeypatch):
    with net.federation() as fed:
        fed.ask(count)
        fed.engine.directory._requests._serials = Serials()
        earlier = time.time_ns() - 3600 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda: earlier)
        assert fed.sum(count)["n"] == 21
        assert fed.sum(count)["n"] == 21


def altered(net, attacker, change):
    """Let a site's answers to calls be what it signs after `change`, which gets and returns the head."""

    def meddle(site, what, data):
        outer = decode(data)
        head = decode(outer["head"].tobytes())
        if what == "request" or site != attacker or head["kind"] == "about":
            return data
        parts = {name[5:]: part.tobytes() for name, part in outer.items() if name.startswith("part ")}
        return Sealed(identity(attacker), "response", change(head), parts).to("")

    net.meddle = meddle


def test_a_false_serial_number_harms_its_sender_alone(net, tmp_path):
    """It claims the greatest number that is believed. The other sites get none of its numbers, also when resumed."""
    answers = []

    def claim(head):
        answers.append(head)
        stale = {"kind": "refused", "failure": "stale", "why": "", "again": False, "facts": "{}", "seen": 2**62 - 1}
        return {**head, **stale} if len(answers) == 1 else head

    policy = fs.Policy(quorum=2, run_deadline=60.0)
    for rounds in (1, 3):  # the second continues the first, in a process that knows nothing of it
        answers.clear()
        altered(net, "b", claim)
        fed = net.federation(policy, tmp_path / "run")
        with suppress(KeyboardInterrupt), fed.begin("two sums") as run:
            replies = [run.ask(walk, pull=0.1) for _ in range(rounds)]
            assert all({"a", "c"} <= set(one) for one in replies)
            files = [next((net.folder / site).glob("*.run")) for site in "ac"]
            copies = [RunFile(shutil.copy(file, tmp_path / f"{rounds}-{i}")) for i, file in enumerate(files)]
            assert all(copy.serial <= time.time_ns() for copy in copies)
            [copy.close() for copy in copies]
            if rounds == 1:
                raise KeyboardInterrupt
    assert "b" in replies[-1]


def test_sites_count_for_themselves():
    serials = Serials()
    first = serials.next("ab")
    assert first["a"] == first["b"]
    assert not serials.catch_up("a", first["a"] - 1)
    assert not any(serials.catch_up("a", odd) for odd in (True, 2.0**61, "9", None, 2**62, -1))
    assert serials.catch_up("a", 2**61)
    second = serials.next("ab")
    assert second["a"] == 2**61 + 1
    assert first["b"] < second["b"] <= time.time_ns()
    assert serials.next("ab")["a"] == 2**61 + 2

"""The parts that need no server: a call on its way, who leads where, messages between a site's processes."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import fedspan as fs

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install fedspan[nvflare]")
from fedspan.engines.nvflare.client.relay_groups import Gathering
from fedspan.engines.nvflare.server.relay_call import GONE, RelayCall
from nvflare.fuel.flare_api.api_spec import JobNotFound

from fedspan.engines.nvflare.client.relay_monitor import Keeper
from fedspan.engines.nvflare.client.relays import RelayJob, Relays
from fedspan.engines.nvflare.client.user_session import GoneError, Session
from fedspan.engines.nvflare.setup.console_events import event_of
from fedspan.engines.nvflare.setup.payload_packing import INLINE_LIMIT, pack, unpack
from fedspan.engines.nvflare.site import site_app
from fedspan.engines.nvflare.site import socket_frames as frames
from fedspan.engines.nvflare.site.site_app import SiteApp


def test_a_call_has_its_result_when_each_site_answered_failed_or_was_given_up():
    held = threading.Event()

    def call(site, request):
        if site == "slow":
            held.wait(10)
        if site == "broken":
            raise PermissionError("no")
        return request + site.encode()

    asked = RelayCall({"good": b"1", "broken": b"2", "slow": b"3"})
    with ThreadPoolExecutor(3) as threads:
        asked.ask(threads, call)
        assert not asked.result.done()
        asked.give_up(["slow"])
        result = asked.result.result(timeout=5)
        held.set()
    assert result == {"answers": {"good": b"1good"}, "lost": {"broken": "PermissionError: no", "slow": GONE}}


def test_a_late_answer_of_a_site_that_was_given_up_changes_nothing():
    asked, held = RelayCall({"slow": b""}), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asked.ask(threads, lambda site, request: held.wait(10) and b"late")
        asked.give_up(["slow"])
        held.set()
    assert asked.result.result(timeout=5) == {"answers": {}, "lost": {"slow": GONE}}


def test_each_site_has_the_newest_relay_that_leads_to_it():
    relays, old, new = Relays(), RelayJob("old", frozenset("ab")), RelayJob("new", frozenset("b"))
    relays.add(old)
    assert relays.starting() == {"a", "b"}
    relays.opened(old, "ab")
    relays.add(new)
    assert relays.starting() == {"b"}
    relays.opened(new, "b")
    assert (relays.home["a"], relays.home["b"]) == (old, new)
    relays.leave("a")
    assert relays.unused() == [old]
    assert relays.unused([old]) == []
    relays.ended(new, "it ended")
    assert relays.home == {}
    assert new.gone.result() == "it ended"


@pytest.mark.parametrize("size", [0, 10, INLINE_LIMIT + 1])
def test_a_parcel_holds_the_message(size):
    message = bytes(np.arange(size, dtype=np.uint8))
    parcel = pack(message)
    assert isinstance(parcel, bytes) == (size <= INLINE_LIMIT)
    assert unpack(parcel) == message


@pytest.mark.parametrize("parcel", ["text", np.zeros(3), np.zeros((2, 2), np.uint8), None])
def test_what_is_no_message_is_refused(parcel):
    with pytest.raises(TypeError, match="must be bytes"):
        unpack(parcel)


def test_frames_survive_the_socket_and_its_end():
    one, other = socket.socketpair()
    with one, other:
        frames.write_frame(one, b"")
        frames.write_frame(one, b"word" * 1000)
        assert frames.read_frame(other) == b""
        assert frames.read_frame(other) == b"word" * 1000
        one.sendall((5).to_bytes(8, "big") + b"ab")
        one.close()
        assert frames.read_frame(other) is None


def test_a_frame_that_is_too_long_is_refused_before_memory_is_taken():
    one, other = socket.socketpair()
    with one, other:
        one.sendall((2**60).to_bytes(8, "big"))
        with pytest.raises(ValueError, match="is longer than"):
            frames.read_frame(other)


def test_the_socket_of_a_deep_kit_is_named_from_here(tmp_path, monkeypatch):
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert frames.socket_path(deep) == "worker.sock"


def test_the_screen_tells_events_and_not_the_log():
    assert (
        event_of("Client: New client north@10.0.0.7 joined. Sent token: x", logging.INFO)
        == "north joined from 10.0.0.7"
    )
    assert event_of("conn_manager: Connection [CN00002] is created", logging.INFO) is None
    assert event_of("first line\nsecond", logging.CRITICAL) == "first line"


def test_connecting_without_nvflare_says_what_to_install(monkeypatch):
    monkeypatch.setattr("fedspan.engines.nvflare.setup.requirements.find_spec", lambda name: None)
    with pytest.raises(fs.errors.MissingPackageError, match=r"pip install fedspan\[nvflare\]"):
        fs.connect("kits/alice")


def test_import_fedspan_does_not_import_nvflare():
    code = "import fedspan, sys; sys.exit('nvflare' in sys.modules or 'cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class ServerStartedAnew:
    """A session with a server that has forgotten all jobs."""

    status = Session.status

    class _flare:  # noqa: N801
        @staticmethod
        def get_job_meta(job):
            raise JobNotFound(f"no such job: {job}")

    _guard = staticmethod(Session._guard)

    def command(self, job, **data):
        raise GoneError("no such job")


@pytest.mark.parametrize("ready", [True, False])
def test_a_relay_that_the_server_has_forgotten_is_let_go_of_even_while_it_starts(ready):
    keeper = Keeper.__new__(Keeper)
    keeper.changed, keeper.relays, keeper._gathering = threading.Condition(threading.RLock()), Relays(), Gathering()
    job = RelayJob("lost", frozenset("a"), ready=ready)
    keeper.relays.add(job)
    keeper._look_at(ServerStartedAnew(), job)
    assert keeper.relays.jobs == []
    assert job.gone.done()


def test_a_process_whose_parent_died_before_it_looked_ends_too():
    # The child looks at its parent when that is gone for sure: it then has another, who would never die.
    child = "import sys, time; sys.stdin.read(); from fedspan.engines.nvflare.setup.parent_death_watch import die_with_parent as d; d(); "
    child += "print('looked', flush=True); time.sleep(60); print('outlived', flush=True)"
    parent = "import subprocess, sys; from fedspan.engines.nvflare.setup.parent_death_watch import be_a_parent; be_a_parent(); "
    parent += f"subprocess.Popen([sys.executable, '-c', {child!r}])"
    run = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.wait(30) == 0
    said, _ = run.communicate("", timeout=20)  # the child's end closes its output
    assert said in ("looked\n", "")


def test_no_site_is_called_by_another_site(monkeypatch):
    monkeypatch.setattr(site_app, "collab", SimpleNamespace(caller="south"))
    with pytest.raises(PermissionError, match="only the federation's server may call a site"):
        SiteApp.answer(SiteApp.__new__(SiteApp), b"request")

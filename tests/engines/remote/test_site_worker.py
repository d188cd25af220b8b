"""What a site refuses, each with its reason, and what it sends instead of a reply."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import fedspan as fs
from fedspan.durable import append_file
from fedspan.engines.remote.messages.envelope import Sealed, open_sealed
from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.engines.remote.messages.request_head import call_head
from fedspan.engines.remote.site.site_worker import SiteWorker
from fedspan.errors import InputError, PolicyError
from fedspan.federation.calls.call import Call
from fedspan.federation.site.steps import find_step
from fedspan.owner.admission import Admission
from fedspan.wire import decode

from .people import authority, identity, user
from .steps import broken, count, leaving, objecting, walk
from .steps_here import worker_here

SITE = fs.Site("a", np.arange(12.0).reshape(4, 3))


class Owner(Admission):
    """An owner that allows some steps, and records what is judged and logged."""

    def __init__(self, allowed=("count", "walk"), largest=10**6):
        super().__init__(SITE)
        self.allowed, self.largest, self.seen = allowed, largest, []

    def check_call(self, request):
        self.seen.append(("judged", replace(request)))
        if request.step.rpartition(".")[2] not in self.allowed:
            raise PolicyError(f"the owner does not allow {request.step}")
        super().check_call(request)

    def release(self, request, size):
        self.seen.append(("released", size))
        if size > self.largest:
            raise PolicyError(f"a reply of {size} bytes is too large for this owner")

    def refused(self, request, outcome, why):
        self.seen.append((outcome, replace(request), why))


class Desk:
    """A site, and a user that writes to it."""

    def __init__(self, folder, site=SITE, make_worker=worker_here, **options):
        self.folder, self.options, self.site, self.make_worker = folder, options, site, make_worker
        self.worker = None
        self.open()

    def open(self):
        if self.worker is not None:
            self.worker.close()
        known = authority(["a", "b", "c"])
        self.worker = self.make_worker(self.site, self.folder, identity("a"), known, **self.options)

    def request(self, step=count, number=0, after=-1, who=None, run="r", kind="call", payload=None, over=None, **head):
        step = find_step(step) if not isinstance(step, str) else replace(find_step(count), id=step)
        call = Call(run, number, 5, step, payload or {}, ("a",))
        fields, parts = call_head(call, ["a"], {"a": after}, fs.Policy(deadline=60.0), 1)
        about = {"kind": kind, "federation": "clinics", "version": fedspan_version(), "run": run}
        about |= {"serial": time.time_ns(), **fields, **head, **(over or {})}
        return Sealed(who or user(), "request", about, parts)

    def answer(self, request):
        data = request if isinstance(request, bytes) else request.to("a")
        return open_sealed(self.worker.answer(data), authority(), "response", "", 2**28)

    def ask(self, *args, **options):
        found = self.answer(self.request(*args, **options))
        return decode(found.parts["reply"]) if found.head["kind"] == "reply" else found.head

    def why(self, *args, outcome="refused", **options):
        head = self.ask(*args, **options)
        assert head["kind"] == outcome, head
        return head["why"]


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path / "a")
    yield desk
    desk.worker.close()


def test_an_answer_names_what_it_answers(desk):
    request = desk.request(number=2)
    found = desk.answer(request)
    assert decode(found.parts["reply"]) == {"n": 4}
    assert found.sender.name == found.head["site"] == "a"
    assert (found.head["run"], found.head["number"], found.head["part"]) == ("r", 2, 0)
    assert found.head["request"] == request.digest


def test_only_users_with_the_role_run_steps(desk):
    assert "'mia' has the role 'viewer', which may not run steps" in desk.why(who=user("mia", "viewer"))
    assert "'b' is not a user of this federation" in desk.why(who=identity("b"))
    assert desk.ask(who=user("paul"), run="another") == {"n": 4}
    assert desk.ask(who=user("mia", "viewer"), kind="hello")["kind"] == "about"


def test_messages_for_others_are_refused(desk):
    assert "for b, c, not for a" in desk.why(sites=json.dumps({"b": -1, "c": -1}))
    assert "of another federation" in desk.why(federation="banks")
    assert "'kind' must be one of 'call'" in desk.why(kind="dance")


def test_a_run_belongs_to_who_began_it(desk):
    assert desk.ask() == {"n": 4}
    assert "the run is another user's, not one of 'bob'" in desk.why(who=user("bob"), number=1)
    assert "another user's" in desk.why(who=user("bob"), kind="end")


def test_another_version_is_refused_and_reported(desk):
    mine = fedspan_version()
    assert desk.why(version="9.0.1") == f"this site runs fedspan {mine}, and the request comes from fedspan 9.0.1"
    assert desk.ask(version="9.0.1", kind="hello")["kind"] == "about"


@pytest.mark.parametrize("restart", [False, True])
def test_a_replayed_request_is_refused(desk, restart):
    first, second = desk.request(walk, payload={"pull": 0.5}), desk.request(walk, 1, 0, payload={"pull": 0.5})
    assert desk.answer(first).head["kind"] == "reply"
    assert desk.answer(second).head["kind"] == "reply"
    if restart:
        desk.open()
    for request in (first, second):
        head = desk.answer(request).head
        assert (head["kind"], head["failure"], head["why"]) == (
            "refused",
            "stale",
            "this request, or a later one of its run, has been seen before",
        )


def test_requests_older_than_the_sites_memory_are_refused(desk):
    long_ago = time.time_ns() - 31 * 86400 * 10**9
    assert desk.why(serial=long_ago) == "this request is more than 30 days old"


@pytest.mark.parametrize("restart", [False, True])
def test_a_repeated_call_gets_the_reply_that_was_given(desk, restart):
    given = desk.ask(walk, payload={"pull": 0.5})
    if restart:
        desk.open()
    again = desk.ask(walk, payload={"pull": 0.5})
    assert again["steps"] == 1
    np.testing.assert_array_equal(again["position"], given["position"])
    assert desk.ask(walk, 1, 0, payload={"pull": 0.5})["steps"] == 2


def test_a_call_that_was_not_accepted_is_taken_back(desk):
    desk.ask(walk, 0, -1, payload={"pull": 0.5})
    desk.ask(walk, 1, 0, payload={"pull": 0.5})
    desk.open()
    assert desk.ask(walk, 2, 0, payload={"pull": 0.5})["steps"] == 2  # call 1 has not happened
    desk.open()
    assert "as of call 0, not of call 7" in desk.why(walk, 8, 7, outcome="failed", payload={"pull": 0.5})
    assert desk.ask(walk, 3, 2, payload={"pull": 0.5})["steps"] == 3


def test_a_step_that_fails_takes_the_state_nowhere(tmp_path):
    desk = Desk(tmp_path / "a", make_worker=SiteWorker)
    desk.ask(walk, 0, -1, payload={"pull": 0.5})
    why = desk.why(broken, 1, 0, outcome="failed")
    assert why == "step 'tests.engines.remote.steps.broken' raised RuntimeError, whose text stays at the site"
    desk.open()
    assert desk.ask(walk, 2, 0, payload={"pull": 0.5})["steps"] == 2
    assert "raised SystemExit" in desk.why(leaving, 3, 2, outcome="failed")
    assert desk.why(objecting, 3, 2, outcome="failed") == "this table has no column of numbers"


def test_a_disk_that_was_full_for_a_moment_changes_nothing(desk, monkeypatch):
    desk.ask(walk, 0, -1, payload={"pull": 0.5})
    whole = append_file._write

    def full(descriptor, parts, at):
        whole(descriptor, (b"".join(parts)[:20],), at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(append_file, "_write", full)
    assert "can't be written: No space left" in desk.why(walk, 1, 0, outcome="failed", payload={"pull": 0.5})
    monkeypatch.setattr(append_file, "_write", whole)
    assert desk.ask(walk, 1, 0, payload={"pull": 0.5})["steps"] == 2


def test_a_disk_that_is_full_when_a_reply_is_synced_is_named(desk, monkeypatch):
    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(append_file.AppendFile, "_to_disk", full)
    why = desk.why(walk, 0, -1, outcome="failed", payload={"pull": 0.5})
    assert "can't be written: No space left on device" in why
    monkeypatch.undo()
    assert desk.ask(walk, 0, -1, payload={"pull": 0.5})["steps"] == 1


def test_steps_that_are_not_installed_are_refused(desk):
    assert "'os.system' is not an installed step" in desk.why("os.system")
    assert "does not fit" in desk.why(walk)


def test_the_owner_judges_before_data_are_read_and_before_the_reply_leaves(tmp_path):
    owner = Owner()
    desk = Desk(tmp_path, admission=owner)
    assert desk.ask(walk, payload={"pull": 0.1})["steps"] == 1
    (_, request), (_, size) = owner.seen
    found = (request.user, request.role, request.run, request.number, request.kind, request.how, request.ran)
    assert found == ("alice", "analyst", "r", 0, "call", "ask", False)
    assert request.step == "tests.engines.remote.steps.walk"
    assert request.payload == {"pull": 0.1}
    assert size > 0
    owner.seen.clear()
    assert desk.why(broken, 1, 0) == "the owner does not allow tests.engines.remote.steps.broken"
    assert [entry[0] for entry in owner.seen] == ["judged", "refused"]
    owner.largest = 3
    assert "too large for this owner" in desk.why(count, 2, 0)
    assert owner.seen[-1][1].ran
    assert desk.why(who=user("mia", "viewer")) == owner.seen[-1][2]
    desk.answer(b"nonsense")
    assert owner.seen[-1][1].user == ""


def test_requests_are_measured_before_they_are_read(tmp_path):
    desk = Desk(tmp_path)
    desk.worker.max_bytes = 1000
    big = desk.answer(desk.request(payload={"x": np.zeros(400_000)}))
    assert big.head["why"].startswith("the message has 32")
    assert big.head["request"]  # so that its sender reads why, and not that the answer is stale


@pytest.mark.parametrize("threads", [0, -3, 10**6])
def test_no_number_of_threads_is_taken_on_faith(desk, threads):
    assert desk.why(threads=threads) == "the request's 'threads' must be a whole number from 1 to 1024"


def test_replies_are_measured_before_they_leave(desk):
    head = desk.ask(max_bytes=10)
    assert (head["kind"], head["failure"]) == ("refused", "oversize")
    assert head["why"] == "the reply has more than the 10 bytes allowed"


@pytest.mark.parametrize("missing", ["step", "sites", "transforms", "seed", "serial", "run", "threads", "deadline"])
@pytest.mark.parametrize("value", [None, "nonsense", 3, -1.5, "[" * 100_000])
def test_the_site_answers_whatever_a_head_holds(desk, missing, value):
    head = desk.answer(desk.request(over={missing: value})).head
    assert head["kind"] in ("refused", "failed", "reply")
    assert head["kind"] == "reply" or head["why"]
    assert desk.ask(run="r 2") == {"n": 4}


def test_a_late_call_does_not_overlap_the_next(desk, tmp_path):
    inside, leave = tmp_path / "inside", tmp_path / "leave"  # files: a step may run in another process

    @fs.step
    def slow(site):
        inside.touch()
        while not leave.exists():
            time.sleep(0.01)
        inside.unlink()
        return {"n": 1}

    @fs.step
    def quick(site):
        return {"alone": not inside.exists()}

    first = threading.Thread(target=desk.ask, args=(slow,), kwargs={"deadline": 600.0})
    first.start()
    while first.is_alive() and not inside.exists():
        time.sleep(0.01)
    head = desk.ask(quick, 1, -1, deadline=0.01)
    assert (head["why"], head["failure"], head["again"]) == ("this site is still busy with call 0", "late", True)
    found = desk.answer(desk.request(kind="hello"))
    assert b'"busy": "call 0"' in bytes(found.parts["about"])
    leave.touch()
    assert desk.ask(quick, 1, -1) == {"alone": True}
    first.join()


def test_other_data_do_not_go_on_with_a_run(desk):
    assert desk.ask() == {"n": 4}
    desk.site = fs.Site("a", np.ones((5, 3)))
    desk.open()
    assert "no longer those that the run began with" in desk.why(number=1)
    assert desk.ask(run="a new one") == {"n": 5}


def test_a_run_that_is_over_stays_over(desk):
    request = desk.request(walk, payload={"pull": 0.5})
    desk.answer(request)
    assert desk.ask(kind="end")["kind"] == "done"
    assert desk.why(number=1) == "the run is over at this site"
    desk.open()
    assert desk.why(number=1) == "the run is over at this site"
    assert desk.answer(request).head["failure"] == "stale"
    assert sum(path.stat().st_size for path in desk.folder.glob("*.run")) < 1000


def test_the_fingerprint_does_not_help_to_guess_rows(desk, tmp_path):
    shape, _, digest = SITE.fingerprint().rpartition("#")
    assert desk.worker.fingerprint.startswith(shape)
    assert digest not in desk.worker.fingerprint
    assert Desk(tmp_path / "other").worker.fingerprint != desk.worker.fingerprint
    before = desk.worker.fingerprint
    desk.open()
    assert desk.worker.fingerprint == before


def test_a_worker_has_the_name_of_its_certificate(tmp_path):
    with pytest.raises(InputError, match="'a', and its certificate is that of 'b'"):
        SiteWorker(SITE, tmp_path, identity("b"), authority())
    with pytest.raises(InputError, match="with the role 'analyst'"):
        SiteWorker(SITE, tmp_path, identity("a", "analyst"), authority())

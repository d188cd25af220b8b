"""Steps that never end, that take all memory or that crash: the worker survives, and answers the next request."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.remote.messages.refusals import StepLimitError
from fedspan.engines.remote.site import step_process
from fedspan.engines.remote.site.site_worker import SiteWorker
from fedspan.federation import FailureKind
from fedspan.federation.site.steps import find_step
from fedspan.owner.admission import Admission
from fedspan.owner.allowed_steps import AllowedSteps
from fedspan.owner.rules import Rules
from fedspan.privacy import Ledger, normal

from .network import Network, three_sites
from .test_site_worker import SITE, Desk

MEMORY = 2**28


@fs.step
def who_runs(site):
    site.state["calls"] = site.state.get("calls", 0) + 1
    return {"pid": site.cached("pid", os.getpid), "calls": site.state["calls"]}


@fs.step
def waiting(site):
    time.sleep(0.2)
    site.state["calls"] = site.state.get("calls", 0) + 1
    return {"calls": site.state["calls"]}


@fs.step
def endless(site):
    site.state["calls"] = -1
    while True:
        time.sleep(1.0)


@fs.step
def greedy(site):
    return {"n": len([np.ones(2**20) for _ in itertools.count()])}


@fs.step
def large_reply(site):
    return {"x": np.ones(MEMORY // 16)}


@fs.step
def crashing(site):
    os.kill(os.getpid(), signal.SIGSEGV)


@fs.step
def with_helper(site):
    """Start another process that outlives the step, and wait for ever."""
    child = os.fork()
    while True:
        time.sleep(1.0 if child else 0.1)


@fs.step(fewest=lambda site: next(number for number in itertools.count() if number < 0))
def endless_count(site):
    return {}


@fs.step
def endless_after_charge(site):
    key = site.charged(mu2=0.01)
    site.X + normal(key, (1,))
    while True:
        time.sleep(1.0)


@fs.step
def charged_sum(site):
    return {"x": site.X.sum() + float(normal(site.charged(mu2=0.01), (1,))[0])}


@pytest.fixture
def desk(tmp_path):
    rules = Rules(AllowedSteps(["installed"]), least_rows=1, step_memory=MEMORY, step_seconds=30)
    desk = Desk(tmp_path / "a", make_worker=SiteWorker, admission=Admission(SITE, rules))
    yield desk
    desk.worker.close()


def test_steps_run_in_one_other_process_that_keeps_what_they_computed(desk):
    first = desk.ask(who_runs)
    assert first["pid"] != os.getpid()
    assert desk.ask(who_runs, 1, 0) == {"pid": first["pid"], "calls": 2}
    desk.worker.close()
    wait_until_dead(first["pid"])


@pytest.mark.parametrize("step", [endless, with_helper])
def test_a_step_that_does_not_end_is_killed_and_the_next_request_answered(desk, step):
    before = desk.ask(who_runs)
    head = desk.ask(step, 1, 0, deadline=0.5)
    assert (head["kind"], head["failure"], head["again"]) == ("failed", FailureKind.OVER_LIMIT.value, False)
    assert head["why"] == f"step {step.__module__ + '.' + step.__name__!r} was ended: it took longer than 0.45 s"
    after = desk.ask(who_runs, 2, 0)
    assert after["calls"] == 2  # the killed step has not touched the state
    assert after["pid"] != before["pid"]
    wait_until_dead(before["pid"])


def test_no_request_sets_a_later_deadline_than_the_owner(tmp_path):
    rules = Rules(AllowedSteps(["installed"]), least_rows=1, step_seconds=3)
    desk = Desk(tmp_path / "a", make_worker=SiteWorker, admission=Admission(SITE, rules))
    assert "it took longer than 3 s" in desk.why(endless, outcome="failed", deadline=1e9)
    assert desk.ask(who_runs, 1)["calls"] == 1
    desk.worker.close()


@pytest.mark.parametrize("step", [greedy, large_reply])
def test_a_step_that_takes_too_much_memory_ends_and_the_next_request_is_answered(desk, step):
    head = desk.ask(step, deadline=60.0)
    assert (head["kind"], head["failure"]) == ("failed", FailureKind.OVER_LIMIT.value)
    assert "needed more memory than the 268,435,456 bytes allowed" in head["why"]
    assert desk.ask(who_runs, 1)["calls"] == 1


def test_a_step_that_crashes_takes_its_process_alone(desk):
    head = desk.ask(crashing, deadline=60.0)
    assert head["failure"] == FailureKind.OVER_LIMIT.value
    assert "its process died" in head["why"]
    assert desk.ask(who_runs, 1)["calls"] == 1


def test_counting_rows_for_the_owners_rules_is_limited_too(desk):
    assert desk.worker.admission.fewest == desk.worker.steps.fewest
    desk.worker.steps.begin(0.0, 0.0, 1)
    with pytest.raises(StepLimitError):
        desk.worker.admission.fewest(find_step(endless_count).id, {})
    assert desk.ask(who_runs)["calls"] == 1


def test_a_step_that_is_killed_after_a_charge_stays_charged(tmp_path):
    ledger = Ledger(tmp_path / "a.ledger", epsilon=3.0, delta=1e-5)
    desk = Desk(tmp_path / "a", fs.Site("a", np.ones((4, 3)), ledger=ledger), SiteWorker)
    assert "was ended" in desk.why(endless_after_charge, outcome="failed", deadline=5.0)
    assert [charge.what.rpartition(".")[2] for charge in ledger.charges] == ["endless_after_charge"]
    assert "x" in desk.ask(charged_sum, 1)
    assert len(Ledger(ledger.path, read_only=True).charges) == 2
    desk.worker.close()


def test_the_step_process_dies_with_a_worker_that_was_killed(tmp_path):
    reads, writes = os.pipe()
    worker = os.fork()
    if worker == 0:
        desk = Desk(tmp_path / "a", make_worker=SiteWorker)
        os.write(writes, str(desk.ask(who_runs)["pid"]).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(worker, 0)
    wait_until_dead(int(os.read(reads, 20)))
    Desk(tmp_path / "a", make_worker=SiteWorker).worker.close()  # the folder's lock is free


def test_a_process_that_was_killed_from_outside_is_replaced(desk):
    os.kill(desk.ask(who_runs)["pid"], signal.SIGKILL)
    assert desk.ask(who_runs, 1, 0)["calls"] == 2
    os.kill(desk.worker.steps._template.pid, signal.SIGKILL)  # as well the process that it was forked from
    assert desk.ask(who_runs, 2, 1)["calls"] == 3


def test_the_coordinator_learns_the_kind(tmp_path):
    with Network(three_sites()[:1], tmp_path, processes=True).federation(fs.Policy(deadline=15.0)) as fed:
        with pytest.raises(fs.errors.QuorumError) as caught:
            fed.ask(endless)
        assert caught.value.failed["a"].kind is FailureKind.OVER_LIMIT
        assert fed.ask(who_runs)["a"]["calls"] == 1


def test_the_default_is_half_of_the_memory():
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 2**20 < step_process.default_memory() <= machine // 2


def wait_until_dead(pid, seconds=60.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} still runs")


@fs.step(reveals="sums")
def noisy_share(site, sites: int):
    """Add a share of the noise, which a sum over enough sites hides."""
    site.hidden_among(sites, 0.5)
    return {"total": site.X.sum() + 0.5 * float(normal(site.charged(mu2=0.01, again=True), (1,))[0])}


@fs.step(reveals="sums")
def spoiling(site):
    return {"total": float("nan") if site.name == "a" else 1.0}


def test_a_summed_step_runs_in_the_process_and_keeps_to_the_workers_keys(tmp_path):
    ledgers = {name: Ledger(tmp_path / f"{name}.ledger", epsilon=3.0, delta=1e-5) for name in "abc"}
    network = Network(
        [fs.Site(name, np.ones((4, 3)), ledger=ledgers[name]) for name in "abc"], tmp_path, processes=True
    )
    with network.federation(fs.Policy(secure_sum=True, deadline=30.0)) as fed:
        assert abs(fed.sum(noisy_share, sites=2)["total"] - 36.0) < 20.0
        assert [len(ledger.charges) for ledger in ledgers.values()] == [1, 1, 1]
        with pytest.raises(fs.errors.QuorumError, match="of 3 sites is below the 3 that"):
            fed.sum(noisy_share, sites=3)
        with pytest.raises(fs.errors.QuorumError, match="knows 3 sites"):
            fed.sum(noisy_share, sites=4)
        with pytest.raises(fs.errors.FedspanError, match=r"out of range|finite"):
            fed.sum(spoiling)
        assert fed.sum(who_calls)["n"] == 12


@fs.step(reveals="sums")
def who_calls(site):
    return {"n": len(site)}


@pytest.mark.parametrize("which", ["worker", "steps"])
def test_a_process_that_was_stopped_longer_than_a_step_may_take_fails_no_call(tmp_path, which):
    reads, writes = os.pipe()
    worker = os.fork()
    if worker == 0:
        desk = Desk(tmp_path / "a", make_worker=SiteWorker)
        pid = desk.ask(who_runs)["pid"]
        os.write(writes, f"{pid}\n".encode())
        for number in range(1, 40):
            os.write(writes, f"{desk.ask(waiting, number, number - 1, deadline=10.0)['calls']}\n".encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as answers:
        pid = worker if which == "worker" else int(next(answers))
        next(answers)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(12.0)  # more than the ten seconds of the step
        with contextlib.suppress(ProcessLookupError):  # a stopped step process was replaced
            os.kill(pid, signal.SIGCONT)
        found = [int(line) for line in answers]
    os.waitpid(worker, 0)
    assert found[-1] == 40

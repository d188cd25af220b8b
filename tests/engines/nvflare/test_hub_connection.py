"""Kills in the middle of a run lose nothing: the final bytes are those of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import fedspan as fs
from fedspan.cli import main
from fedspan.engines.nvflare.client.hub_connection import AHEAD, LATE, SERVER, HubConnection
from fedspan.engines.remote.coordinator.signed_requests import Lost
from tests.engines.nvflare.conftest import HERE, SITES, kill, processes_of, rows_of, wait_until
from tests.engines.nvflare.studies import assert_report_again, state_of, study_at, wait_for_study

pytestmark = pytest.mark.slow

ROUNDS, SECONDS = 8, 0.1
WAITING = fs.Policy(quorum="all", deadline=20.0, run_deadline=600.0)


@pytest.fixture(scope="module")
def undisturbed(embedded, deployment):
    from steps_at_sites import drifted

    return drifted(embedded(policy=WAITING), ROUNDS, 0.0).tobytes()


def drift_under(connected, kill, ready=lambda: None):
    """Drift; `kill` is called in the middle of the fourth call, which begins when `ready` has returned."""
    from steps_at_sites import drifted

    def between(number):
        if number == 3:
            ready()
            threading.Timer(SECONDS / 2, kill).start()

    return drifted(connected(policy=WAITING), ROUNDS, SECONDS, between).tobytes()


def only_process(deployment, site, words):
    kit = str(deployment.kit(site))
    found = [process for process, command in processes_of(kit).items() if words in command]
    assert found, f"no process of {site} has {words!r} on its command line"
    forked = [process for process in found if parent_of(process) in found]  # these have their parent's command line
    return [process for process in found if process not in forked][-1]


def parent_of(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_worker_and_a_whole_site_are_killed_in_one_call(deployment, connected, undisturbed):
    def kill_all():
        os.kill(only_process(deployment, "south", "engines.nvflare.site.worker_process"), signal.SIGKILL)
        kill(deployment, "west")
        deployment.start("west", wait=False)

    assert drift_under(connected, kill_all) == undisturbed


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_server_is_killed_during_a_run_and_a_detached_study(deployment, connected, undisturbed, tmp_path, capsys):
    (tmp_path / "slowly.toml").write_text(
        'seed = 3\n[model]\nname = "FedPCA"\nn_components = 2\nsolver = "fedpg"\nmax_rounds = 60\ntol = 1e-12\n'
        '[federation]\nquorum = "all"\nrun_deadline = 120.0\n'
    )
    kit = str(deployment.kit("alice"))
    assert main(["run", str(tmp_path / "slowly.toml"), "--kit", kit, "--detach", "--hours", "1"]) == 0
    name = capsys.readouterr().out.split()[1]
    assert main(["fetch", kit, name, "--out", str(tmp_path / "early")]) == 2
    assert f"study {name} is " in capsys.readouterr().err

    def under_way():
        run = deployment.kit("coordinator") / "studies" / name / "results" / "run-000"
        wait_until(lambda: any(path.stat().st_size > 20_000 for path in run.glob("*")), f"{run} does not grow")

    def kill_coordinator():
        deployment.kill("coordinator")
        states.append(state_of(deployment, name))
        wait_until(lambda: not processes_of(deployment.kit("coordinator")), "processes of the coordinator live on")
        deployment.start("coordinator", wait=False)

    states = []
    assert drift_under(connected, kill_coordinator, under_way) == undisturbed
    assert states == ["running"]
    wait_for_study(deployment, name, "done")
    assert "slowly" in study_at(kit, name, capsys)
    assert main(["fetch", kit, name, "--out", str(tmp_path / "results")]) == 0
    fetched = {path.name for path in (tmp_path / "results").iterdir()}
    assert {"model.fedspan", "report.html", "summary.json", "study.toml", "run-000"} <= fetched
    fed = fs.LocalFederation([fs.Site(site, rows_of(site)) for site in SITES], seed=3)
    embedded = fs.FedPCA(2, solver="fedpg", max_rounds=60, tol=1e-12).fit(fed)
    assert fs.load(tmp_path / "results" / "model.fedspan").components_.tobytes() == embedded.components_.tobytes()
    assert_report_again(tmp_path / "results", "nvflare")


def test_the_users_process_is_killed_and_resumes(deployment, connected, undisturbed, tmp_path):
    from steps_at_sites import drifted

    program = (
        "import sys, fedspan as fs\n"
        "from steps_at_sites import drifted\n"
        "fed = fs.connect(sys.argv[1], policy=fs.Policy(quorum='all', deadline=20.0), run_dir=sys.argv[2])\n"
        f"drifted(fed, {ROUNDS}, {SECONDS}, lambda number: print(number, flush=True))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, [HERE, *sys.path]), ""])}
    command = [sys.executable, "-c", program, str(deployment.kit("alice")), str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as user:
        for line in user.stdout:
            if line.strip() == "4":
                time.sleep(SECONDS / 2)
                user.kill()
    resumed = connected(policy=WAITING, run_dir=tmp_path / "run")
    assert drifted(resumed, ROUNDS, SECONDS).tobytes() == undisturbed


def test_a_site_dies_and_a_run_continues_without_it(deployment, connected):
    from steps_at_sites import drift

    fed = connected(policy=fs.Policy(quorum=2, deadline=20.0))
    assert set(fed.ask(drift, shift=0.0, seconds=0.0).ok) == set(fed.sites)
    try:
        kill(deployment, "west")
        replies = [fed.ask(drift, shift=0.0, seconds=0.0) for _ in range(4)]
        assert all(set(one.failed) == {"west"} for one in replies)
        assert sum(LATE in one.failed["west"] for one in replies) <= 1  # later calls do not wait for it
    finally:
        deployment.start("west")  # the tests after this one need it
    wait_until(lambda: not fed.ask(drift, shift=0.0, seconds=0.0).failed, "west did not come back")


def test_a_new_connection_does_not_wait_for_a_site_that_is_paused(deployment, connection):
    """It seems to be connected. A call to it is lost, and it is back when it goes on."""
    process = deployment.processes["west"].pid
    os.kill(process, signal.SIGSTOP)
    try:
        wait_until(lambda: "west" not in connection.online(), "a silent site counts as online")
        assert connection.wait_for(["north", "south"], 300.0) == {"north", "south"}
    finally:
        os.kill(process, signal.SIGCONT)
    assert connection.wait_for(SITES, 300.0) == set(SITES)


class LargeAnswers:
    """A session with a hub whose sites all have large answers: `fetched` names them in order."""

    def __init__(self, stuck=""):
        self.fetched, self.stuck, self.goes_on = [], stuck, threading.Event()

    def request(self, channel, topic, head, body, limit, **way):
        if topic == "fetch":
            self.fetched.append(head["site"])
            if head["site"] in self.stuck:
                self.goes_on.wait(600.0)
        return {}, head["site"].encode() if topic == "fetch" else b""


def fetched(seconds, *sizes, stuck=""):
    """Return which answers are fetched, in order, where those of sites c, b and a are ready in this order.

    Those of the sites in `stuck` begin, and go on when all others have come.
    """
    connection = HubConnection.__new__(HubConnection)
    connection._changed, connection._calls, connection._have = threading.RLock(), {}, []
    connection._lost, connection._nudge, connection._session = set(), threading.Event(), LargeAnswers(stuck)
    answers = connection.call(dict.fromkeys("abc", b"a request"), seconds, 0.0)
    came = []

    def take():
        for answer in answers:
            came.append(answer)
            if len(came) == len(sizes) - len(stuck):
                connection._session.goes_on.set()

    waiting = threading.Thread(target=take)
    waiting.start()
    wait_until(lambda: connection._calls, "no call is under way")
    (call,) = connection._calls
    for site, size in zip("cba", sizes, strict=False):
        connection._take(SERVER, "answer", {"call": call, "site": site, "answer": "it", "size": size}, b"")
    waiting.join()
    return "".join(connection._session.fetched), dict(came)


def test_large_answers_are_fetched_in_the_order_of_their_sites():
    """So the user's process need not hold those that can't be added up yet, but for a few."""
    assert fetched(600.0, AHEAD + 1, AHEAD + 1, AHEAD + 1)[0] == "abc"
    order, came = fetched(600.0, AHEAD, 1, 1)
    assert order == "cab"
    assert came == {"a": b"a", "b": b"b", "c": b"c"}


def test_large_answers_do_not_wait_for_a_site_until_it_is_too_late():
    order, came = fetched(4.0, AHEAD + 1, AHEAD + 1)
    assert order == "bc"
    assert came["b"] == b"b"
    assert isinstance(came["a"], Lost)


@pytest.mark.parametrize("stuck", ["a", "ab", "c"])
def test_a_large_answer_that_stalls_holds_up_no_other(stuck):
    """A malicious site announces a large answer and does not deliver it, or a site is slow."""
    _, came = fetched(9.0, AHEAD, AHEAD, 1, stuck=stuck)
    assert came == {"a": b"a", "b": b"b", "c": b"c"}


def test_a_malicious_site_states_no_size_below_zero():
    assert fetched(9.0, -(2**40), AHEAD, AHEAD)[0] == "cab"

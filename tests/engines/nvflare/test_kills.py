"""Whoever is killed in the middle of a run, nothing is lost: the final bytes are those of an undisturbed run."""

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
from fedspan.engines.nvflare.client.nvflare_transport import NVFlareTransport
from tests.engines.nvflare.conftest import HERE, processes_of

pytestmark = pytest.mark.xdist_group("nvflare")

ROUNDS, SECONDS = 8, 0.1
PATIENT = fs.Policy(quorum="all", deadline=20.0, run_deadline=120.0)


@pytest.fixture(scope="module")
def undisturbed(embedded, here):
    from steps_at_sites import drifted

    return drifted(embedded(policy=PATIENT), ROUNDS, 0.0).tobytes()


def killed_in_mid_call(kill):
    """Return what a run calls between rounds: `kill` is called in the middle of the fourth."""

    def between(number):
        if number == 3:
            threading.Timer(SECONDS / 2, kill).start()

    return between


def drift_under(connected, kill):
    from steps_at_sites import drifted

    return drifted(connected(policy=PATIENT), ROUNDS, SECONDS, killed_in_mid_call(kill)).tobytes()


def only_process(here, site, words):
    kit = str(here.kit(site))
    found = [
        process
        for process in processes_of(kit)
        if words in Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    ]
    assert found, f"no process of {site} has {words!r} on its command line"
    return found[-1]


@pytest.mark.parametrize("process", ["engines.nvflare.worker_process", "nvflare.private.fed.app.client.worker_process"])
def test_a_worker_is_killed(here, connected, undisturbed, process):
    def kill():
        os.kill(only_process(here, "south", process), signal.SIGKILL)

    assert drift_under(connected, kill) == undisturbed


def test_a_whole_site_is_killed_and_started_anew(here, connected, undisturbed):
    def kill():
        here.kill("west")
        time.sleep(1.0)
        here.start_site("west", wait=False)

    assert drift_under(connected, kill) == undisturbed


def test_the_server_is_killed_and_started_anew(here, connected, undisturbed):
    def kill():
        here.kill("coordinator")
        time.sleep(1.0)
        here.start_coordinator(wait=False)

    assert drift_under(connected, kill) == undisturbed


def test_the_users_process_is_killed_and_resumes(here, connected, undisturbed, tmp_path):
    from steps_at_sites import drifted

    program = (
        "import sys, fedspan as fs\n"
        "from steps_at_sites import drifted\n"
        "fed = fs.connect(sys.argv[1], policy=fs.Policy(quorum='all', deadline=20.0), run_dir=sys.argv[2])\n"
        f"drifted(fed, {ROUNDS}, {SECONDS}, lambda number: print(number, flush=True))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, [HERE, *sys.path]), ""])}
    command = [sys.executable, "-c", program, str(here.kit("alice")), str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as user:
        for line in user.stdout:
            if line.strip() == "4":
                time.sleep(SECONDS / 2)
                user.kill()
    resumed = connected(policy=PATIENT, run_dir=tmp_path / "run")
    assert drifted(resumed, ROUNDS, SECONDS).tobytes() == undisturbed


def test_with_a_lower_quorum_the_run_goes_on_and_takes_the_site_back(here, connected):
    from steps_at_sites import drift

    fed = connected(policy=fs.Policy(quorum=2, deadline=20.0))
    assert set(fed.ask(drift, shift=0.0, seconds=0.0).ok) == set(fed.sites)
    here.kill("west")
    time.sleep(1.0)  # its processes follow it within a second
    begun = time.monotonic()
    replies = [fed.ask(drift, shift=0.0, seconds=0.0) for _ in range(4)]
    assert all(set(one.failed) == {"west"} for one in replies)
    assert time.monotonic() - begun < 2 * 20.0  # one deadline at most, not one for each call
    here.start_site("west")
    until = time.monotonic() + 120.0
    while (back := fed.ask(drift, shift=0.0, seconds=0.0)).failed:
        assert time.monotonic() < until, "west did not come back"
        time.sleep(0.5)
    assert set(back.ok) == set(fed.sites)


def test_a_site_that_dies_while_a_way_is_being_opened_does_not_keep_the_others(here, way):
    before = len(here.said("west"))
    transport = NVFlareTransport(here.kit("carol"))
    try:
        until = time.monotonic() + 120.0
        while "a run began" not in here.said("west")[before:]:
            assert time.monotonic() < until, "no way is being opened"
            time.sleep(0.02)
        here.kill("west")
        assert transport.wait_for(None, 100.0) == {"north", "south"}
        assert transport.why_not("west") in ("west does not answer", "west is not connected")
        here.start_site("west")
    finally:
        transport.close()
    assert way.wait_for(("west",), 120.0) == {"west"}, way.why_not("west")

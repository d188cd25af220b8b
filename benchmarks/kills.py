"""Kills and pauses of every kind of process, at random moments of real studies: are the results the embedded bytes?

Three sites and a coordinator as processes of their own. ``FEDSPAN_KILLS`` (24) is the number of disturbances,
``FEDSPAN_KILLS_SEED`` (0) decides about their moments. The longest time without a new entry in the run's journal is
that of the disturbance; of a pause, what is left of it without the pause itself.
"""

from __future__ import annotations

import importlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

import fedspan as fs
from fedspan.engines.nvflare.client.study_client import fetch_study, submit_study
from fedspan.engines.nvflare.setup.local_deployment import LocalDeployment

SITES = ("north", "south", "west")
STUDIES = ("FedPG", "secure sums", "detached")
VICTIMS = ("coordinator", "site", "worker", "steps", "user")
ROUNDS = 300
#: Seconds that a process is stopped, at most, and that a study may take in all.
PAUSE, LIMIT = 20.0, 400.0
USER = """
import sys, warnings
import numpy as np
import fedspan as fs
from benchmarks.kills import found, policy
warnings.simplefilter("ignore")
study, kit, run_dir, out = sys.argv[1:]
with fs.connect(kit, policy=policy(study), run_dir=run_dir, seed=3) as fed:
    print("connected", flush=True)
    np.save(out, found(study, fed))
"""
STEPS = """
import numpy as np
import fedspan as fs


@fs.step("kills.mixed", reveals="sums")
def mixed(site, shift: np.ndarray):
    past = site.state.get("past", np.zeros(3, dtype=np.int64))
    site.state["past"] = (5 * past + len(site) + shift + site.rng.integers(1000, size=3)) % 2**20
    return {"past": site.state["past"]}


def totals(fed, rounds):
    def protocol(fed):
        shift = np.zeros(3, dtype=np.int64)
        for _ in range(rounds):
            shift = fed.sum(mixed, shift=shift)["past"] % 2**20
        return shift

    return fed.run(protocol)
"""
TEXT = f"""
seed = 3
[model]
name = "FedPCA"
n_components = 2
solver = "fedpg"
max_rounds = {ROUNDS}
tol = 1e-300
[federation]
quorum = "all"
deadline = 20.0
"""


def policy(study: str) -> fs.Policy:
    return fs.Policy(quorum="all", deadline=20.0, secure_sum=study == "secure sums")


def found(study: str, fed: fs.Federation) -> np.ndarray:
    """Return the result of a study: of FedPG, or of secure sums of whole numbers, which have no last bit to differ."""
    if study == "secure sums":
        return importlib.import_module("kill_steps").totals(fed, ROUNDS // 4)
    return fs.FedPCA(2, solver="fedpg", max_rounds=ROUNDS, tol=1e-300).fit(fed).components_


def rows_of(site: str) -> np.ndarray:
    rng = np.random.default_rng(SITES.index(site))
    return rng.normal(size=(80, 6)) @ np.diag([5.0, 4.0, 3.0, 1.0, 1.0, 1.0])


class Trial:
    """One study and one disturbance of it."""

    def __init__(self, here: LocalDeployment, study: str, victim: str, stop: bool, moment: float, pause: float) -> None:
        self.here, self.study, self.victim, self.stop = here, study, victim, stop
        self.moment, self.pause = moment, pause
        self.folder = Path(tempfile.mkdtemp(dir=here.folder))
        self.user: subprocess.Popen[str] | None = None
        self.name = ""

    def run(self) -> tuple[np.ndarray, float]:
        """Return the result, and the longest time in which the study did not go on."""
        journal = self._begin()
        silence = Silence(journal)
        wait_until(lambda: silence.size() > 5000)
        time.sleep(self.moment)
        silence.start()
        self._disturb()
        result = self._end()
        silence.stopped.set()
        return result, max(0.0, silence.longest - (self.pause if self.stop else 0.0))

    def _begin(self) -> Path:
        if self.study == "detached":
            self.name = submit_study(self.here.kit("alice"), "a trial", TEXT, 1.0)
            return self.here.kit("coordinator") / "studies" / self.name / "results"
        self._start_user()
        return self.folder

    def _start_user(self) -> None:
        command = [sys.executable, "-c", USER, self.study, self.here.kit("alice"), self.folder / "run"]
        self.user = subprocess.Popen([*map(str, command), str(self.folder / "found.npy")], stdout=subprocess.DEVNULL)

    def _disturb(self) -> None:
        if self.victim == "user" and self.study == "detached":
            process = command_line(self.here, "coordinator", self.name)[0]
        elif self.victim == "user":
            assert self.user is not None
            process = self.user.pid
        elif self.victim in ("worker", "steps"):
            workers = command_line(self.here, "south", "site.worker_process")
            chain = sorted(workers, key=lambda one: depth(one, workers))  # the worker, the template, the step process
            process = chain[0] if self.victim == "worker" else chain[-1]
        else:
            process = self.here.processes["south" if self.victim == "site" else self.victim].pid
        if self.stop:
            os.kill(process, signal.SIGSTOP)
            time.sleep(self.pause)
            with suppress(ProcessLookupError):  # a step process that takes too long is replaced
                os.kill(process, signal.SIGCONT)
        elif self.victim in ("site", "coordinator"):
            name = "south" if self.victim == "site" else self.victim
            self.here.kill(name)
            wait_until(lambda: not command_line(self.here, name, str(self.here.kit(name))))
            self.here.start(name, wait=False)
        else:
            os.kill(process, signal.SIGKILL)
            if self.victim == "user" and self.user is not None:
                self.user.wait()
                self._start_user()

    def _end(self) -> np.ndarray:
        if self.user is not None:
            if self.user.wait(LIMIT):
                raise RuntimeError(f"the user's process ended with {self.user.returncode}")
            return np.load(self.folder / "found.npy")
        about = self.here.kit("coordinator") / "studies" / self.name / "about.json"
        wait_until(lambda: '"done"' in about.read_text() or '"failed"' in about.read_text())
        for again in range(60):
            try:
                fetch_study(self.here.kit("alice"), self.name, self.folder / "fetched")
                break
            except fs.errors.FedspanError:
                if again == 59:
                    raise
                time.sleep(1.0)
        return fs.load(self.folder / "fetched" / "model.fedspan").components_


class Silence:
    """The longest time in which the files of a folder did not grow, since its start."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.longest, self.stopped = folder, 0.0, threading.Event()

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("journal*"))

    def start(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        size, when = self.size(), time.monotonic()
        while not self.stopped.wait(0.05):
            if (now := self.size()) != size:
                self.longest = max(self.longest, time.monotonic() - when)
                size, when = now, time.monotonic()


def depth(process: int, among: list[int]) -> int:
    parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return 1 + depth(parent, among) if parent in among else 0


def command_line(here: LocalDeployment, name: str, words: str) -> list[int]:
    """Return the processes of a participant that have these words on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            text = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
        except OSError:
            continue
        if words.encode() in text and f"{here.kit(name)}".encode() in text:
            found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"no progress in {LIMIT:g} s")
        time.sleep(0.05)


def main() -> dict[str, float]:
    number, seed = int(os.environ.get("FEDSPAN_KILLS", "24")), int(os.environ.get("FEDSPAN_KILLS_SEED", "0"))
    rng = random.Random(seed)
    kinds = list(itertools.product(STUDIES, VICTIMS, (False, True)))
    rng.shuffle(kinds)
    folder = Path(tempfile.mkdtemp(prefix="fedspan-kills-"))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, sys.path)])
    sys.path.insert(0, str(folder))
    (folder / "kill_steps.py").write_text(STEPS)
    tomls = {}
    for site in SITES:
        (folder / site).mkdir()
        np.savez(folder / site / "rows.npz", X=rows_of(site))
        tomls[site] = folder / site / "site.toml"
        tomls[site].write_text(
            f'[site]\nname = "{site}"\nmodules = ["kill_steps"]\n[data]\nfile = "rows.npz"\n'
            '[rules]\nlevel = "trusted"\nsteps = ["summaries", "single rows", "kills.mixed"]\n'
        )
    expected = {}
    for study in STUDIES:
        local = fs.LocalFederation([fs.Site(site, rows_of(site)) for site in SITES], seed=3, policy=policy(study))
        expected[study] = found(study, local).tobytes()
    equal, kills, pauses = 0, [0.0], [0.0]
    with LocalDeployment(folder / "fed", "kills", tomls) as here:
        here.start()
        for (study, victim, stop), n in zip(itertools.cycle(kinds), range(number), strict=False):
            for name in ("coordinator", *SITES):  # those that were killed have joined again
                here.wait_until(name, f"{name} joined" if name in SITES else "the coordinator is up")
            trial = Trial(here, study, victim, stop, rng.uniform(0.0, 3.0), rng.uniform(1.0, PAUSE))
            began = time.monotonic()
            try:
                result, silence = trial.run()
                same, why = result.tobytes() == expected[study], ""
                (pauses if stop else kills).append(silence)
            except Exception as error:
                same, silence, why = False, 0.0, f" {type(error).__name__}: {error}"
            equal += same
            what = f"stopped for {trial.pause:.0f} s" if stop else "killed"
            took = time.monotonic() - began
            print(f"{n + 1:3} {study}, {victim} {what}: {'equal' if same else 'DIFFERENT' + why}, "
                  f"{silence:.1f} s without progress, {took:.0f} s in all", flush=True)  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)
    summary = {"equal": equal, "of": number, "longest silence after a kill, s": max(kills)}
    summary["longest silence after a pause has ended, s"] = max(pauses)
    print(summary)
    return summary

"""The guide "Deploy between hospitals", its files and commands copied literally: CSV, Parquet and PostgreSQL sites."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[nvflare]' in a checkout")
pytest.importorskip("psycopg", reason='psycopg is not installed: pip install ".[sql]"')

import fedspan as fs
from fedspan.cli import main
from fedspan.engines.nvflare.setup.local_deployment import _free_port
from tests.owner.postgres_server import PASSWORD, programs, running_server

from .conftest import wait_until

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "between-hospitals.md"
SITES = ("north", "south", "west")


def blocks():
    """Return the files of the guide by a text in each, and its commands in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
    files = [text for kind, text in found if kind == "toml"]
    commands = [line for kind, text in found if not kind for line in text.splitlines() if line.startswith("fedspan ")]
    return files, commands


def rows(name):
    rng = np.random.default_rng(SITES.index(name))
    return pd.DataFrame({"age": rng.integers(20, 90, size=60), "dose": rng.normal(5.0, 1.0, size=60).round(3)})


class Machines:
    """A folder for each machine, and the processes that run on it."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = {}
        for name in ("authority", "coordinator", "alice", *SITES):
            (folder / name).mkdir()

    def run(self, machine, command):
        """Run a command to its end, and return what it printed."""
        shown = io.StringIO()
        with contextlib.chdir(self.folder / machine), contextlib.redirect_stdout(shown):
            code = main(shlex.split(command)[1:])
        assert code == 0, (machine, command, shown.getvalue())
        return shown.getvalue()

    def start(self, machine, command):
        """Start a command that runs on."""
        with (self.folder / machine / "screen").open("w") as screen:
            self.processes[machine] = subprocess.Popen(
                [sys.executable, "-m", *shlex.split(command)], cwd=self.folder / machine, stdin=subprocess.DEVNULL,
                stdout=screen, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def wait_for(self, machine, until):
        """Wait until a machine's process prints a line."""
        file = self.folder / machine / "screen"

        def printed():
            assert self.processes[machine].poll() is None, file.read_text()
            return until in file.read_text()

        wait_until(printed, f"{machine} does not print {until!r}", 300.0)

    def stop(self):
        for process in self.processes.values():
            process.send_signal(signal.SIGINT)
        for process in self.processes.values():
            process.wait(300)


@pytest.mark.skipif(programs() is None, reason="PostgreSQL's server is not installed")
def test_three_hospitals_deploy_by_the_guide_and_run_a_study(tmp_path, monkeypatch):
    monkeypatch.setenv("VISITS_PASSWORD", PASSWORD)
    files, commands = blocks()
    tmp_path /= "folders-whose-names-are-longer-than-the-path-of-a-socket-may-be-" * 2
    tmp_path.mkdir()
    machines = Machines(tmp_path)

    def take(start):
        """Return the next command of the guide, which must begin with these words."""
        assert commands[0].startswith(start), (commands[0], start)
        return commands.pop(0)

    def at_each(command):
        for site in SITES:
            yield site, command.replace("north", site)

    def send(file, *to):
        for machine in to:
            shutil.copy(file, tmp_path / machine)

    plan, *site_files, study = files
    plan = plan.replace("coordinator.example.org:8002", f"127.0.0.1:{_free_port()}")
    (tmp_path / "authority" / "fed.toml").write_text(plan)
    machines.run("authority", take("fedspan federation init"))
    machines.run("coordinator", take("fedspan coordinator enroll"))
    for site, command in at_each(take("fedspan site enroll")):
        machines.run(site, command)
    machines.run("alice", take("fedspan user enroll"))
    for name in ("coordinator", "alice", *SITES):
        send(tmp_path / name / f"{name}.request", "authority")
    machines.run("authority", take("fedspan federation approve"))
    send(tmp_path / "authority" / "kits" / "authority" / "members.json", "coordinator", "alice", *SITES)
    machines.run("coordinator", take("fedspan coordinator join"))
    for site, command in at_each(take("fedspan site join")):
        machines.run(site, command)
    machines.run("alice", take("fedspan user join"))
    assert not list((tmp_path / "authority").rglob("client.key"))

    rows("north").to_csv(tmp_path / "north" / "visits.csv", index=False)
    rows("south").to_parquet(tmp_path / "south" / "visits.parquet")
    with running_server(programs()) as server:
        cells = ", ".join(f"({i}, {age}, {dose})" for i, (age, dose) in enumerate(rows("west").to_numpy().tolist()))
        server.execute("CREATE TABLE visits (id int, age int, dose float)", f"INSERT INTO visits VALUES {cells}")
        for site, text in zip(SITES, site_files, strict=True):
            text = text.replace("reader@127.0.0.1:5432/records", f"owner@127.0.0.1:{server.port}/postgres")
            (tmp_path / site / "site.toml").write_text(text)
        for site, command in at_each(take("fedspan site check")):
            assert "no problems" in machines.run(site, command)
        try:
            machines.start("coordinator", take("fedspan coordinator start"))
            for site, command in at_each(take("fedspan site start")):
                machines.start(site, command)
            for site in SITES:
                machines.wait_for(site, f"{site} joined the federation")
            shown = machines.run("alice", take("fedspan federation status"))
            assert shown.count("online") == len(SITES), shown
            (tmp_path / "alice" / "study.toml").write_text(study)
            machines.run("alice", take("fedspan run study.toml"))
            found = fs.load(tmp_path / "alice" / "results" / "model.fedspan")
            machines.run("alice", take("fedspan run study.toml --kit kits/alice --detach"))
            assert "study" in machines.run("alice", take("fedspan status"))
        finally:
            machines.stop()
    assert commands == []
    sites = [fs.Site(site, rows(site).astype({"age": float}).to_numpy()) for site in SITES]
    embedded = fs.LocalFederation(sites, policy=fs.Policy(secure_sum=fs.federation.SecureSum(least=3)))
    expected = fs.FedPCA(2).fit(fs.FedStandardScaler().fit(embedded).transform(embedded))
    np.testing.assert_allclose(found.components_, expected.components_, atol=1e-9)

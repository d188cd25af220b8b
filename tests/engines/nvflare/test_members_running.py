"""Sites come, are copied, get another key and leave while a study of secure sums runs; no other process restarts."""

from __future__ import annotations

import shutil
import threading

import pytest

import fedspan as fs
from fedspan.cli import main

from .conftest import SITES, kill, site_toml, wait_until

pytestmark = pytest.mark.slow


class Study(threading.Thread):
    """Runs of secure sums one after the other, until it is stopped; `runs` has the sites of each, and who failed."""

    def __init__(self, kit):
        super().__init__(daemon=True)
        self.kit, self.stopped, self.runs, self.error = kit, threading.Event(), [], None

    def run(self):
        try:
            policy = fs.Policy(secure_sum=True, quorum="majority")
            with fs.connect(self.kit, policy=policy) as fed:
                self.sites = fed.sites
                while not self.stopped.wait(0.2):  # the others need the processor, too
                    model = fs.FedPCA(2, solver="subspace_iteration", max_rounds=8, tol=1e-300, random_state=0)
                    self.runs.append({site for call in model.fit(fed).run_.calls[-1:] for site in call.answered})
        except Exception as error:
            self.error = error

    def until(self, sites, what):
        """Wait until a run that has just begun ends with these sites."""
        first = len(self.runs) + 1

        def found():
            assert self.error is None, self.error
            return any(run == set(sites) for run in self.runs[first:])

        wait_until(found, what, 300.0)


def test_a_site_is_added_copied_replaced_and_removed_during_a_study(deployment, connection, tmp_path, capsys):
    assert connection.wait_for(SITES, 300.0) == set(SITES)
    hq, members = tmp_path / "hq" / "authority", tmp_path / "hq" / "authority" / "members.json"
    shutil.copytree(deployment.kit("authority"), hq)
    before = {name: process.pid for name, process in deployment.processes.items()}

    def sign(*command):
        assert main(["federation", *command, "--authority", str(hq)]) == 0
        assert main(["coordinator", "join", str(deployment.kit("coordinator")), str(members)]) == 0

    def enroll(folder):
        request = str(tmp_path / "east.request")
        assert main(["site", "enroll", "east", "--kit", str(folder), "--request", request]) == 0
        return request

    deployment._sites["east"] = site_toml("north", tmp_path / "owner")
    deployment._sites["east"].write_text(deployment._sites["east"].read_text().replace('"north"', '"east"'))
    kit = deployment.kit("east")
    try:
        sign("approve", enroll(kit), "--add")
        assert main(["site", "join", str(kit), str(members)]) == 0
        deployment.start("east", wait=False)
        deployment.wait_until("east", "east joined the federation", 300.0)
        study = Study(deployment.kit("alice"))
        study.start()
        study.until({*SITES, "east"}, "the new site is in no study")

        shutil.copytree(kit, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock"))
        assert main(["site", "start", str(kit), "--config", str(deployment._sites["east"])]) == 2
        assert "is in use by another process" in capsys.readouterr().err
        deployment._start("copy", "site", "start", str(tmp_path / "copy"), "--config", str(deployment._sites["east"]))
        assert deployment.processes.pop("copy").wait(300) == 3
        assert "a process with another copy of the kit of 'east' is connected" in deployment.output("copy")
        deployment.wait_until("east", "another process with a copy of this kit", 120.0)
        assert "a process with another copy of the kit of 'east'" in deployment.output("coordinator")
        study.until({*SITES, "east"}, "the first process is not back")

        certificate = (kit / "startup" / "client.crt").read_bytes()
        sign("renew", "east")
        wait_until(
            lambda: (kit / "startup" / "client.crt").read_bytes() != certificate, "the certificate is not renewed"
        )

        key, starts = (kit / "startup" / "client.key").read_bytes(), deployment.output("east").count("Ctrl-C stops it")
        sign("approve", enroll(kit), "--replace")
        wait_until(lambda: (kit / "startup" / "client.key").read_bytes() != key, "the key is not replaced", 300.0)
        restarted = lambda: deployment.output("east").count("Ctrl-C stops it") > starts  # noqa: E731
        wait_until(restarted, "the site does not start again", 300.0)
        deployment.wait_until("east", "east joined the federation", 300.0)
        study.until({*SITES, "east"}, "the site with the new key is in no study")

        sign("remove", "east")
        assert deployment.processes.pop("east").wait(120) == 3
        assert "this site has left the federation" in deployment.output("east")
        study.until(SITES, "the study does not go on without the removed site")
        study.stopped.set()
        study.join(120)
        assert study.error is None
    finally:
        if "east" in deployment.processes:
            kill(deployment, "east")
        deployment._sites.pop("east", None)
    assert {name: process.pid for name, process in deployment.processes.items()} == before
    assert connection.wait_for(SITES, 300.0) == set(SITES)

"""Sites as processes of their own, killed for real."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Client

import pytest

import fedspan as fs
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.coordinator.signed_requests import Lost
from tests.laws.protocol_laws import as_bytes

from .people import authority, identity, key_of, pem, root_certificate, user
from .runs import RUNS, expected


class Processes:
    """A transport to sites in processes of their own; now and then it has one of them killed."""

    def __init__(self, folder, kills):
        self.folder, self.left, self.sends = folder, kills, 0
        self.sites = ("a", "b", "c")
        self.running = {}
        self.random = random.Random(0)
        for site in self.sites:
            (folder / site).mkdir()
            (folder / site / "certificate").write_bytes(identity(site).certificate)
            (folder / site / "key").write_bytes(pem(key_of(site)))
            (folder / site / "root").write_bytes(root_certificate())
            self.start(site)
        self.ports = {site: self.port(site) for site in self.sites}

    def start(self, site):
        program = [sys.executable, "-m", "tests.engines.remote.site_process", site, str(self.folder / site)]
        self.running[site] = subprocess.Popen(program, stdout=subprocess.PIPE)

    def port(self, site):
        """Wait until a site listens; return its port."""
        return int(self.running[site].stdout.readline())

    def kill(self, site):
        self.running[site].send_signal(signal.SIGKILL)

    def send(self, requests, deadline):
        self.sends += 1
        timer = None
        if self.left and self.sends % 3 == 0:
            self.left -= 1
            victim = self.random.choice(sorted(requests))
            timer = threading.Timer(self.random.uniform(0.0, 0.01), self.kill, [victim])
            timer.start()
        answers = {}
        for site, request in requests.items():
            try:
                with Client(("127.0.0.1", self.ports[site])) as connection:
                    connection.send_bytes(request)
                    answers[site] = connection.recv_bytes() if connection.poll(deadline) else Lost("late")
            except OSError as error:
                answers[site] = Lost(f"the connection broke: {type(error).__name__}")
            except EOFError:
                answers[site] = Lost("the site ended")
        if timer is not None:
            timer.join()
        return iter(answers.items())

    def online(self):
        for site, process in list(self.running.items()):
            if process.poll() is not None:
                process.stdout.close()
                self.start(site)
                self.ports[site] = self.port(site)
        return frozenset(self.sites)

    def close(self):
        for process in self.running.values():
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.mark.slow
def test_processes_that_are_killed_change_no_byte(tmp_path):
    name = "fedpg"  # its sites keep state from call to call
    network = Processes(tmp_path, kills=3)
    try:
        protocol, options = RUNS[name]
        policy = fs.Policy(quorum="all", deadline=20.0, run_deadline=600.0)
        fed = RemoteFederation(network, user(), authority(), 1, policy, tmp_path / "run")
        assert as_bytes(fed.run(protocol, **options)) == expected(name)
        assert network.left == 0
    finally:
        network.close()

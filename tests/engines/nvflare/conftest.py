"""One real federation for all of these tests: a coordinator and three sites as processes, mutual TLS on loopback."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fedspan as fs

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[nvflare]' in a checkout")

from fedspan.engines.nvflare.client.nvflare_transport import NVFlareTransport
from fedspan.engines.nvflare.setup.local_deployment import LocalDeployment
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.messages.identity import Authority, Identity

HERE = Path(__file__).parent
SITES = ("north", "south", "west")


def rows_of(name):
    rng = np.random.default_rng(SITES.index(name))
    return rng.normal(size=(60 + 10 * SITES.index(name), 6)) @ np.diag([5.0, 4.0, 3.0, 1.0, 1.0, 1.0])


def site_toml(name, folder):
    folder.mkdir(parents=True)
    np.savez(folder / "rows.npz", X=rows_of(name))
    steps = '["summaries", "single rows", "steps_at_sites.drift", "steps_at_sites.many_bytes", "steps_at_sites.listen"]'
    toml = folder / "site.toml"
    toml.write_text(
        f'[site]\nname = "{name}"\nmodules = ["steps_at_sites"]\n\n[data]\nfile = "rows.npz"\n\n'
        f'[rules]\nlevel = "trusted"\nsteps = {steps}\nusers = ["alice"]\n'
    )
    return toml


def processes_of(folder):
    """Return the processes that name `folder` on their command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
                if str(folder).encode() in command:
                    found[int(entry.name)] = command.decode(errors="replace").replace("\0", " ")
            except OSError:
                continue
    return found


def wait_until(condition, what, limit=300.0):
    """Wait until `condition()` is true, and return it; after `limit` seconds the test fails."""
    until = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < until, what
        time.sleep(0.02)
    return found


def kill(deployment, name):
    """Kill a participant, and wait for the processes that it has started: they notice it."""
    deployment.kill(name)
    wait_until(lambda: not processes_of(deployment.kit(name)), f"processes of {name} live on")


@pytest.fixture(scope="session")
def deployment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), before]))
    sys.path.insert(0, str(HERE))
    tomls = {name: site_toml(name, folder / "owners" / name) for name in SITES}
    users = {"alice": "analyst", "bob": "viewer", "carol": "analyst"}
    with LocalDeployment(folder, "tests", tomls, users) as started:
        started.start()
        yield started
    sys.path.remove(str(HERE))
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
    assert processes_of(folder) == {}
    with socket.socket() as probe:  # the port is free again
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", started.plan.port))


@pytest.fixture(scope="session")
def connection(deployment):
    """Alice's connection to the sites, which survives whatever these tests do to the others."""
    transport = NVFlareTransport(deployment.kit("alice"))
    assert transport.wait_for(SITES, 300.0) == set(SITES)
    yield transport
    transport.close()


@pytest.fixture(scope="session")
def connected(deployment, connection):
    """A new federation each time, as `fs.connect` makes it, on the same connection."""
    identity, authority = Identity.from_kit(deployment.kit("alice")), Authority.from_kit(deployment.kit("alice"))

    def make(**settings):
        assert connection.wait_for(SITES, 300.0) == set(SITES), {site: connection.why_not(site) for site in SITES}
        return RemoteFederation(connection, identity, authority, **settings)

    return make


@pytest.fixture(scope="session")
def embedded():
    """The same sites in this process."""

    def make(**settings):
        return fs.LocalFederation([fs.Site(name, rows_of(name)) for name in SITES], **settings)

    return make

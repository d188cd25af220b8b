"""Refusals of a hardened federation: foreign kits, silent outsiders, other users, foreign code."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fedspan as fs
from fedspan.cli import main
from fedspan.engines.nvflare.client.connect import federation_status
from fedspan.engines.nvflare.client.user_session import DeniedError, ServerOfflineError, UserSession
from fedspan.engines.nvflare.setup.kit import read_kit
from fedspan.engines.nvflare.setup.local_deployment import LocalDeployment
from fedspan.engines.nvflare.setup.reach import trouble
from fedspan.engines.nvflare.site.worker_process import socket_path
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.messages.envelope import open_sealed
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.engines.remote.site.byte_link import ByteLink, socket_address
from tests.engines.nvflare.conftest import SITES, site_toml

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def all_sites_are_online(connection):
    """A site that an earlier test killed and restarted may not be back yet."""
    assert connection.wait_for(SITES, 300.0) == set(SITES), {site: connection.why_not(site) for site in SITES}


@pytest.fixture(scope="module")
def foreign(deployment, tmp_path_factory):
    """Kits of another authority that name the same federation, participants and address. Nothing of it is started."""
    folder = tmp_path_factory.mktemp("foreign")
    tomls = {name: site_toml(name, folder / "owners" / name) for name in SITES}
    other = LocalDeployment(folder, "tests", tomls, {"alice": "analyst"})
    authority = folder / "kits" / "authority"
    assert main(["federation", "move", deployment.plan.server, "--authority", str(authority)]) == 0
    with other:
        yield other


def flare_site(kit, name, log, words, limit=90.0):
    """Run NVIDIA FLARE's own process of a site, past fedspan's checks, until `log` has `words`; then end it."""
    command = [sys.executable, "-m", "nvflare.private.fed.app.client.client_train", "-m", str(kit)]
    command += [
        "-s",
        "fed_client.json",
        "--set",
        "secure_train=true",
        f"uid={name}",
        "org=fedspan",
        "config_folder=config",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + limit
        while not (log.exists() and words in log.read_text()):
            assert time.monotonic() < until, f"{words!r} is not in the log: {log.read_text()[-2000:]}"
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()


def test_a_site_with_a_foreign_authority_does_not_trust_the_server(foreign):
    foreign.start("north", wait=False)
    foreign.wait_until("north", "the coordinator does not belong to this kit's federation: ")
    foreign.kill("north")


def test_a_site_with_an_invalid_certificate_does_not_start(deployment, foreign, capsys):
    for file in ("startup/rootCA.pem", "members.json"):  # the former has signed the latter
        shutil.copy(deployment.kit("south") / file, foreign.kit("south") / file)
    toml = foreign.folder / "owners" / "south" / "site.toml"
    assert main(["site", "start", str(foreign.kit("south")), "--config", str(toml)]) == 2
    assert "cannot be used: the sender's certificate was not issued by the root" in capsys.readouterr().err


def tls_to(deployment, root, certificate=None):
    """Return the first byte that the coordinator sends after a handshake; none where it refuses."""
    context = ssl.create_default_context(cafile=str(root))
    context.check_hostname = False
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    if certificate:
        context.load_cert_chain(f"{certificate}.crt", f"{certificate}.key")
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", deployment.plan.port), timeout=60.0) as plain,
        context.wrap_socket(plain) as link,
    ):
        return link.recv(1)
    return b""


def test_a_foreign_certificate_and_no_certificate_are_refused_by_the_server(deployment, foreign):
    root = deployment.kit("north") / "startup" / "rootCA.pem"
    assert tls_to(deployment, root, foreign.kit("north") / "startup" / "client") == b""
    assert tls_to(deployment, root) == b""
    assert tls_to(deployment, root, deployment.kit("north") / "startup" / "client") != b""


def test_outsiders_that_are_silent_or_send_nonsense_block_no_one(deployment):
    outsiders = [socket.create_connection(("127.0.0.1", deployment.plan.port), timeout=60.0) for _ in range(300)]
    try:
        for outsider in outsiders[::2]:
            outsider.sendall(bytes(range(256)))
        kit = read_kit(deployment.kit("bob"))
        assert trouble(kit, 60.0) is None  # it is accepted while they are connected
        assert federation_status(kit.path).online == set(SITES)
    finally:
        for outsider in outsiders:
            outsider.close()


def test_sites_open_no_port_and_the_coordinator_one_on_its_own_address(deployment):
    for name, process in deployment.processes.items():
        listening = listening_addresses(process.pid)
        assert listening == ({("127.0.0.1", deployment.plan.port)} if name == "coordinator" else set()), name


def listening_addresses(process):
    """Return address and port of every TCP socket that a process listens on."""
    mine = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            mine.add(os.readlink(link))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                host, port = fields[1].split(":")
                found.add((socket.inet_ntoa(bytes.fromhex(host[-8:])[::-1]), int(port, 16)))  # also ::ffff:127.0.0.1
    return found


def copied(kit, folder):
    shutil.copytree(kit, folder, ignore=shutil.ignore_patterns("*.sock", "*-*-*-*-*", "log.txt*", "runs"))
    return folder


def test_a_site_cannot_take_another_sites_name(deployment, tmp_path):
    words = "authenticated as 'south' but claimed endpoint 'north'"
    flare_site(
        copied(deployment.kit("south"), tmp_path / "kit"), "north", deployment.kit("coordinator") / "log.txt", words
    )


def test_a_site_whose_config_names_another_site_does_not_start(deployment, tmp_path, capsys):
    toml = site_toml("north", tmp_path / "north")
    kit = copied(deployment.kit("south"), tmp_path / "kit")
    assert main(["site", "start", str(kit), "--config", str(toml)]) == 2
    assert "names the site 'north', and the kit is that of 'south'" in capsys.readouterr().err


def test_a_user_of_another_authority_reads_why(foreign):
    with pytest.raises(ServerOfflineError, match="the coordinator does not belong to this kit's federation"):
        fs.connect(foreign.kit("alice"))


def test_a_viewer_runs_nothing_but_sees_which_sites_are_online(deployment):
    with pytest.raises(DeniedError, match="has the role 'viewer', which may not run steps"):
        fs.connect(deployment.kit("bob"))
    assert federation_status(deployment.kit("bob")).online == set(SITES)


def test_a_user_that_the_owner_does_not_list_is_refused_by_the_site(deployment, connection):
    carol = RemoteFederation(
        connection, Identity.from_kit(deployment.kit("carol")), Authority.from_kit(deployment.kit("carol"))
    )
    with pytest.raises(fs.errors.QuorumError) as refused:
        fs.FedPCA(2).fit(carol)
    assert all("does not list 'carol'" in reason for reason in refused.value.failed.values())


def test_a_step_that_the_owner_does_not_list_is_refused_by_the_site(connected):
    from steps_at_sites import forbidden

    with pytest.raises(fs.errors.QuorumError) as refused:
        connected(policy=fs.Policy(run_deadline=60.0)).ask(forbidden)
    assert all("does not allow step 'steps_at_sites.forbidden'" in reason for reason in refused.value.failed.values())


@pytest.fixture
def alice(deployment):
    session = UserSession(read_kit(deployment.kit("alice")))
    yield session
    session.close()


def test_no_user_can_submit_a_job(alice, tmp_path):
    """A job could name code of its own; calls go through the hub, and need none."""
    job = tmp_path / "job"
    (job / "app" / "config").mkdir(parents=True)
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "mine.py").write_text("print('here I am')\n")
    (job / "meta.json").write_text(json.dumps({"name": "mine", "min_clients": 1, "deploy_map": {"app": ["@ALL"]}}))
    evil = {"id": "evil", "path": "subprocess.Popen", "args": {"args": ["touch", str(tmp_path / "trace")]}}
    for side in ("server", "client"):
        config = {"format_version": 2, "components": [evil], "workflows": [], "executors": []}
        (job / "app" / "config" / f"config_fed_{side}.json").write_text(json.dumps(config))
    with pytest.raises(DeniedError, match="not authorized"):
        alice._guard(alice._flare.submit_job, str(job))
    assert not (tmp_path / "trace").exists()


def test_nonsense_to_the_workers_socket_is_refused(deployment):
    path = socket_path(deployment.kit("north"))
    authority = Authority.from_kit(deployment.kit("alice"))
    rng = np.random.default_rng(0)

    def refused(link, nonsense):
        link.send(nonsense)
        assert link.wait(300.0)
        answer = open_sealed(link.receive(), authority, "response", "north", 2**20)
        assert (answer.sender.name, answer.head["kind"]) == ("north", "refused")

    with contextlib.closing(ByteLink.to(path)) as link:
        for size in (0, 1, 1000, 100_000):
            refused(link, rng.bytes(size))
    with socket.socket(socket.AF_UNIX) as plain:  # longer than any message: the connection ends, the worker lives on
        plain.settimeout(300.0)
        with socket_address(path) as address:
            plain.connect(address)
        plain.sendall(b"\xff" * 64)
        with contextlib.suppress(ConnectionResetError):
            assert plain.recv(1) == b""
    with contextlib.closing(ByteLink.to(path)) as link:
        refused(link, b"once more")


def test_a_user_reads_no_settings_below_its_working_folder(deployment, tmp_path, monkeypatch):
    """NVIDIA FLARE would search all of it: from ``/`` for longer than a login may take, and settings name programs."""
    from nvflare.fuel.f3.comm_config import CommConfigurator
    from nvflare.fuel.utils.config_service import ConfigService

    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "comm_config.json").write_text('{"comm_driver_path": "/nowhere"}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ConfigService, "_config_path", [])
    monkeypatch.setattr(CommConfigurator, "_config_loaded", False)
    monkeypatch.setattr(CommConfigurator, "_configuration", None)
    UserSession(read_kit(deployment.kit("alice"))).close()
    assert CommConfigurator._config_loaded
    assert CommConfigurator._configuration is None

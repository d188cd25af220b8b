"""Who is refused, and the reason that is given for it."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedspan as fs
from fedspan.engines.nvflare.here import FederationHere
from fedspan.engines.nvflare.job import write_relay_job
from fedspan.engines.nvflare.kit import read_kit
from fedspan.engines.nvflare.session import AwayError, DeniedError, Session
from fedspan.errors import FedspanError
from tests.engines.nvflare.conftest import SITES, site_toml

pytestmark = pytest.mark.xdist_group("nvflare")


@pytest.fixture(scope="module")
def foreign(here, tmp_path_factory):
    """Kits of another authority that name the same federation, participants and address. Nothing of it is started."""
    folder = tmp_path_factory.mktemp("foreign")
    tomls = {name: folder / "none.toml" for name in SITES}
    other = FederationHere(folder, "tests", tomls, {"alice": "analyst"})
    for file in folder.rglob("*.json"):
        text = file.read_text()
        old, new = other.plan.server, here.plan.server
        text = text.replace(old, new).replace(f'"port": {other.plan.port}', f'"port": {here.plan.port}')
        file.write_text(text)
    return other


def log_of_a_site(kit, toml, words, limit=30.0):
    """Start a site, wait until its log has all `words`, and end it."""
    command = [sys.executable, "-m", "fedspan", "site", "start", str(kit), "--config", str(toml)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.monotonic() + limit
        log = Path(kit) / "log.txt"
        while True:
            text = log.read_text() if log.exists() else ""
            if all(word in text for word in words):
                return text
            assert process.poll() is None, f"the site ended: {text[-1000:]}"
            assert time.monotonic() < until, f"{words} is not in the log: {text[-2000:]}"
            time.sleep(0.2)
    finally:
        process.terminate()
        process.wait(10)


def test_a_site_with_a_foreign_authority_does_not_trust_the_server(here, foreign, tmp_path):
    toml = site_toml("north", tmp_path / "north")
    log_of_a_site(foreign.kit("north"), toml, ["CERTIFICATE_VERIFY_FAILED"])


def tls_to(here, root, certificate=None):
    context = ssl.create_default_context(cafile=str(root))
    context.check_hostname = False
    if certificate:
        context.load_cert_chain(f"{certificate}.crt", f"{certificate}.key")
    with socket.create_connection(("127.0.0.1", here.plan.port), timeout=5.0) as plain:
        plain.settimeout(3.0)
        with context.wrap_socket(plain) as link:
            link.sendall(b"x" * 64)
            return link.recv(1)


def test_a_foreign_certificate_and_no_certificate_are_refused_by_the_server(here, foreign):
    root = here.kit("north") / "startup" / "rootCA.pem"
    with pytest.raises(ssl.SSLError, match="(?i)unknown.ca|decrypt|certificate"):
        tls_to(here, root, foreign.kit("north") / "startup" / "client")
    with pytest.raises(ssl.SSLError, match="(?i)certificate.required"):
        tls_to(here, root)
    with pytest.raises(TimeoutError):  # a true certificate is let in, and then nothing is said to nonsense
        tls_to(here, root, here.kit("north") / "startup" / "client")


def test_a_site_cannot_take_another_sites_name(here, tmp_path):
    kit = tmp_path / "kit"
    shutil.copytree(here.kit("south"), kit, ignore=shutil.ignore_patterns("*.sock", "*-*-*-*-*", "log.txt*", "runs"))
    about = json.loads((kit / "fedspan.json").read_text())
    (kit / "fedspan.json").write_text(json.dumps(about | {"name": "north"}))
    # NVIDIA FLARE's own process, without fedspan's check of the certificate before it.
    command = [sys.executable, "-m", "nvflare.private.fed.app.client.client_train", "-m", str(kit)]
    command += ["-s", "fed_client.json", "--set", "secure_train=true", "uid=north", "org=fedspan", "config_folder=config"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        words = "authenticated as 'south' but claimed endpoint 'north'"
        until = time.monotonic() + 30.0
        while words not in (here.kit("coordinator") / "log.txt").read_text():
            assert time.monotonic() < until, (here.kit("coordinator") / "log.txt").read_text()[-2000:]
            time.sleep(0.2)
    finally:
        process.kill()
        process.communicate()


def test_a_site_whose_config_names_another_site_does_not_start(here, tmp_path):
    toml = site_toml("north", tmp_path / "north")
    kit = tmp_path / "kit"
    shutil.copytree(here.kit("south"), kit, ignore=shutil.ignore_patterns("*.sock", "*-*-*-*-*", "log.txt*", "runs"))
    command = [sys.executable, "-m", "fedspan", "site", "start", str(kit), "--config", str(toml)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "names the site 'north', and the kit is that of 'south'" in ended.stderr


def test_a_foreign_user_cannot_log_in(foreign, here):
    with pytest.raises((AwayError, FedspanError), match="does not answer|refuses"):
        Session(read_kit(foreign.kit("alice")), 4.0)


def test_a_viewer_may_not_run_anything_but_sees_who_is_online(here):
    with pytest.raises(DeniedError, match="not authorized"):
        fs.connect(here.kit("bob"))
    session = Session(read_kit(here.kit("bob")), 10.0)
    assert set(session.registered()) == set(SITES)
    session.close()


def test_a_user_whom_the_owner_does_not_name_is_refused_by_the_site(here):
    with fs.connect(here.kit("carol")) as fed, pytest.raises(fs.errors.QuorumError) as refused:
        fs.FedPCA(2).fit(fed)
    assert all("does not allow user 'carol'" in reason for reason in refused.value.failed.values())


def test_a_step_that_the_owner_does_not_list_is_refused_by_the_site(here):
    from steps_at_sites import forbidden

    with fs.connect(here.kit("alice")) as fed, pytest.raises(fs.errors.QuorumError) as refused:
        fed.ask(forbidden)
    assert all("does not allow step 'steps_at_sites.forbidden'" in reason for reason in refused.value.failed.values())


def submit(here, folder):
    """Submit a job as alice; return how it ended, and what server and sites wrote about it."""
    session = Session(read_kit(here.kit("alice")), 10.0)
    try:
        job = session._flare.submit_job(str(folder))
        until = time.monotonic() + 40.0
        while not (status := session.status(job)).startswith("FINISHED"):
            assert time.monotonic() < until, status
            time.sleep(0.3)
        return status, json.dumps(session._flare.get_job_meta(job))
    finally:
        session.close()


def test_a_job_that_ships_code_is_not_deployed(here, tmp_path):
    job = write_relay_job(tmp_path, SITES)
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "mine.py").write_text("print('here I am')\n")
    status, meta = submit(here, job)
    assert status == "FINISHED:ABORTED" or "ABNORMAL" in status or "CANT" in status
    assert "BYOC not permitted" in meta


@pytest.mark.parametrize(("file", "where"), [("config_fed_server.json", "server"), ("config_fed_client.json", "site")])
def test_a_component_outside_the_allow_list_is_not_made(here, tmp_path, file, where):
    job = write_relay_job(tmp_path, SITES)
    trace = tmp_path / "trace"
    config = json.loads((job / "app" / "config" / file).read_text())
    evil = {"id": "evil", "path": "subprocess.Popen", "args": {"args": ["touch", str(trace)]}}
    config["components"].insert(0, evil)
    (job / "app" / "config" / file).write_text(json.dumps(config))
    status, _ = submit(here, job)
    assert status != "FINISHED:COMPLETED"
    logs = "".join(path.read_text() for path in here.folder.rglob("log.txt"))
    assert "'subprocess.Popen' at config path" in logs
    assert "is not in allow_list" in logs
    assert not trace.exists()

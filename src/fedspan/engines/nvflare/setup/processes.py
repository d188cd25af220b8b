"""``fedspan coordinator start`` and ``fedspan site start``: in the foreground, until Ctrl-C, leaving nothing behind."""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType

from fedspan.engines.nvflare.setup.console_events import News, say
from fedspan.engines.nvflare.setup.hardening import HEARTBEAT, server_resources, site_resources
from fedspan.engines.nvflare.setup.kit import Kit, read_kit, write_private
from fedspan.engines.nvflare.setup.parent_death_watch import be_a_parent, environment_at_start
from fedspan.engines.nvflare.setup.requirements import needs_nvflare
from fedspan.engines.nvflare.site.supervisor import SITE_CONFIG, Supervisor
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.errors import InputError, MessageError

#: NVIDIA FLARE's programs.
_COORDINATOR, _SITE = "nvflare.private.fed.app.server.server_train", "nvflare.private.fed.app.client.client_train"

#: The name of a job's folder.
_JOB = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def start_coordinator(path: Path) -> int:
    """Run the federation's server in this process."""
    kit = read_kit(path)
    kit.must_be("coordinator", "'fedspan coordinator start'")
    needs_nvflare()
    _check_certificates(kit)
    from fedspan.engines.nvflare.server import study_desk

    for folder in (kit.path / "store" / "jobs", kit.path / "store" / "snapshots"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(kit.path / "local" / "resources.json", json.dumps(server_resources(kit.path), indent=2))
    study_desk.home = kit.path
    _remove_old_jobs(kit)
    say(f"coordinator of {kit.federation} at {kit.server}; Ctrl-C stops it")
    _prepare()
    return _run(kit, _COORDINATOR, "fed_server.json", [])


def start_site(path: Path, config: Path) -> int:
    """Run a site in this process: it connects to the server, and starts a process of its own for each run."""
    kit = read_kit(path)
    kit.must_be("site", "'fedspan site start'")
    needs_nvflare()
    if not config.is_file():
        raise InputError(f"{config} does not exist: it is the owner's site.toml")
    _check_certificates(kit)
    write_private(kit.path / SITE_CONFIG, json.dumps({"config": str(config.resolve())}))
    write_private(kit.path / "local" / "resources.json", json.dumps(site_resources(), indent=2))
    _remove_old_jobs(kit)
    say(f"site {kit.name} of {kit.federation}, coordinator at {kit.server}; Ctrl-C stops it")
    _prepare()
    worker = Supervisor(kit.path)
    importlib.import_module("nvflare.private.fed.client.fed_client")  # takes seconds, while the worker reads the data
    worker.wait_until_ready()
    named = [f"uid={kit.name}", f"heart_beat_interval={HEARTBEAT}"]
    _begin_again_when_it_ends(["site", "start", str(kit.path), "--config", str(config.resolve())])
    return _run(kit, _SITE, "fed_client.json", named)


def _check_certificates(kit: Kit) -> None:
    """Say so if nobody would take this kit's certificate: it has ended, or is not of the kit's own federation."""
    identity = Identity.from_kit(kit.path)
    try:
        Authority.from_kit(kit.path).verify(identity.certificate, identity.sign(b"mine"), b"mine")
    except MessageError as error:
        raise InputError(f"the kit {kit.path} cannot be used: {error}") from None


def _begin_again_when_it_ends(command: list[str]) -> None:
    """Run `command` as this very process if NVIDIA FLARE ends by itself: a coordinator may die while a site logs in."""
    from nvflare.fuel.f3.mpm import MainProcessMonitor

    def begin_again() -> None:
        say("the coordinator did not let this site in, or died meanwhile: trying again")
        _kill_children()
        os.execve(sys.executable, [sys.executable, "-m", "fedspan", *command], environment_at_start())

    MainProcessMonitor.add_cleanup_cb(begin_again)


def _run(kit: Kit, module: str, settings: str, named: list[str]) -> int:
    """Become NVIDIA FLARE's process for this kit."""
    (kit.path / "transfer").mkdir(exist_ok=True, mode=0o700)
    options = ["secure_train=true", "org=fedspan", "config_folder=config", *named]
    sys.argv = [module, "-m", str(kit.path), "-s", settings, "--set", *options]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def _prepare() -> None:
    from fedspan.engines.nvflare.setup import handshake

    be_a_parent()
    handshake.install(News().say)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    # Processes of runs are started by name with this interpreter: they shall find the fedspan that runs here.
    source = str(Path(__file__).resolve().parents[3])
    paths = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if source not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([source, *paths])


def _remove_old_jobs(kit: Kit) -> None:
    """Remove what relays of former lives left: none of them outlived the process that ran them."""
    for folder in (kit.path, kit.path / "store" / "jobs"):
        if folder.is_dir():
            for old in folder.iterdir():
                if old.is_dir() and _JOB.fullmatch(old.name):
                    shutil.rmtree(old, ignore_errors=True)


def _stop(number: int, frame: FrameType | None) -> None:
    """End the processes of runs, then this one: nothing is left to be tidied up that is not on disk already."""
    say("stopped")
    _kill_children()
    os._exit(0)


def _kill_children() -> None:
    for child in children_of(os.getpid()):
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue


def children_of(parent: int) -> list[int]:
    """Return the processes that `parent` started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return found

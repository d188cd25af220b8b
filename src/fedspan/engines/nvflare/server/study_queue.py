"""Detached studies at the coordinator: users submit them, processes of their own run them, users fetch the results.

A submitted study is signed by the user, and comes with a delegation: the coordinator may act in the user's name for a
while. A study whose process dies, or whose coordinator restarts, continues where it stopped.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedspan.checks import json_value
from fedspan.durable.whole_file import write_whole
from fedspan.engines.members.enrolment import COORDINATOR
from fedspan.engines.nvflare.client.study_client import CHANNEL, LARGEST, LATEST, PURPOSE, zipped
from fedspan.engines.nvflare.flare import Component, EventType, Head, Message, RefusedError, cell_of, serve
from fedspan.engines.nvflare.setup.kit import json_bytes, write_json
from fedspan.engines.nvflare.setup.parent_death_watch import FOLDER_AT_START
from fedspan.engines.remote.messages.envelope import Opened, open_sealed
from fedspan.engines.remote.messages.identity import Authority, Participant, check_delegation
from fedspan.errors import FedspanError, InputError
from fedspan.owner.admission import ANALYST

#: The coordinator's kit, set by its own process: processes of jobs read the same settings, and have no queue.
home: Path | None = None

#: Studies that run at one time, starts of one that dies again and again, and studies of one user that wait.
AT_ONCE, MOST_STARTS, MOST_WAITING = 4, 50, 100

#: Bytes of a study's log that a user gets.
LONGEST_LOG = 2**16

_NAME = re.compile(r"[0-9a-f]{12}")

#: What each role may request, and the words for it.
_ALLOWED = {
    ANALYST: ("submit", "list", "cancel", "fetch", "log"),
    "operator": ("list", "cancel", "disable", "enable", "log"),
    "viewer": ("list",),
}
_WORDS = {
    "submit": "run studies",
    "list": "see studies",
    "cancel": "cancel studies",
    "fetch": "fetch results",
    "log": "read logs of studies",
    "disable": "disable sites",
    "enable": "enable sites",
}

#: The file of the sites that an operator has disabled.
DISABLED = "disabled.json"


def disabled_sites(kit: Path, before: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the sites that an operator has disabled, with a sentence; those `before` where the file is damaged."""
    try:
        return {str(site): str(why) for site, why in json_value((kit / DISABLED).read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError):
        return dict(before or {})


def study_progress(folder: Path) -> dict[str, Any]:
    """Return what the process of a study has last written of its progress."""
    with suppress(OSError, ValueError):
        progress = json_value((folder / "progress.json").read_bytes())
        return progress if isinstance(progress, dict) else {}
    return {}


def study_log(folder: Path) -> str:
    """Return the end of what the process of a study has printed."""
    try:
        return (folder / "log.txt").read_bytes()[-LONGEST_LOG:].decode("utf-8", "replace")
    except OSError:
        return ""


class StudyQueueComponent(Component):  # type: ignore[misc]
    """The queue as a component of NVIDIA FLARE's server."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Open the queue when the coordinator is up."""
        if event_type == EventType.SYSTEM_START and home is not None:
            queue = StudyQueue(home)
            serve(cell_of(fl_ctx), CHANNEL, queue.request)
            threading.Thread(target=queue.watch, daemon=True, name="fedspan-studies").start()


class StudyQueue:
    """The studies of one coordinator, a folder each."""

    def __init__(self, kit: Path) -> None:
        self._kit = kit
        self._authority = Authority.from_kit(kit)
        self._folder = kit / "studies"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: dict[str, int] = {}
        self._studies: dict[str, dict[str, Any]] = {}  # what is recorded of each study; a damaged file hides no others
        for file in sorted(self._folder.glob("*/about.json")):
            with suppress(OSError, ValueError):
                about = json_value(file.read_bytes())
                if _NAME.fullmatch(file.parent.name) and isinstance(about, dict) and {"who", "state"} <= about.keys():
                    self._studies[file.parent.name] = about

    def request(self, sender: str, topic: str, head: Head, body: bytes) -> Message:
        """Answer a user's request, whatever it holds."""
        try:
            answer = self.answer(open_sealed(bytes(body), self._authority, PURPOSE, COORDINATOR, LARGEST))
        except FedspanError as error:
            raise RefusedError(str(error)) from None
        except OSError as error:
            raise RefusedError(f"the coordinator can't write it down: {error.strerror}") from None
        except (KeyError, TypeError, ValueError):
            raise RefusedError("the request lacks a field that it must have") from None
        return {name: value for name, value in answer.items() if name != "results"}, answer.get("results", b"")

    def answer(self, opened: Opened) -> dict[str, Any]:
        """Do what a signed request of a user states, if its role allows it.

        An analyst has access to its own studies. An operator sees all, cancels any, and disables sites; a viewer sees
        all.
        """
        user, head = opened.sender, opened.head
        if head["kind"] not in _ALLOWED.get(user.role, ()):
            raise InputError(f"{user.name!r} has the role {user.role!r}, which may not {_WORDS.get(str(head['kind']))}")
        if not abs(time.time() - float(head["time"])) <= LATEST:
            raise InputError("the request is too old, or the clocks differ by minutes")
        if head["kind"] == "submit":
            return {"study": self._submit(user, opened)}
        if head["kind"] == "list":
            known = map(self._about, sorted(self._studies))
            return {"studies": [about for about in known if user.role != ANALYST or about["who"] == user.name]}
        if head["kind"] in ("disable", "enable"):
            return {"disabled": self._disable(user.name, str(head["site"]), head["kind"] == "disable")}
        name = str(head["study"])
        if name not in self._studies or (user.role == ANALYST and self._studies[name]["who"] != user.name):
            raise InputError(f"{user.name} has no study {name[:40]!r} here; 'fedspan status' lists them")
        if head["kind"] == "cancel":
            return {"about": self._cancel(name, "" if user.role == ANALYST else f"cancelled by {user.name}")}
        if head["kind"] == "log":
            return {"about": self._about(name), "log": study_log(self._folder / name)}
        if head["kind"] == "fetch":
            about = self._about(name)
            results = zipped(self._folder / name / "results") if about["state"] == "done" else b""
            return {"about": about, "results": results}
        raise InputError(f"there is no request {str(head['kind'])[:40]!r}")

    def watch(self) -> None:
        """Run the submitted studies, and start those again that died."""
        for about in self._studies.values():
            if about["state"] == "running":  # of an earlier process of this coordinator
                about["state"] = "waiting"
        while True:
            with self._lock, suppress(OSError):  # a full disk does not end the queue: it tries again
                self._check()
            time.sleep(0.5)

    def _check(self) -> None:
        for name, process in list(self._running.items()):
            if process.poll() is not None:
                if self._studies[name]["state"] == "running":
                    self._ended(name, process.returncode)
                del self._running[name]
        for name in sorted(self._studies):
            file = self._folder / name / "about.json"
            if not file.parent.is_dir() and name not in self._running:  # it was deleted
                del self._studies[name]
                continue
            if len(self._running) < AT_ONCE and self._studies[name]["state"] == "waiting":
                self._start(name)
            recorded = json_bytes(self._studies[name])
            if not file.is_file() or file.read_bytes() != recorded:  # another program has cut it, or the disk was full
                write_whole(file, recorded)

    def _submit(self, user: Participant, opened: Opened) -> str:
        delegation = bytes(opened.parts["delegation"])
        if check_delegation(delegation, self._authority, Participant(COORDINATOR)) != user:
            raise InputError(
                f"{user.name!r} submits a study with the delegation of another user: use the kit of its own user"
            )
        waiting = [
            about for about in list(self._studies.values()) if about["who"] == user.name and about["state"] == "waiting"
        ]
        if len(waiting) >= MOST_WAITING:  # each has a file of up to LARGEST bytes, and its turn
            raise InputError(f"{MOST_WAITING} of your studies wait here: 'fedspan cancel' makes room for another one")
        name = secrets.token_hex(6)
        folder = self._folder / name
        folder.mkdir(mode=0o700)
        (folder / "delegation").write_bytes(delegation)
        write_whole(folder / "study.toml", bytes(opened.parts["study"]))
        title = str(opened.head["title"])[:100]
        about = {"study": name, "title": title, "who": user.name, "since": time.time(), "state": "waiting", "why": ""}
        write_json(folder / "about.json", about)
        self._studies[name] = about
        return name

    def _disable(self, operator: str, site: str, disable: bool) -> dict[str, str]:
        """Let the hub pass nothing on to a site, or again; return the sites that are disabled, with a sentence."""
        if site not in self._authority.sites:
            raise InputError(f"the federation has no site {site[:63]!r}")
        with self._lock:
            known = disabled_sites(self._kit)
            known.pop(site, None)
            if disable:
                known[site] = f"disabled by the operator {operator} since {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
            write_json(self._kit / DISABLED, known)
        return known

    def _cancel(self, name: str, why: str) -> dict[str, Any]:
        """Cancel a study that has not ended, and delete its delegation."""
        with self._lock:
            if self._studies[name]["state"] in ("waiting", "running"):
                if name in self._running:
                    self._running[name].kill()
                self._over(name, state="cancelled", why=why)
        return self._about(name)

    def _over(self, name: str, **changes: Any) -> None:
        """Record how a study ended, and delete the delegation, which is no longer needed."""
        try:
            self._set(name, **changes)
        finally:
            (self._folder / name / "delegation").unlink(missing_ok=True)

    def _start(self, name: str) -> None:
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with (self._folder / name / "log.txt").open("wb") as log:
            command = [sys.executable, "-m", "fedspan.cli.study.detached_study", str(self._kit), name]
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=FOLDER_AT_START,
            )
        self._starts[name] = self._starts.get(name, 0) + 1
        self._set(name, state="running")

    def _ended(self, name: str, code: int) -> None:
        if code == 0:
            self._over(name, state="done")
        elif code < 0 and self._starts[name] < MOST_STARTS:  # it was killed, and continues where it stopped
            self._set(name, state="waiting")
        else:
            lines = (self._folder / name / "log.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            self._over(name, state="failed", why=(lines or ["its log is empty"])[-1][:1000])

    def _about(self, name: str) -> dict[str, Any]:
        """Return what is recorded of a study, with its progress."""
        about = self._studies[name]
        return about | {"progress": study_progress(self._folder / name)} if about["state"] == "running" else about

    def _set(self, name: str, **changes: Any) -> None:
        """Change what is recorded of a study; what a full disk does not take is written later, by `_check`."""
        self._studies[name] = self._studies[name] | changes
        write_json(self._folder / name / "about.json", self._studies[name])

"""Processes that a server or site starts end with it, even if it was killed."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

CHECK_EVERY = 0.25

#: The environment variable with the process that the started ones watch.
PARENT = "FEDSPAN_PARENT_PROCESS"

_own_parent = os.environ.get(PARENT)

#: Where this process was started: NVIDIA FLARE enters another folder, and what it starts later begins here as well.
FOLDER_AT_START = Path.cwd()


def be_a_parent() -> None:
    """Let the processes that this one starts die with it, and this one with its own parent, if it has to."""
    if _own_parent is not None:
        die_with_parent()
    os.environ |= child_environment()


def child_environment() -> dict[str, str]:
    """Return the environment for processes that watch this one: they import the fedspan that runs here."""
    source = str(Path(__file__).resolve().parents[4])
    paths = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != source]
    return os.environ | {PARENT: str(os.getpid()), "PYTHONPATH": os.pathsep.join([source, *paths])}


def environment_at_start() -> dict[str, str]:
    """Return the environment in which this process can start again: with its own parent."""
    rest = {name: value for name, value in os.environ.items() if name != PARENT}
    return rest if _own_parent is None else rest | {PARENT: _own_parent}


def die_with_parent() -> None:
    """End this process as soon as the process that started it has ended, even before this call."""
    parent = os.getppid() if _own_parent is None else int(_own_parent)
    threading.Thread(target=_watch, args=(parent,), daemon=True, name="fedspan-parent-death-watch").start()


def _watch(parent: int) -> None:
    # The kernel's own signal (PR_SET_PDEATHSIG) watches the thread that started this process, which ends early.
    while os.getppid() == parent:
        time.sleep(CHECK_EVERY)
    os._exit(1)


def no_tensors() -> None:
    """Keep NVIDIA FLARE from importing torch, which takes seconds, into a process that only carries bytes."""
    sys.modules.setdefault("nvflare.app_opt.pt.decomposers", None)  # type: ignore[arg-type]

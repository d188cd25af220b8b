"""A process that a server or site starts for a run dies with it, however the parent died."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

CHECK_EVERY = 0.25

#: The environment's variable in which a process tells those that it starts whose life theirs hangs on.
PARENT = "FEDSPAN_PARENT_PROCESS"

_parent_here = os.environ.get(PARENT)


def be_a_parent() -> None:
    """Let the processes that this one starts die with it, and this one with whoever asked that of it."""
    if _parent_here is not None:
        die_with_parent()
    os.environ[PARENT] = str(os.getpid())


def environment_at_start() -> dict[str, str]:
    """Return the environment for this very process to begin again: with the parent that it had."""
    rest = {name: value for name, value in os.environ.items() if name != PARENT}
    return rest if _parent_here is None else rest | {PARENT: _parent_here}


def die_with_parent() -> None:
    """End this process as soon as the process that started it is gone, be it before this call."""
    parent = os.getppid() if _parent_here is None else int(_parent_here)
    threading.Thread(target=_watch, args=(parent,), daemon=True, name="fedspan-lifeline").start()


def _watch(parent: int) -> None:
    # The kernel's own signal (PR_SET_PDEATHSIG) watches the thread that started us, which ends early.
    while os.getppid() == parent:
        time.sleep(CHECK_EVERY)
    os._exit(1)


def no_tensors() -> None:
    """Keep NVIDIA FLARE from importing torch into a process in which nothing but bytes travels: it takes seconds."""
    sys.modules.setdefault("nvflare.app_opt.pt.decomposers", None)  # type: ignore[arg-type]


def quiet_logs() -> None:
    """Keep the log of a run to warnings: NVIDIA FLARE writes several lines for each call."""
    logging.getLogger().setLevel(logging.WARNING)

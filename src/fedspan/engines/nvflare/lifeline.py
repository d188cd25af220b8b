"""A process that a server or site starts for a run dies with it, however the parent died."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

CHECK_EVERY = 0.25

#: Where a server or site tells the processes that it starts who it is.
_PARENT = "FEDSPAN_PARENT_PROCESS"


def be_a_parent() -> None:
    """Tell the processes that this one starts whose life theirs hangs on."""
    os.environ[_PARENT] = str(os.getpid())


def die_with_parent() -> None:
    """End this process as soon as the process that started it is gone, be it before this call."""
    parent = int(os.environ.get(_PARENT, os.getppid()))
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

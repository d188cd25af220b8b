"""A process that a server or site starts for a run dies with it, however the parent died."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

CHECK_EVERY = 0.25


def die_with_parent() -> None:
    """End this process as soon as the process that started it is gone."""
    parent = os.getppid()
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

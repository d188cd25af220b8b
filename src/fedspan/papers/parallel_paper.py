"""Independent jobs side by side, each in a process of one thread: the same bits on any machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from rich.progress import track
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits

#: More would need more memory than a laptop has.
MOST_PROCESSES = 4
#: A function of a module, and its arguments.
Job = tuple[Callable[..., Any], *tuple[Any, ...]]


def side_by_side(jobs: Sequence[Job], description: str, processes: int | None = None) -> list[Any]:
    """Do jobs on `processes` (default: one for each free core, up to 4), and return their results in order."""
    count = min(len(os.sched_getaffinity(0)), MOST_PROCESSES) if processes is None else processes
    results = Parallel(n_jobs=count, return_as="generator")(delayed(_on_one_thread)(*job) for job in jobs)
    return list(track(results, description=description, total=len(jobs), transient=True))


def _on_one_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    with threadpool_limits(1):
        return function(*arguments)

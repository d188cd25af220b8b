"""Independent jobs side by side, each in a process of one thread: the same bits on any machine."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fedspan.engines.local.blas_threads import PinnedThreads

T = TypeVar("T")

#: More would need more memory than a laptop has.
MOST_PROCESSES = 4
_pinned: list[PinnedThreads] = []


class Jobs:
    """Takes jobs and hands out their results; without a `pool`, it does every job at once in this process."""

    def __init__(self, pool: ProcessPoolExecutor | None, progress: Progress, description: str) -> None:
        self._pool, self._progress, self._taken = pool, progress, 0
        self._task = progress.add_task(description, total=0)

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Take a job: a function of a module, and arguments that can be sent to another process."""
        self._taken += 1
        self._progress.update(self._task, total=self._taken)
        if self._pool is not None:
            future = self._pool.submit(function, *arguments)
        else:
            future = Future()
            future.set_result(function(*arguments))
        future.add_done_callback(lambda _: self._progress.advance(self._task))
        return future

    def each(self, function: Callable[..., T], arguments: Iterable[tuple[Any, ...]]) -> list[Future[T]]:
        """Take a job for each of the arguments."""
        return [self.submit(function, *some) for some in arguments]


@contextmanager
def jobs(description: str, processes: int | None = None) -> Iterator[Jobs]:
    """Do jobs on `processes` (default: one for each free core, up to 4), and show the number that are done."""
    count = min(len(os.sched_getaffinity(0)), MOST_PROCESSES) if processes is None else processes
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        if count == 1:
            yield Jobs(None, progress, description)
            return
        # Forking a process whose BLAS has threads is not safe.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(count, context, initializer=_one_thread) as pool:
            try:
                yield Jobs(pool, progress, description)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _one_thread() -> None:
    _pinned.append(PinnedThreads(1))

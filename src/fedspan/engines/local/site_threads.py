"""Threads that run one job at many sites, each within its deadline.

A step can't be killed. If it takes too long, its thread is given up: the site has failed this call, and is overdue
until the step returns. The threads are daemons, so that one that hangs does not keep the process from ending.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Generic, TypeVar

R = TypeVar("R")

#: How many threads continue a batch after a job has missed its deadline.
_AFTER_A_HANG = 16


class Batch(Generic[R]):
    """``job(name)`` for many names, on at most `threads` threads.

    Attributes
    ----------
    results : dict of name to result
        Without the names that took longer than `deadline` seconds.
    overdue : set of names
        Those of them whose job still runs.
    """

    def __init__(self, names: Iterable[str], job: Callable[[str], R], deadline: float) -> None:
        self.results: dict[str, R] = {}
        self.overdue: set[str] = set()
        self._todo = deque(names)
        self._job = job
        self._deadline = deadline
        self._running: dict[_Worker, tuple[str, float]] = {}
        self._lock = threading.Lock()  # of all that is above
        self._worker_left = threading.Event()

    def run(self, threads: int) -> None:
        """Return when every job is done or overdue."""
        with self._lock:
            for _ in range(min(threads, len(self._todo))):
                self._start_worker()
        try:
            while (wait := self._give_up_overdue()) is not None:
                self._worker_left.wait(wait)
                self._worker_left.clear()
        except BaseException:  # an interrupt: no other job may begin
            self._todo.clear()
            raise

    def work(self, worker: _Worker) -> None:
        """Do jobs until none is left or the worker is given up; this is what a thread runs."""
        name, result = "", None
        while True:
            with self._lock:
                now = time.perf_counter()
                running = self._running.get(worker)
                if name:
                    self.overdue.discard(name)
                    if running is not None and now - running[1] <= self._deadline:
                        self.results[name] = result  # type: ignore[assignment]
                if running is None:  # given up
                    return
                if not self._todo:
                    del self._running[worker]
                    self._worker_left.set()
                    return
                name = self._todo.popleft()
                self._running[worker] = (name, now)
            result = self._job(name)

    def _start_worker(self) -> None:
        worker = _idle.pop() if _idle else _Worker()
        self._running[worker] = ("", time.perf_counter())
        worker.inbox.put(self.work)

    def _give_up_overdue(self) -> float | None:
        """Give up workers whose job is late; return how long to wait for the others, if there are any."""
        with self._lock:
            now = time.perf_counter()
            for worker, (name, began) in list(self._running.items()):
                if now - began > self._deadline and name:
                    del self._running[worker]
                    self.overdue.add(name)
                    # Where one site hangs others may: let them hang side by side, not one deadline after the other.
                    for _ in range(min(len(self._todo), _AFTER_A_HANG)):
                        self._start_worker()
            if not self._running:
                return None
            first = min(began for _, began in self._running.values())
            return max(0.0, first + self._deadline - now) + 1e-3


class _Worker:
    """A daemon thread that runs what it finds in its inbox, and is idle in between."""

    def __init__(self) -> None:
        self.inbox: SimpleQueue[Callable[[_Worker], None]] = SimpleQueue()
        threading.Thread(target=self._loop, daemon=True, name="fedspan-site").start()

    def _loop(self) -> None:
        while True:
            self.inbox.get()(self)
            _idle.append(self)


_idle: list[_Worker] = []
if hasattr(os, "register_at_fork"):  # a forked child has the list but not the threads; Windows does not fork
    os.register_at_fork(after_in_child=_idle.clear)

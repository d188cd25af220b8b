"""A progress bar for runs that take longer than two seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fedspan.federation import CallRecord, Metrics, Observer, RunRecord

if TYPE_CHECKING:
    from rich.progress import Progress

_PATIENCE = 2.0


class ProgressBar(Observer):
    """Shows rounds, calls and the last metrics on standard error, once a run has lasted two seconds."""

    def __init__(self, title: str = "", patience: float = _PATIENCE) -> None:
        self.title = title
        self._patience = patience
        self._began = time.perf_counter()
        self._bar: Progress | None = None
        self._of: int | None = None
        self._done = 0
        self._metrics = ""

    def round(self, number: int, of: int) -> None:
        """Move the bar to round `number`."""
        self._done, self._of = number, of
        self._show()

    def called(self, call: CallRecord) -> None:
        """Count a call, where there are no rounds to count."""
        if call.round is None:
            self._done += 1
        self._show()

    def logged(self, metrics: Metrics) -> None:
        """Show what the protocol logged last."""
        shown = [f"{k} {v:.3g}" for k, v in metrics.values.items() if isinstance(v, float)]
        self._metrics = ", ".join(shown[:3])

    def ended(self, record: RunRecord) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self) -> None:
        if self._bar is None:
            if time.perf_counter() - self._began < self._patience:
                return
            self._bar = self._start()
        self._bar.update(self._task, completed=self._done, total=self._of, metrics=self._metrics)

    def _start(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[metrics]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = bar.add_task(self.title or "fitting", total=self._of, metrics="")
        bar.start()
        return bar

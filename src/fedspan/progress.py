"""Progress of runs that take longer than two seconds: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from fedspan.federation import CallRecord, Metrics, Observer, RunRecord

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Seconds that a run may take before it shows anything, and between two lines where there is no terminal.
PATIENCE = 2.0
BETWEEN_LINES = 10.0


class ProgressBar(Observer):
    """Shows rounds or calls and the last metrics on standard error."""

    def __init__(self) -> None:
        self._bar: tuple[Progress, TaskID] | None = None

    def began(self, record: RunRecord) -> None:
        """Begin to count."""
        self._what, self._phase, self._metrics = record.what, "", ""
        self._next_time = time.perf_counter() + PATIENCE
        self._done = 0
        self._of: int | None = None

    def round(self, number: int, of: int) -> None:
        """Move on to round `number`."""
        self._done, self._of = number, of
        self._show()

    def called(self, call: CallRecord) -> None:
        """Count a call outside rounds."""
        self._done += call.round is None
        self._show()

    def logged(self, metrics: Metrics) -> None:
        """Keep the last metrics, and the phase of a run of several loops."""
        shown = [f"{name} {value:.3g}" for name, value in metrics.values.items() if isinstance(value, float)]
        self._metrics = ", ".join(shown[:3])
        if "phase" in metrics.values:
            self._phase, self._done, self._of = f", {metrics.values['phase']}", 0, None

    def waiting(self, sites: tuple[str, ...]) -> None:
        """Name the sites that the run waits for."""
        self._metrics = f"waiting for {', '.join(sites[:5])}"
        self._show()

    def ended(self, record: RunRecord) -> None:
        """Remove the bar, and print what the run has spent of the sites' privacy."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None
        if record.privacy is not None:
            print(f"{self._what}: privacy: {record.privacy.sentence()}", file=sys.stderr)

    def _show(self) -> None:
        name = self._what + self._phase
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, description=name, completed=self._done, total=self._of, metrics=self._metrics)
        elif time.perf_counter() >= self._next_time and sys.stderr.isatty():
            self._start_bar(name)
        elif time.perf_counter() >= self._next_time:
            self._next_time = time.perf_counter() + BETWEEN_LINES
            where = f"call {self._done}" if self._of is None else f"round {self._done} of {self._of}"
            more = f", {self._metrics}" if self._metrics else ""
            print(f"{self._what}: {where}{self._phase}{more}", file=sys.stderr)

    def _start_bar(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = Console(stderr=True)
        bar = Progress(*columns, TextColumn("{task.fields[metrics]}"), console=console, transient=True)
        self._bar = bar, bar.add_task(name, total=self._of, metrics="")
        bar.start()

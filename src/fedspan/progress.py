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
        self._what, self._phase = record.what, ""
        self._next_time = time.perf_counter() + PATIENCE
        self._done = 0
        self._of: int | None = None
        self._metrics = ""

    def round(self, number: int, of: int) -> None:
        """Move on to round `number`."""
        self._done, self._of = number, of
        self._show()

    def called(self, call: CallRecord) -> None:
        """Count a call, where there are no rounds to count."""
        if call.round is None:
            self._done += 1
        self._show()

    def logged(self, metrics: Metrics) -> None:
        """Keep what the protocol logged last."""
        shown = [f"{name} {value:.3g}" for name, value in metrics.values.items() if isinstance(value, float)]
        self._metrics = ", ".join(shown[:3])
        if "phase" in metrics.values:  # a run of several loops says which one it is in
            self._phase, self._done, self._of = f", {metrics.values['phase']}", 0, None

    def waiting(self, sites: tuple[str, ...]) -> None:
        """Say for whom the run waits."""
        self._metrics = f"waiting for {', '.join(sites[:5])}"
        self._show()

    def ended(self, record: RunRecord) -> None:
        """Take the bar away, and say what the run has spent of the sites' privacy, if any."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None
        if record.privacy is not None:
            print(f"{self._what}: privacy: {record.privacy.sentence()}", file=sys.stderr)

    def _show(self) -> None:
        if self._bar is not None:
            bar, task = self._bar
            bar.update(
                task, description=self._what + self._phase, completed=self._done, total=self._of, metrics=self._metrics
            )
        elif time.perf_counter() >= self._next_time:
            if sys.stderr.isatty():
                self._bar = self._start_bar()
            else:
                self._next_time = time.perf_counter() + BETWEEN_LINES
                where = f"call {self._done}" if self._of is None else f"round {self._done} of {self._of}"
                more = f", {self._metrics}" if self._metrics else ""
                print(f"{self._what}: {where}{self._phase}{more}", file=sys.stderr)

    def _start_bar(self) -> tuple[Progress, TaskID]:
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
        task = bar.add_task(self._what + self._phase, total=self._of, metrics="")
        bar.start()
        return bar, task

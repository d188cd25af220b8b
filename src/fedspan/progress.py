"""Progress of runs that take longer than two seconds: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from fedspan.checks import printable
from fedspan.federation import CallRecord, Metrics, Observer, RunRecord

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Seconds that a run may take before it shows anything, and between two lines where there is no terminal.
PATIENCE = 2.0
BETWEEN_LINES = 10.0


class WorkProgress:
    """Shows on standard error how much of some work is done, and about how long the rest will take.

    Parameters
    ----------
    what : str
        The name of the work.
    total : float
        Its amount: rows, or bytes of files.

    Examples
    --------
    >>> with WorkProgress("reading", 2) as work:  # shows nothing within two seconds
    ...     work.done(1)
    ...     work.done(1)
    """

    def __init__(self, what: str, total: float) -> None:
        self._what, self._total = what, max(total, 1e-300)
        self._done = 0.0
        self._began = time.perf_counter()
        self._next_time = self._began + PATIENCE
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def done(self, amount: float) -> None:
        """Note that some more of the work is done."""
        self._done += amount
        now = time.perf_counter()
        share = min(1.0, self._done / self._total)
        left = time_left(now - self._began, share)
        if self._bar is not None:
            self._bar[0].update(self._bar[1], completed=share, metrics=left)
        elif now >= self._next_time and share < 1:
            if sys.stderr.isatty():
                self._bar = _new_bar(self._what, 1.0, left)
                self._bar[0].update(self._bar[1], completed=share)
            else:
                self._next_time = now + BETWEEN_LINES
                print(f"{self._what}: {share:.0%} done{left and ', ' + left}", file=sys.stderr)


def time_left(elapsed: float, share: float) -> str:
    """Return in words about how long the rest takes, where a share of the work took `elapsed` seconds.

    Examples
    --------
    >>> time_left(10.0, 0.25), time_left(3600.0, 0.5), time_left(1.0, 0.0)
    ('about 30 s left', 'about 60 min left', '')
    """
    if share <= 0:
        return ""
    seconds = elapsed * (1 / share - 1)
    return f"about {seconds:.0f} s left" if seconds < 120 else f"about {seconds / 60:.0f} min left"


def _new_bar(what: str, total: float | None, metrics: str) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    bar = Progress(
        *columns, TextColumn("{task.fields[metrics]}", markup=False), console=Console(stderr=True), transient=True
    )
    bar.start()
    return bar, bar.add_task(what, total=total, metrics=metrics)


class ProgressBar(Observer):
    """Shows rounds or calls, the last metrics and the time that is left on standard error."""

    def __init__(self) -> None:
        self._bar: tuple[Progress, TaskID] | None = None

    def began(self, record: RunRecord) -> None:
        """Begin to count."""
        self._what, self._phase, self._metrics = record.what, "", ""
        self._next_time = time.perf_counter() + PATIENCE
        self._done = 0
        self._of: int | None = None
        self._loop_began = time.perf_counter()

    def round(self, number: int, of: int) -> None:
        """Move on to round `number`."""
        if number == 0:
            self._loop_began = time.perf_counter()
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
            print(printable(f"{self._what}: privacy: {record.privacy.sentence()}"), file=sys.stderr)

    def _left(self) -> str:
        """Return the time that is left if all rounds are used, and nothing outside rounds."""
        if not self._of or not self._done:
            return ""
        return time_left(time.perf_counter() - self._loop_began, self._done / self._of).replace("about", "at most")

    def _show(self) -> None:
        name = self._what + self._phase
        if self._bar is not None:
            bar, task = self._bar
            shown = ", ".join(filter(None, (self._left(), self._metrics)))
            bar.update(task, description=name, completed=self._done, total=self._of, metrics=shown)
        elif time.perf_counter() >= self._next_time and sys.stderr.isatty():
            self._start_bar(name)
        elif time.perf_counter() >= self._next_time:
            self._next_time = time.perf_counter() + BETWEEN_LINES
            where = f"call {self._done}" if self._of is None else f"round {self._done} of {self._of}"
            more = "".join(f", {words}" for words in (self._left(), self._metrics) if words)
            print(printable(f"{self._what}: {where}{self._phase}{more}"), file=sys.stderr)

    def _start_bar(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        console = Console(stderr=True)
        bar = Progress(*columns, TextColumn("{task.fields[metrics]}", markup=False), console=console, transient=True)
        self._bar = bar, bar.add_task(name, total=self._of, metrics="")
        bar.start()

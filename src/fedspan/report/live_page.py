"""A page that shows a run while it goes on: it loads itself again every two seconds, until the runs are over."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fedspan.errors import InputError
from fedspan.federation import CallRecord, Metrics, Observer, RunRecord
from fedspan.federation.outcomes import EndingKind
from fedspan.report.markup import Html, duration, esc, join, note
from fedspan.report.page import write_page
from fedspan.report.sections.metrics import metrics_section
from fedspan.report.sections.run_sections import failures_section, run_header, sites_section, stopped_section
from fedspan.report.sections.traffic import traffic_section

#: Seconds between two versions of the page; a page that takes long to write is written less often.
EVERY = 1.0
RELOAD = 2
_LARGEST_SHARE = 0.05


class LivePage(Observer):
    """Writes what the runs of a federation do to a page, at most once a second.

    Parameters
    ----------
    path : path
        The page. Open it in a browser: it needs no server and no network.
    title : str, optional

    Examples
    --------
    >>> import tempfile, numpy as np, fedspan as fs
    >>> fed = fs.federate(np.eye(6), sites=np.arange(6) % 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     live = LivePage(f"{folder}/live.html")
    ...     fed.observe(live)
    ...     model = fs.FedPCA(2).fit(fed)
    ...     live.finish().name
    'live.html'
    """

    def __init__(self, path: str | os.PathLike[str], title: str = "A run while it goes on") -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise InputError(f"path={str(path)!r} can't be written: its folder does not exist")
        self._title = title
        self._records: list[RunRecord] = []
        self._where = "Nothing has begun."
        self._next = 0.0
        self._loop_began = 0.0
        self._write(self._where)

    def began(self, record: RunRecord) -> None:
        """Add a run."""
        self._records.append(record)
        self._where = f"{record.what} has begun."
        self._write(self._where)

    def round(self, number: int, of: int) -> None:
        """Show the round, and the time that is left if the loop does not end early."""
        now = time.perf_counter()
        if number == 0:
            self._loop_began = now
        left = (now - self._loop_began) / number * (of - number) if number else 0.0
        rest = f", at most {duration(left)} left" if left >= 1 else ""
        self._show(f"Round {number + 1} of at most {of}{rest}.")

    def called(self, call: CallRecord) -> None:
        """Show calls outside rounds."""
        if call.round is None:
            self._show(f"Call {call.number + 1}: {call.step}.")
        else:
            self._show(self._where)

    def logged(self, metrics: Metrics) -> None:
        """Show what protocols log."""
        self._show(self._where)

    def waiting(self, sites: tuple[str, ...]) -> None:
        """Show which sites the run waits for."""
        self._write(f"Waiting for {', '.join(sites[:5])}.")

    def ended(self, record: RunRecord) -> None:
        """Show how a run ended."""
        self._where = f"{record.what} has ended."
        failed = record.stopped.kind in (EndingKind.FAILED, EndingKind.INTERRUPTED)
        self._write(self._where, reload=not failed)

    def finish(self, report: str = "") -> Path:
        """Write the page for the last time, with a link to the `report` beside it, and return it."""
        self._where = "All runs have ended."
        self._write(self._where, reload=False, report=report)
        return self.path

    def _show(self, where: str) -> None:
        self._where = where
        if time.perf_counter() >= self._next:
            self._write(where)

    def _write(self, where: str, *, reload: bool = True, report: str = "") -> None:
        began = time.perf_counter()
        records = self._records
        running = note(f"{where} This page loads itself again every {RELOAD} seconds." if reload else where)
        link = Html(f'<p><a id="report" href="{esc(report)}">The report of the run</a></p>') if report else Html("")
        parts = [sites_section(records, None), traffic_section(records), metrics_section(records)]
        over = [record for record in records if record.stopped.kind is not EndingKind.RUNNING]
        parts += [failures_section(records), *([stopped_section(over)] if over else [])]
        body = join(
            [run_header(self._title, records, None), Html(f'<div id="now">{running}{link}</div>'), *parts], "\n"
        )
        write_page(self.path, self._title, body, reload=RELOAD if reload else 0)
        took = time.perf_counter() - began
        self._next = time.perf_counter() + max(EVERY, took / _LARGEST_SHARE)

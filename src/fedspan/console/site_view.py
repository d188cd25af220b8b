"""A site as its owner's page shows it, read from the site's own files."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedspan.checks import json_value
from fedspan.durable.append_file import AppendFile, AppendFileError, Entry
from fedspan.engines.nvflare.setup.kit import Kit, read_kit
from fedspan.errors import FedspanError, LedgerError
from fedspan.owner.decisions import Decisions, Proposal, run_name
from fedspan.owner.rules import Rules
from fedspan.owner.site_file import SiteFile, read_site_file
from fedspan.privacy import Ledger

#: Seconds without a request after which a run counts as interrupted.
SILENT = 600.0


@dataclass
class RunView:
    """A run as the audit log has it."""

    run: str
    who: str
    began: str
    last: str = ""
    calls: int = 0
    bytes: int = 0
    refused: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    ended: bool = False
    stopped: str | None = None
    study: Proposal | None = None

    @property
    def what(self) -> str:
        """What it fits."""
        return run_name(self.run)

    @property
    def silent(self) -> bool:
        """Whether no request came lately: the run was interrupted, or has failed, and its user may resume it."""
        return (datetime.now(UTC) - datetime.fromisoformat(self.last)).total_seconds() > SILENT

    @property
    def most_calls(self) -> int | None:
        """The most calls that its plan has, where it was proposed."""
        return None if self.study is None else self.study.plan.runs[self.study.runs[self.run]].calls


class SiteView:
    """Reads the site of a kit and a ``site.toml`` again whenever `refresh` is called.

    Parameters
    ----------
    config : path
        The owner's ``site.toml``.
    kit : path, optional
        The site's: its worker leaves there how the federation sees the data.
    """

    def __init__(self, config: Path, kit: Path | None = None) -> None:
        self.config = config
        self.kit: Kit | None = None if kit is None else read_kit(kit)
        self.problems: list[str] = []
        self.lines: list[dict[str, Any]] = []
        self.runs: dict[str, RunView] = {}
        self._stamp: object = None
        self._file: SiteFile | None = None
        self._log: AppendFile | None = None
        self._decisions: Decisions | None = None
        self.refresh()

    @property
    def file(self) -> SiteFile:
        """The owner's file, as it was when it could last be read."""
        if self._file is None:
            raise FedspanError("; ".join(self.problems) or f"{self.config} can't be read")
        return self._file

    @property
    def rules(self) -> Rules:
        """The owner's rules."""
        return self.file.rules

    @property
    def decisions(self) -> Decisions:
        """The owner's decisions, for reading and writing."""
        if self._decisions is None or self._decisions.path != self.file.decisions:
            self._decisions = Decisions(self.file.decisions)
        return self._decisions

    @property
    def waiting(self) -> list[Proposal]:
        """Studies that wait for a decision, the oldest first."""
        return [one for one in self.decisions.proposals.values() if one.state == "waiting"]

    @property
    def running(self) -> list[RunView]:
        """Runs that go on, the latest first."""
        return [one for one in self._open() if not one.silent]

    @property
    def interrupted(self) -> list[RunView]:
        """Runs without a request lately that have not ended and were not stopped, the latest first."""
        return [one for one in self._open() if one.silent]

    def _open(self) -> list[RunView]:
        return sorted((one for one in self.runs.values() if not one.ended and one.stopped is None), key=_latest)[::-1]

    def refresh(self) -> None:
        """Read what has changed."""
        self.problems = []
        try:
            found = self.config.stat()
            stamp = found.st_ino, found.st_size, found.st_mtime_ns
            if stamp != self._stamp:
                self._file, self._stamp = read_site_file(self.config), stamp
            self.decisions.read()
            self._read_log()
        except (FedspanError, OSError) as error:
            self.problems.append(str(error))
        if self._file is not None:
            proposals = list(self.decisions.proposals.values())
            for run, view in self.runs.items():
                view.stopped = self.decisions.stopped.get(run)
                view.study = next((one for one in proposals if run in one.runs), None)

    def about(self) -> dict[str, Any]:
        """Return what the site's worker last published: rows, columns and kinds; empty before its first start."""
        if self.kit is None:
            return {}
        try:
            about = json_value((self.kit.path / "about.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return about if isinstance(about, dict) else {}

    def ledger(self) -> Ledger | None:
        """Return the site's ledger, where it has one."""
        plan = self.file.privacy
        if plan is None or not os.path.exists(plan.ledger):
            return None
        try:
            return Ledger(plan.ledger, read_only=True)
        except LedgerError as error:
            self.problems.append(str(error))
            return None

    def _read_log(self) -> None:
        path = self.file.log
        if not path.exists():
            return
        if self._log is None or self._log.path != path:
            self.lines, self.runs = [], {}
            self._log = AppendFile(path, make=False, shared=True, read_only=True, accept=self._take)
        try:
            with self._log.locked():
                pass
        except AppendFileError as error:
            self._log = None
            raise FedspanError(f"the audit log {path} {error}") from None

    def _take(self, entry: Entry) -> None:
        line = entry.fields
        self.lines.append(line)
        run = line["run"]
        if not run or line["how"] == "hello":
            return
        if run not in self.runs and line["outcome"] == "refused":  # any user can name as many runs as it likes
            return
        view = self.runs.setdefault(run, RunView(run, line["who"], line["when"]))
        view.last = line["when"]
        view.bytes += line["bytes"]
        view.ended = view.ended or (line["how"] == "end" and line["outcome"] == "answered")
        view.refused += line["outcome"] == "refused"
        if line["ran"] and line["outcome"] == "answered":
            view.calls += 1
            view.steps[line["step"]] += 1


def _latest(run: RunView) -> str:
    return run.last

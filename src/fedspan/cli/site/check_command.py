"""``fedspan site check``: try all that a site's file says, without joining and without writing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedspan.engines.nvflare.setup.kit import Kit, read_kit
from fedspan.errors import FedspanError
from fedspan.federation.site.steps import installed_steps
from fedspan.owner.admission import Rules
from fedspan.owner.audit_log import read_lines
from fedspan.owner.owned_site import Rows, data_problems, read_rows
from fedspan.owner.schema import kind_of
from fedspan.owner.site_file import PrivacyPlan, SiteFile, SiteFileError, read_site_file
from fedspan.privacy import Ledger

_WIDTH = 120


class _Report:
    """What is printed, and the problems, which come last."""

    def __init__(self) -> None:
        console = Console(file=sys.stdout)
        self.console = console if console.is_terminal else Console(file=sys.stdout, width=_WIDTH)
        self.problems: list[str] = []

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def end(self) -> int:
        for problem in self.problems:
            self.say(f"problem: {problem}")
        count = len(self.problems)
        self.say("all is well" if not count else f"{count} problem{'s' * (count > 1)}")
        return 1 if count else 0


def check_site(path: Path, kit: Path | None = None) -> int:
    """Print what a site's file comes to, in the federation of a `kit`; return 1 if something is wrong with it."""
    report = _Report()
    try:
        member = None if kit is None else _member(kit)
        file = read_site_file(path)
    except FedspanError as error:
        report.problems += error.problems if isinstance(error, SiteFileError) else [str(error)]
        return report.end()
    report.say(f"site {file.name}, of {path}")
    federation = None
    if member is not None:
        federation = member.schema
        report.say(f"federation {member.federation}, with {'a' if federation else 'no'} schema of its own")
        if member.name != file.name:
            report.problems.append(f"{path} names the site {file.name!r}, and the kit is that of {member.name!r}")
    _data(file, federation, report)
    report.say("rules")
    for sentence in file.rules.in_words():
        report.say(f"  {sentence}")
    _budget(file.privacy, report)
    _log(file.log, report)
    _runs(file.rules, report)
    return report.end()


def _member(path: Path) -> Kit:
    kit = read_kit(path)
    kit.must_be("site", "'fedspan site check'")
    return kit


def _data(file: SiteFile, federation: dict[str, str] | None, report: _Report) -> None:
    try:
        rows = read_rows(file, federation)
        report.problems += data_problems(file, rows, federation)
        _columns(file, rows, (federation or {}) | (file.schema or {}), report)
        if len(rows):
            rows.site(file.name, None)
            if len(rows) < file.rules.least_rows:
                report.problems.append(f"the site has fewer rows than its least_rows ({file.rules.least_rows})")
    except FedspanError as error:
        report.problems.append(str(error))


def _columns(file: SiteFile, rows: Rows, schema: dict[str, str], report: _Report) -> None:
    where = "" if file.data.where is None else f" where {file.data.where.text}"
    report.say(f"data: {len(rows):,} rows of {file.data.source.label}{where}")
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for name in ("column", "kind", "type", "missing", "schema"):
        table.add_column(name, justify="right" if name == "missing" else "left")
    parts = {file.data.label: " (label)", file.data.task: " (task)"}
    for name in rows.frame.columns:
        column = rows.frame[name]
        wanted = schema.get(name, "-")
        missing = f"{int(column.isna().sum()):,}"
        table.add_row(escape(f"{name}{parts.get(name, '')}"), kind_of(column), str(column.dtype), missing, wanted)
    report.console.print(table)


def _budget(plan: PrivacyPlan | None, report: _Report) -> None:
    if plan is None:
        report.say("budget: none; what asks for noise of the site's own is refused")
        return
    strict = "; strict: nothing leaves without noise" if plan.strict else ""
    if not plan.ledger.exists():
        if plan.epsilon is None:
            report.problems.append(f"the ledger {plan.ledger} does not exist: a new one needs epsilon and delta")
        else:
            _writable(plan.ledger.parent, "the ledger", report)
            report.say(
                f"budget: epsilon={plan.epsilon:g} at delta={plan.delta:g}, in a new ledger {plan.ledger}{strict}"
            )
        return
    try:
        ledger = Ledger(plan.ledger, read_only=True)
        epsilon, delta, spent = ledger.epsilon, ledger.delta, ledger.spent
    except FedspanError as error:
        report.problems.append(str(error))
        return
    if plan.epsilon is not None and (plan.epsilon, plan.delta) != (epsilon, delta):
        report.say(f"budget: the ledger has epsilon={epsilon:g} at delta={delta:g}, and will get the file's")
        epsilon, delta = plan.epsilon, plan.delta or delta
        spent = ledger.cost.epsilon(delta)
    left = max(0.0, epsilon - spent)
    report.say(f"budget: epsilon={epsilon:g} at delta={delta:g}, {left:.4g} left, in {plan.ledger}{strict}")
    if not left:
        report.problems.append(f"the budget of {plan.ledger} is spent: every call that would cost something is refused")


def _log(path: Path, report: _Report) -> None:
    if not path.exists():
        _writable(path.parent, "the audit log", report)
        report.say(f"log: {path}, a new one")
        return
    if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        report.problems.append(f"the audit log {path} cannot be read and written")
        return
    if path.stat().st_mode & 0o077:
        report.problems.append(f"the audit log {path} can be read by others: take that back with chmod 600")
    try:
        report.say(f"log: {path}, {len(read_lines(path)):,} lines, each follows from the one before")
    except FedspanError as error:
        report.problems.append(str(error))


def _writable(folder: Path, what: str, report: _Report) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        report.problems.append(f"{what} cannot be made: the folder {folder} does not exist or cannot be written to")


def _runs(rules: Rules, report: _Report) -> None:
    """Report, capability by capability, which steps the rules allow."""
    sums = "; with sums_only, only by secure sums" if rules.sums_only else ""
    report.say(f"what may be run, as far as 'steps' decides{sums}")
    rooms: dict[str, list[str]] = {}
    for id in installed_steps():
        if not id.startswith("secure_sum."):
            rooms.setdefault(id.rpartition(".")[0], []).append(id)
    for room, ids in rooms.items():
        refused = [id.rpartition(".")[2] for id in ids if id not in rules.steps]
        answer = "all" if not refused else "nothing" if len(refused) == len(ids) else f"not {', '.join(refused)}"
        report.say(f"  {room}: {answer}")

"""``fedspan site check``: check a site's file and its data, without joining a federation and without writing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedspan.engines.nvflare.setup.kit import read_kit
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
    """Prints what is found, and the problems at the end."""

    def __init__(self) -> None:
        console = Console(file=sys.stdout)
        self.console = console if console.is_terminal else Console(file=sys.stdout, width=_WIDTH)
        self.problems: list[str] = []

    def print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def part(self) -> Iterator[None]:
        """Take an error as a problem, and go on after this part."""
        try:
            yield
        except FedspanError as error:
            self.problems += error.problems if isinstance(error, SiteFileError) else [str(error)]

    def end(self) -> int:
        for problem in self.problems:
            self.print(f"problem: {problem}")
        count = len(self.problems)
        self.print("no problems" if not count else f"{count} problem{'s' * (count > 1)}")
        return 1 if count else 0


def check_site(path: Path, kit: Path | None = None) -> int:
    """Print what a site's file means, in the federation of a `kit`; return 1 if there is a problem."""
    report, federation = _Report(), None
    with report.part():
        member = None if kit is None else read_kit(kit)
        if member is not None:
            member.must_be("site", "'fedspan site check'")
        file = read_site_file(path)
    if report.problems:
        return report.end()
    report.print(f"site {file.name}, of {path}")
    if member is not None:
        federation = member.schema
        report.print(f"federation {member.federation}, with {'a' if federation else 'no'} schema of its own")
        if member.name != file.name:
            report.problems.append(f"{path} names the site {file.name!r}, and the kit is that of {member.name!r}")
    with report.part():
        rows = read_rows(file, federation)
        report.problems += data_problems(file, rows, federation)
        _columns(file, rows, (federation or {}) | (file.schema or {}), report)
        if len(rows):
            rows.site(file.name, None)
            if len(rows) < file.rules.least_rows:
                report.problems.append(f"the site has fewer rows than its least_rows ({file.rules.least_rows})")
    report.print("\n  ".join(["rules", *file.rules.in_words()]))
    with report.part():
        _budget(file.privacy, report)
    with report.part():
        _log(file.log, report)
    _steps(file.rules, report)
    return report.end()


def _columns(file: SiteFile, rows: Rows, schema: dict[str, str], report: _Report) -> None:
    where = "" if file.data.where is None else f" where {file.data.where.text}"
    report.print(f"data: {len(rows):,} rows of {file.data.source.label}{where}")
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for name in ("column", "kind", "type", "missing", "schema"):
        table.add_column(name, justify="right" if name == "missing" else "left")
    parts = {file.data.label: " (label)", file.data.task: " (task)"}
    for name in rows.frame.columns:
        column = rows.frame[name]
        missing = f"{int(column.isna().sum()):,}"
        shown = escape(f"{name}{parts.get(name, '')}")
        table.add_row(shown, kind_of(column), str(column.dtype), missing, schema.get(name, "-"))
    report.console.print(table)


def _budget(plan: PrivacyPlan | None, report: _Report) -> None:
    if plan is None:
        report.print("budget: none; steps that need noise of the site's own are refused")
        return
    strict = "; strict: nothing leaves without noise" if plan.strict else ""
    if not plan.ledger.exists():
        if plan.epsilon is None:
            report.problems.append(f"the ledger {plan.ledger} does not exist: a new one needs epsilon and delta")
            return
        _check_writable(plan.ledger.parent, "the ledger", report)
        new = f"in a new ledger {plan.ledger}{strict}"
        report.print(f"budget: epsilon={plan.epsilon:g} at delta={plan.delta:g}, {new}")
        return
    ledger = Ledger(plan.ledger, read_only=True)
    epsilon, delta, spent = ledger.epsilon, ledger.delta, ledger.spent
    if plan.epsilon is not None and (plan.epsilon, plan.delta) != (epsilon, delta):
        report.print(f"budget: the ledger has epsilon={epsilon:g} at delta={delta:g}, and will get the file's")
        epsilon, delta = plan.epsilon, plan.delta or delta
        spent = ledger.cost.epsilon(delta)
    left = max(0.0, epsilon - spent)
    report.print(f"budget: epsilon={epsilon:g} at delta={delta:g}, {left:.4g} left, in {plan.ledger}{strict}")
    if not left:
        report.problems.append(f"the budget of {plan.ledger} is spent: every call that would cost something is refused")


def _log(path: Path, report: _Report) -> None:
    if not path.exists():
        _check_writable(path.parent, "the audit log", report)
        report.print(f"log: {path}, a new one")
    elif not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        report.problems.append(f"the audit log {path} cannot be read and written")
    else:
        report.print(f"log: {path}, {len(read_lines(path)):,} lines, each follows from the one before")


def _check_writable(folder: Path, what: str, report: _Report) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        report.problems.append(f"{what} cannot be made: the folder {folder} does not exist or cannot be written to")


def _steps(rules: Rules, report: _Report) -> None:
    """Report, capability by capability, which steps the rules allow."""
    sums = "; with sums_only, only by secure sums" if rules.sums_only else ""
    report.print(f"steps that the rules allow{sums}")
    rooms: dict[str, list[str]] = {}
    for id in installed_steps():
        rooms.setdefault(id.rpartition(".")[0], []).append(id)
    rooms.pop("secure_sum", None)
    for room, ids in rooms.items():
        refused = [id.rpartition(".")[2] for id in ids if id not in rules.steps]
        answer = "all" if not refused else "none" if len(refused) == len(ids) else f"not {', '.join(refused)}"
        report.print(f"  {room}: {answer}")

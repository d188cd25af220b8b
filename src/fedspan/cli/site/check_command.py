"""``fedspan site check``: check a site's file and its data, without joining a federation and without writing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedspan.cli.console import print_line, print_table
from fedspan.datasets.sources import missing_words
from fedspan.engines.nvflare.setup.kit import read_kit
from fedspan.errors import FedspanError
from fedspan.federation.site.steps import installed_steps
from fedspan.owner.audit_log import read_lines
from fedspan.owner.owned_cells import CellRows
from fedspan.owner.owned_site import OwnedRows, data_problems, read_rows
from fedspan.owner.rules import Rules
from fedspan.owner.schema import kind_of
from fedspan.owner.site_file import PrivacyPlan, SiteFile, SiteFileError, read_site_file
from fedspan.privacy import Ledger


class _Problems(list[str]):
    """What is wrong with a site, one sentence each."""

    @contextmanager
    def of(self) -> Iterator[None]:
        """Take an error as a problem, and go on after this part."""
        try:
            yield
        except FedspanError as error:
            self.extend(error.problems if isinstance(error, SiteFileError) else [str(error)])

    def end(self) -> int:
        for problem in self:
            print_line(f"problem: {problem}")
        print_line("no problems" if not self else f"{len(self)} problem{'s' * (len(self) > 1)}")
        return 1 if self else 0


def check(file: Path, kit: Path | None) -> int:
    """Print what a site's file means, in the federation of a `kit`; return 1 if there is a problem."""
    problems, federation = _Problems(), None
    with problems.of():
        member = None if kit is None else read_kit(kit)
        if member is not None:
            member.must_be("site", "'fedspan site check'")
        site = read_site_file(file)
    if problems:
        return problems.end()
    print_line(f"site {site.name}, of {file}")
    if member is not None:
        federation = member.schema
        print_line(f"federation {member.federation}, with {'a' if federation else 'no'} schema of its own")
        if member.name != site.name:
            problems.append(f"{file} names the site {site.name!r}, and the kit is that of {member.name!r}")
    with problems.of():
        rows = read_rows(site, federation)
        problems += data_problems(site, rows, federation)
        _print_columns(site, rows, (federation or {}) | (site.schema or {}))
        if len(rows):
            rows.site(site.name, None)
            if len(rows) < site.rules.least_rows:
                problems.append(f"the site has fewer rows than its least_rows ({site.rules.least_rows})")
    print_line("\n  ".join(["rules", *(f"{name}: {words}" for name, words in site.rules.in_words().items())]))
    with problems.of():
        _check_budget(site.privacy, problems)
    with problems.of():
        _check_log(site.log, problems)
    _print_steps(site.rules)
    return problems.end()


def _print_columns(site: SiteFile, rows: OwnedRows | CellRows, schema: dict[str, str]) -> None:
    data = site.data
    if isinstance(rows, CellRows):
        print_line(f"data: {len(rows):,} cells of {len(rows.features):,} genes of {data.source.label}")
        return
    frame = rows.frame
    where = "" if data.where is None else f" where {data.where.text}"
    streamed = ", read in blocks" if data.stream else ""
    print_line(f"data: {len(rows):,} rows of {data.source.label}{where}{streamed}")
    missing = rows.missing()
    parts: dict[str | None, str] = {data.label: " (label)", data.task: " (task)"}
    parts |= dict.fromkeys(data.target, " (target)")
    lines = [
        [
            f"{name}{parts.get(name, '')}",
            kind_of(frame[name]),
            str(frame[name].dtype),
            f"{missing[name]:,}",
            schema.get(name, "-"),
        ]
        for name in frame.columns
    ]
    print_table(("column", "kind", "type", "missing", "schema"), lines, ("missing",))
    for name, words in missing_words(frame).items():
        counts = ", ".join(f"{word!r} ({count:,})" for word, count in words.items())
        print_line(f"taken as missing in column {name!r}: {counts}")


def _check_budget(plan: PrivacyPlan | None, problems: list[str]) -> None:
    if plan is None:
        print_line("budget: none; steps that need noise of the site's own are refused")
        return
    strict = "; strict: nothing leaves without noise" if plan.strict else ""
    if not plan.ledger.exists():
        if plan.epsilon is None:
            problems.append(f"the ledger {plan.ledger} does not exist: a new one needs epsilon and delta")
            return
        _check_writable(plan.ledger.parent, "the ledger", problems)
        print_line(f"budget: epsilon={plan.epsilon:g} at delta={plan.delta:g}, in a new ledger {plan.ledger}{strict}")
        return
    ledger = Ledger(plan.ledger, read_only=True)
    epsilon, delta, spent = ledger.epsilon, ledger.delta, ledger.spent
    if plan.epsilon is not None and (plan.epsilon, plan.delta) != (epsilon, delta):
        print_line(f"budget: the ledger has epsilon={epsilon:g} at delta={delta:g}, and will get the file's")
        epsilon, delta = plan.epsilon, plan.delta or delta
        spent = ledger.cost.epsilon(delta)
    left = max(0.0, epsilon - spent)
    print_line(f"budget: epsilon={epsilon:g} at delta={delta:g}, {left:.4g} left, in {plan.ledger}{strict}")
    if not left:
        problems.append(f"the budget of {plan.ledger} is spent: every call that would cost something is refused")


def _check_log(path: Path, problems: list[str]) -> None:
    if not path.exists():
        _check_writable(path.parent, "the audit log", problems)
        print_line(f"log: {path}, a new one")
    elif not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        problems.append(f"the audit log {path} cannot be read and written")
    else:
        print_line(f"log: {path}, {len(read_lines(path)):,} lines, each follows from the previous one")


def _check_writable(folder: Path, what: str, problems: list[str]) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        problems.append(f"{what} cannot be made: the folder {folder} does not exist or cannot be written to")


def _print_steps(rules: Rules) -> None:
    """Print, capability by capability, which steps the rules allow."""
    print_line(f"steps that the rules allow{'; with sums_only, only by secure sums' if rules.sums_only else ''}")
    rooms: dict[str, list[str]] = {}
    for id in installed_steps():
        rooms.setdefault(id.rpartition(".")[0], []).append(id)
    rooms.pop("secure_sum", None)
    for room, ids in rooms.items():
        refused = [id.rpartition(".")[2] for id in ids if id not in rules.steps]
        answer = "all" if not refused else "none" if len(refused) == len(ids) else f"not {', '.join(refused)}"
        print_line(f"  {room}: {answer}")

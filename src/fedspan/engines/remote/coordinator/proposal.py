"""Proposals: a user's study is shown to the owners that approve studies before they run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedspan.checks import first_of, json_value
from fedspan.durable.whole_file import write_whole
from fedspan.engines.local.rehearsal import RehearsedColumns, rehearse
from fedspan.engines.remote.coordinator.signed_requests import Answer
from fedspan.engines.remote.coordinator.site_directory import SiteDirectory
from fedspan.engines.remote.messages.envelope import MISREAD, Opened
from fedspan.errors import DeadlineError, PolicyError
from fedspan.federation import Federation, Policy
from fedspan.owner.decisions import REFUSED, WAITING

#: Seconds between two requests for the owners' decisions.
PAUSE = 1.0


def propose(
    directory: SiteDirectory,
    work: Callable[[Federation], Any],
    title: str,
    policy: Policy,
    seed: int,
    folder: Path | None,
    notify: Callable[[str], None],
) -> None:
    """Propose what `work` does to the sites that require it, and wait until their owners have decided.

    With a `folder` the ticket is kept in it, so that a study that is resumed is the one that was approved.
    """
    reports = {site: report for site, report in directory.reports.items() if report.rows is not None}
    waiting = [site for site in reports if reports[site].approval]
    if not waiting:
        return
    columns = {site: RehearsedColumns(one.columns, one.target, one.task) for site, one in reports.items()}
    plan = rehearse(work, columns, title, policy, seed)
    directory.study = _ticket(folder, plan.digest)
    until, asked, refused = time.monotonic() + policy.run_deadline, len(waiting), 0
    parts = {"plan": plan.text().encode()}
    shown, undecided = False, dict[str, str]()  # by site: the last reason why it can't be asked
    while True:
        decided = {
            site: _decision(answer)
            for site, answer in directory.send("propose", "", waiting, {"study": directory.study}, parts).items()
        }
        for site, (state, why) in decided.items():
            if state == REFUSED:
                refused += 1
                notify(f"{site} takes no part: {why}")
        if refused == asked and asked == len(reports):
            raise PolicyError(f"all owners have refused the study: {'; '.join(why for _, why in decided.values())}")
        waiting = [site for site, (state, _) in decided.items() if state == WAITING]
        if not waiting:
            return
        if time.monotonic() > until:
            raise DeadlineError(f"{first_of(waiting)}: not approved within run_deadline={policy.run_deadline:g} s")
        if not shown:
            notify(f"study {directory.study} waits for the approval of the owners of {first_of(waiting)}")
            shown = True
        for site in waiting:
            if (why := decided[site][1]) and why != undecided.get(site):
                notify(f"{site} has not decided: {why}")
                undecided[site] = why
        time.sleep(PAUSE)


def _decision(answer: Answer) -> tuple[str, str]:
    """Return a site's decision and its reason. One that can't be reached has not decided."""
    if not isinstance(answer, Opened):
        return (WAITING if answer.offline else REFUSED), answer.detail
    if answer.head["kind"] != "proposal":
        return (WAITING if answer.head.get("again") is True else REFUSED), str(answer.head.get("why"))[:1000]
    try:
        about = json_value(bytes(answer.parts["about"]))
        return str(about["state"]), str(about["why"])[:1000]
    except MISREAD:
        return REFUSED, "the answer lacks a field that it must have"


def _ticket(folder: Path | None, digest: str) -> str:
    """Return a new ticket, or that of the same study in its folder."""
    file = None if folder is None else folder / "proposal"
    if file is not None and file.is_file():
        ticket, _, before = file.read_text(encoding="utf-8").strip().partition(" ")
        if before == digest:
            return ticket
    ticket = secrets.token_hex(8)
    if file is not None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, f"{ticket} {digest}\n".encode())
    return ticket

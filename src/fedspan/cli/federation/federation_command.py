"""``fedspan federation status`` and ``fedspan status | cancel | fetch``: real federations."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

from fedspan.checks import printable
from fedspan.cli.console import print_line, print_table
from fedspan.console.progress_words import progress_words
from fedspan.engines.nvflare.client.connect import federation_status
from fedspan.engines.nvflare.client.study_client import cancel_study, disable_site, fetch_study, list_studies
from fedspan.engines.remote.coordinator.site_directory import SiteReport
from fedspan.errors import InputError
from fedspan.owner.admission import ANALYST

#: Seconds between two looks of ``fedspan status --watch``.
WATCH = 2.0


def status(kit: Path, steps: bool) -> int:
    """Print which sites are online, and what they report."""
    found = federation_status(kit)
    lines = []
    for site in found.kit.sites:
        report = found.reports.get(site, SiteReport())
        numbers = (report.rows, len(report.columns), len(report.allowed)) if report.rows is not None else ()
        state = "online" if site in found.online else "offline"
        lines.append([site, state, report.version, *(f"{number:,}" for number in numbers)])
    columns = ("site", "", "fedspan", "rows", "columns", "steps")
    print_table(columns, lines, columns[3:], f"{found.kit.federation} at {found.kit.server}")
    for site in found.kit.sites:
        allowed = found.reports[site].allowed if steps and site in found.reports else ()
        for line in (*found.remarks.get(site, ()), *allowed):
            print_line(f"{site}: {line}")
    if found.role != ANALYST:
        print_line(f"({found.role}s see which sites are online; analysts also see their reports)")
    return 0


def disable(site: str, kit: Path) -> int:
    """Let the coordinator pass nothing on to a site."""
    print_line(f"{site} is {disable_site(kit, site, True)[site]}")
    return 0


def enable(site: str, kit: Path) -> int:
    """Let the coordinator pass requests on to a site again."""
    disable_site(kit, site, False)
    print_line(f"{site} is enabled")
    return 0


def studies(kit: Path, study: str | None, watch: bool = False) -> int:
    """Print the state of the user's detached studies, or of one; with `watch` again and again, until all are over."""
    while True:
        found = _print_studies(kit, study)
        if not watch or all(about["state"] not in ("waiting", "running") for about in found):
            return 0
        time.sleep(WATCH)


def _print_studies(kit: Path, study: str | None) -> list[dict[str, Any]]:
    found = [about for about in list_studies(kit) if study in (None, about["study"])]
    if study is not None and not found:
        raise InputError(f"there is no study {study!r} at the coordinator that you may see")
    for about in found:
        since = datetime.fromtimestamp(about["since"]).strftime("%Y-%m-%d %H:%M")
        why = f": {about['why']}" if about["why"] else ""
        why = f": {progress_words(about['progress'])}" if about.get("progress") else why
        line = f"{about['study']}  {since}  {about['who']}  {about['title']}  {about['state']}{why}"
        print(printable(line), flush=True)
    if not found:
        print("no detached studies that you may see")
    return found


def cancel(kit: Path, study: str) -> int:
    """Cancel a detached study and revoke its authorisation."""
    state = cancel_study(kit, study)
    if state != "cancelled":
        raise InputError(f"study {study} is {state} already, and its authorisation is deleted")
    print(f"study {study} is cancelled, and the coordinator has deleted its authorisation")
    return 0


def fetch(kit: Path, study: str, out: Path) -> int:
    """Fetch the results of a detached study."""
    fetch_study(kit, study, out)
    print(f"report: {out / 'report.html'}")
    return 0

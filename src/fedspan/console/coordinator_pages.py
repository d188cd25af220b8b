"""The coordinator's page, for reading: who is online, versions, the queue, progress, failures, reports."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedspan.checks import json_value
from fedspan.console.page_layout import whole_page
from fedspan.console.page_server import Answer, Pages, Visit
from fedspan.console.progress_words import progress_words
from fedspan.console.prometheus import Metric, build_info, exposition
from fedspan.engines.nvflare.setup.kit import Kit, read_kit
from fedspan.errors import InputError
from fedspan.federation.versions import version_of
from fedspan.report.markup import Html, count, esc, header, join, more, note, section, table

#: Seconds after which what the coordinator last wrote is too old to be true, and of a page's reload.
OLD, RELOAD = 20.0, 5
MOST_STUDIES = 100
STATES = ("waiting", "running", "done", "failed", "cancelled")
#: A report runs its own scripts, in a place of its own that can reach nothing.
SANDBOX = "sandbox allow-scripts"


class CoordinatorPages:
    """Makes the pages of the coordinator of a kit, from its files."""

    def __init__(self, kit: Path) -> None:
        self._kit: Kit = read_kit(kit)

    def pages(self) -> Pages:
        """Return the pages by address, and the metrics. No page changes anything."""
        return Pages({"/": self.state, "/report": self.report, "/log": self.log}, metrics=self.metrics)

    def state(self, visit: Visit) -> Answer:
        """Show sites and studies."""
        online, studies = self._online(), self._studies()
        kit = read_kit(self._kit.path)
        alive = bool(online)
        here = version_of("fedspan")
        names = sorted({*kit.sites, *online.get("sites", ())})
        rows = []
        for site in names:
            version = online.get("online", {}).get(site)
            words = "offline" if version is None else "online"
            words = online.get("disabled", {}).get(site, words)
            differs = version not in (None, "", here)
            shown = Html(f'<span class="bad">{esc(version)} (here {esc(here)})</span>') if differs else version or "–"
            rows.append([site, words, shown])
        counts = Counter(about["state"] for about in studies)
        tiles = [("sites online", f"{len(online.get('online', {}))} of {len(names)}")]
        tiles += [(state, count(counts[state])) for state in STATES[:4]]
        failures: Counter[str] = Counter()
        for about in studies:
            failures.update(about["progress"].get("failures", {}))
        failed = [[kind, number] for kind, number in failures.most_common()]
        listed = table(
            ["study", "user", "title", "state", "since", "report"], map(_row, studies[:MOST_STUDIES]), texts=6
        )
        parts = [
            section("sites", "Sites", table(["site", "", "fedspan"], rows, texts=3)),
            section(
                "studies",
                "Studies",
                listed if studies else note("None yet."),
                *more(len(studies) - MOST_STUDIES, "study", ""),
            ),
            section(
                "failures",
                "Failures of sites, by kind",
                table(["kind", "calls"], failed) if failed else note("None in the studies that are listed."),
            ),
        ]
        state = "runs" if alive else "does not run, or its state can't be read"
        result = f"The coordinator of {kit.federation} at {kit.server} {state}. fedspan {here}."
        body = join(
            [header(f"Federation {kit.federation}", result, tiles, "failed" if counts["failed"] else ""), *parts], "\n"
        )
        links = {"/": "Federation", "/log": "Log"}
        page = whole_page(
            f"Federation {kit.federation}", body, links=links, here="/", token=visit.form_token, reload=RELOAD
        )
        return Answer(page.encode("utf-8", "replace"))

    def log(self, visit: Visit) -> Answer:
        """Show the end of the coordinator's log, or of a study's."""
        study = visit.values.get("study", "")
        file = self._study(study) / "log.txt" if study else self._kit.path / "log.txt"
        try:
            text = file.read_bytes()[-(2**16) :].decode("utf-8", "replace")
        except OSError:
            text = ""
        lines = Html(f"<pre>{esc(text, 2**16)}</pre>") if text else note("Nothing is logged.")
        title = f"Log of the study {study}" if study else "Log of the coordinator"
        links = {"/": "Federation", "/log": "Log"}
        body = section("log", title, lines)
        return Answer(
            whole_page(title, body, links=links, here="/log", token=visit.form_token).encode("utf-8", "replace")
        )

    def report(self, visit: Visit) -> Answer:
        """Return the report of a finished study."""
        file = self._study(visit.values.get("study", "")) / "results" / "report.html"
        try:
            return Answer(file.read_bytes(), policy=SANDBOX)
        except OSError:
            raise InputError("This study has no report.") from None

    def metrics(self) -> str:
        """Return figures for monitors."""
        online, studies = self._online(), self._studies()
        counts = Counter(about["state"] for about in studies)
        calls = sum(int(about["progress"].get("calls", 0)) for about in studies)
        failures: Counter[str] = Counter()
        for about in studies:
            failures.update(
                {f'kind="{kind}"': number for kind, number in about["progress"].get("failures", {}).items()}
            )
        found: list[Metric] = [
            build_info(),
            ("fedspan_coordinator_up", "gauge", "Whether the coordinator writes its state.", {"": bool(online)}),
            ("fedspan_coordinator_sites", "gauge", "Sites of the federation.", {"": len(self._kit.sites)}),
            (
                "fedspan_coordinator_sites_online",
                "gauge",
                "Sites that are connected.",
                {"": len(online.get("online", {}))},
            ),
            (
                "fedspan_coordinator_studies",
                "gauge",
                "Detached studies by state.",
                {f'state="{state}"': float(counts[state]) for state in STATES},
            ),
            ("fedspan_coordinator_calls", "gauge", "Calls of the detached studies on disk.", {"": calls}),
            ("fedspan_coordinator_failures", "gauge", "Failures of sites in them, by kind.", failures),
        ]
        return exposition(found)

    def _online(self) -> dict[str, Any]:
        """Return what the coordinator has written of its sites; nothing where that is old."""
        found = _json(self._kit.path / "online.json")
        return found if abs(time.time() - float(found.get("when", 0.0))) < OLD else {}

    def _studies(self) -> list[dict[str, Any]]:
        """Return all studies, the latest first."""
        folder = self._kit.path / "studies"
        found = []
        for path in folder.iterdir() if folder.is_dir() else ():
            about = _json(path / "about.json")
            if {"study", "who", "state", "since", "title"} <= about.keys():
                has = about["state"] == "done" and (path / "results" / "report.html").is_file()
                found.append(about | {"progress": _json(path / "progress.json"), "has_report": has})
        return sorted(found, key=lambda about: (-float(about["since"]), about["study"]))

    def _study(self, name: str) -> Path:
        known = {about["study"] for about in self._studies()}
        if name not in known:
            raise InputError("There is no such study.")
        return self._kit.path / "studies" / name


def _row(about: dict[str, Any]) -> list[object]:
    progress, name = about["progress"], esc(about["study"])
    state = str(about["state"])
    if state == "running":
        state += f": {progress_words(progress)}"
    elif about.get("why"):
        state += f": {about['why']}"
    since = datetime.fromtimestamp(float(about["since"]), UTC).strftime("%Y-%m-%d %H:%M UTC")
    report = Html(f'<a href="/report?study={name}">report</a>') if about["has_report"] else "–"
    link = Html(f'<a href="/log?study={name}">{name}</a>')
    return [link, about["who"], about["title"], state, since, report]


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json_value(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}

"""The site directory: what the sites of a federation report about themselves, and the exchange of their keys."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedspan.engines.remote.coordinator.signed_requests import Answer, SignedRequests
from fedspan.engines.remote.messages.envelope import MISREAD, Opened
from fedspan.engines.remote.messages.environment import differences, fedspan_version
from fedspan.federation import SecureSum
from fedspan.owner.schema import NUMBERS

#: Seconds, and bytes, for requests that run no step.
CONTROL_SECONDS = 10.0
CONTROL_BYTES = 2**20


@dataclass(frozen=True)
class SiteReport:
    """What a site reports about itself, or why it does not (`refused`).

    `version` is fedspan's, `environment` what else decides the last bits of a result; `fingerprint` has shape and kind
    of the data; `busy` is what it is doing; `instance` changes when its process restarts; `key` is its signed key for
    secure sums. `rows`, `columns` (with kinds) and `allowed` (steps) are there where its owner publishes them.
    """

    version: str = ""
    refused: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    steps: tuple[str, ...] = ()
    busy: str = ""
    key: bytes = b""
    instance: str = ""
    rows: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()


class SiteDirectory:
    """Keeps the sites' reports.

    Parameters
    ----------
    requests : SignedRequests
    secure : SecureSum or None
        Sites exchange keys, for runs of secure sums.

    Attributes
    ----------
    reports, refused : dict of SiteReport, by site
    """

    def __init__(self, requests: SignedRequests, secure: SecureSum | None = None) -> None:
        self.reports: dict[str, SiteReport] = {}
        self.refused: dict[str, SiteReport] = {}
        self._requests = requests
        self._secure = secure
        self._refused_keys: dict[str, str] = {}  # by site: why it did not accept the others' keys
        self._warned: set[str] = set()

    def refresh(self, sites: Sequence[str], deadline: float = CONTROL_SECONDS) -> None:
        """Request the sites' reports."""
        for site, answer in self._requests.send("hello", "", {}, {}, sites, deadline, CONTROL_BYTES).items():
            report = _read(answer)
            known, other = (self.refused, self.reports) if report.refused else (self.reports, self.refused)
            known[site] = report
            other.pop(site, None)

    def warn(self) -> None:
        """Warn, once each, of differences that may change the last bits of a result, and of kinds that differ."""
        texts = []
        for site, report in self.reports.items():
            others = differences(report.environment)
            if others:
                texts.append(f"site {site!r} has {', '.join(others)}: the last bits of results may differ")
        differ = kinds_that_differ({site: report.columns for site, report in self.reports.items()})
        texts += [f"the sites' tables differ: {differ}"] if differ else []
        for text in texts:
            if text not in self._warned:
                self._warned.add(text)
                warnings.warn(text, stacklevel=3)

    def exchange_keys(self, runs: Iterable[str]) -> None:
        """Send all sites' keys to all sites, for these runs; each site checks them itself."""
        if self._secure is None:
            return
        parts = {site: report.key for site, report in self.reports.items()}
        self._refused_keys = {}
        for run in runs:
            head = {"least": self._secure.least}
            answers = self._requests.send("keys", run, head, parts, list(parts), CONTROL_SECONDS, CONTROL_BYTES)
            for site, answer in answers.items():
                if isinstance(answer, Opened) and answer.head["kind"] != "done":
                    self._refused_keys[site] = str(answer.head.get("why"))[:1000]

    def refresh_restarted(self, run: str, answers: Mapping[str, Answer]) -> None:
        """Refresh the reports of sites that have restarted, by their answers, and exchange the new keys."""
        restarted = []
        for site, answer in answers.items():
            known = self.reports[site].instance if site in self.reports else None
            if isinstance(answer, Opened) and answer.head.get("instance") != known:
                restarted.append(site)
        if restarted:
            self.refresh(restarted)
            self.exchange_keys([run])

    def objection(self, site: str) -> str:
        """Return why a site can't take part, by what is known; empty if it can. Nothing is sent to it otherwise."""
        report, mine = self.reports.get(site), fedspan_version()
        if report is not None and report.version != mine:
            return f"site {site!r} runs fedspan {report.version}, and this is fedspan {mine}: use one version"
        return self._refused_keys.get(site, "")


def _read(answer: Answer) -> SiteReport:
    if not isinstance(answer, Opened):
        return SiteReport(refused=answer.detail or str(answer.kind))
    if answer.head["kind"] != "about":
        return SiteReport(refused=str(answer.head.get("why"))[:1000] or "no reason given")
    try:
        about = json.loads(bytes(answer.parts["about"]))
        if about.get("refused"):
            return SiteReport(str(about["version"])[:100], str(about["refused"])[:1000])
        rows, columns, allowed = _published(answer.parts.get("owner", b"{}"))
        return SiteReport(
            version=str(about["version"]),
            environment={str(key): str(value) for key, value in about["environment"].items()},
            fingerprint=str(about["fingerprint"])[:1000],
            steps=tuple(map(str, about["steps"])),
            busy=str(about["busy"])[:200],
            key=bytes(answer.parts["key"]),
            instance=str(answer.head["instance"]),
            rows=rows,
            columns=columns,
            allowed=allowed,
        )
    except MISREAD:
        return SiteReport(refused="the answer lacks a field that it must have")


def _published(owner: Any) -> tuple[int | None, dict[str, str], tuple[str, ...]]:
    """Return the rows, kinds of columns and allowed steps that a site's owner publishes; none if it is unreadable."""
    try:
        about = json.loads(bytes(owner))
        columns = {str(name)[:200]: str(kind)[:20] for name, kind in about.get("columns", {}).items()}
        rows = about.get("rows")
        return None if rows is None else int(rows), columns, tuple(map(str, about.get("steps", ())))
    except MISREAD:
        return None, {}, ()


def kinds_that_differ(sites: Mapping[str, Mapping[str, str]]) -> str:
    """Return a sentence about the columns whose kinds differ between sites, empty where all agree.

    >>> kinds_that_differ({"north": {"age": "integer"}, "south": {"age": "number"}})
    ''
    >>> kinds_that_differ({"north": {"age": "integer"}, "south": {"age": "text"}})
    "column 'age' holds numbers at north and text at south"
    """
    found = []
    for name in sorted({name for columns in sites.values() for name in columns}):
        kinds: dict[str, list[str]] = {}
        for site, columns in sorted(sites.items()):
            if name in columns:
                kinds.setdefault("numbers" if columns[name] in NUMBERS else columns[name], []).append(site)
        if len(kinds) > 1:
            parts = [f"{kind} at {', '.join(where)}" for kind, where in kinds.items()]
            found.append(f"column {name!r} holds {' and '.join(parts)}")
    return "; ".join(found[:5]) + (f"; and {len(found) - 5} more columns" if len(found) > 5 else "")

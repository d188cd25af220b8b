"""The site directory: what sites report, which of them are offline, and the exchange of their keys."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

from fedspan.checks import first_of, json_value
from fedspan.engines.remote.coordinator.signed_requests import Answer, SignedRequests
from fedspan.engines.remote.messages.envelope import APART, MISREAD, Opened
from fedspan.engines.remote.messages.environment import differences, fedspan_version
from fedspan.engines.remote.messages.key_exchange import is_valid_key
from fedspan.federation import SecureSum
from fedspan.federation.outcomes import Failure
from fedspan.federation.site.step_digests import altered, differing, digests, neighbours
from fedspan.owner.schema import NUMBERS
from fedspan.wire import Message

#: Seconds, and bytes, for requests that run no step.
CONTROL_SECONDS, CONTROL_BYTES = 10.0, 2**20
#: Seconds that one probe of an offline site may take. The pause after it is longer by this factor, so that probes take
#: at most a tenth of the time.
_PROBE, _REST = 2.0, 9
#: The first and the longest pause, in seconds, while waiting for a site.
_PAUSES = (0.02, 1.0)
#: Seconds of waiting for sites before the user reads why, and between two sentences.
_SILENT, _BETWEEN = 3.0, 15.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SiteReport:
    """What a site reports about itself, or why it does not (`refused`).

    `version` is fedspan's, `steps` has the digests of its steps and transforms, `environment` what else decides the
    last bits of a result; `fingerprint` has shape and kind of the data; `busy` is what it is doing; `instance` changes
    when its process restarts; `key` is its signed key for secure sums; `max_bytes` is the size of the largest request
    that it accepts. `rows`, `columns` (with kinds), `target`, `task` and `allowed` (steps) are there where its owner
    publishes them; `approval` is true where the owner approves each study before it runs. `altered` are the steps that
    another checkout of the same version has in another form.
    """

    version: str = ""
    refused: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    busy: str = ""
    key: bytes = b""
    instance: str = ""
    max_bytes: int = 0
    rows: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    task: str | None = None
    approval: bool = False
    steps: Mapping[str, str] = field(default_factory=dict)
    altered: frozenset[str] = frozenset()


@dataclass(frozen=True)
class HeldCalls:
    """The calls of a run whose effect a site has on its disk: all up to `settled`, and `pending`."""

    settled: int
    pending: int

    def lacks(self, number: int) -> bool:
        """Return whether the site has lost what an accepted call did."""
        return number > self.settled and number != self.pending


class SiteDirectory:
    """Keeps the sites' reports (`reports` and `refused`, by site), and sends all requests.

    A site that did not answer gets no request before a short probe has reached it. With `secure`, sites exchange keys
    for runs of secure sums, those that are `open_runs`.
    """

    def __init__(self, requests: SignedRequests, secure: SecureSum | None = None) -> None:
        self.reports: dict[str, SiteReport] = {}
        self.refused: dict[str, SiteReport] = {}
        self.open_runs: set[str] = set()
        self.study = ""  # the ticket of the study that was proposed
        self._requests = requests
        self._secure = secure
        self._offline: dict[str, str] = {}  # by site: the reason
        self._next_probe: dict[str, float] = {}
        self._refused_keys: dict[str, str] = {}  # by site: why it did not accept the others' keys
        self._warned: set[str] = set()
        self._version = requests.authority.version

    def follow_members(self) -> None:
        """Where the list of participants has changed: drop sites that left, and exchange the keys of the others."""
        authority = self._requests.authority
        if authority.version == self._version:
            return
        self._version = authority.version
        listed = authority.sites
        for known in (self.reports, self.refused):
            for site in [site for site in known if site not in listed]:
                del known[site]
        self.refresh([site for site in self.reports if site not in self._offline])
        self.exchange_keys(self.open_runs)

    def send(
        self,
        kind: str,
        run: str,
        to: Sequence[str],
        head: Message | None = None,
        parts: Mapping[str, bytes] | None = None,
        seconds: float = CONTROL_SECONDS,
        max_bytes: int = CONTROL_BYTES,
    ) -> dict[str, Answer]:
        """Send a request to the sites `to` within this time, and return the answer of each, in their order."""
        answers = dict(self.arriving(kind, run, to, head, parts, seconds, max_bytes))
        return {site: answers[site] for site in to}

    def arriving(
        self,
        kind: str,
        run: str,
        to: Sequence[str],
        head: Message | None,
        parts: Mapping[str, bytes] | None,
        seconds: float,
        max_bytes: int,
    ) -> Iterator[tuple[str, Answer]]:
        """Send a request to the sites `to`; yield each answer when it arrives, and record which sites are offline."""
        for site, answer in self._requests.send(kind, run, head or {}, parts or {}, to, seconds, max_bytes):
            if isinstance(answer, Failure) and answer.offline:
                self.lost(site, answer.detail)
            yield site, answer
            del answer  # a message, which only the caller may keep

    def lost(self, site: str, reason: str) -> None:
        """Record that a site did not answer, or is busy."""
        if site not in self._offline:
            self._next_probe[site] = 0.0
        self._offline[site] = reason

    def offline(self, sites: Iterable[str]) -> dict[str, str]:
        """Return which of the sites are offline, with the reason, after a probe of those that may be back."""
        absent = [site for site in sites if site in self._offline]
        if absent:
            now, online = monotonic(), self._requests.transport.online()
            due = [site for site in absent if site in online and now >= self._next_probe[site]]
            if due:
                self._probe(due, now)
        return {site: self._offline[site] for site in absent if site in self._offline}

    def _probe(self, sites: list[str], began: float) -> None:
        answered = self.refresh(sites, _PROBE)
        back = [site for site in sites if site in self.reports and not self.reports[site].busy]
        if back:
            not_yet = self.exchange_keys(self.open_runs)
            back = [site for site in back if site not in not_yet]
        now = monotonic()
        for site in sites:
            self._next_probe[site] = now + _REST * (now - began)
            refuses = site in answered and site in self.refused and not self.refused[site].busy
            if site in back or refuses:  # calls get the reason of one that refuses
                del self._offline[site]

    def wait(self, sites: Sequence[str], seconds: float) -> bool:
        """Wait, at most `seconds`, until one of the sites is back; return whether one is. Log which, and why."""
        began = monotonic()
        pause, longest = _PAUSES
        shown, next_line = "", began + _SILENT
        while len(offline := self.offline(sites)) == len(sites):
            now = monotonic()
            left = began + seconds - now
            if left <= 0:
                return False
            if now >= next_line and (words := _waiting(offline)) != shown:
                _log.warning("%s", words)
                shown, next_line = words, now + _BETWEEN
            sleep(min(pause, left))
            pause = min(1.5 * pause, longest)
        return True

    def refresh(self, sites: Sequence[str], seconds: float = CONTROL_SECONDS) -> list[str]:
        """Request the sites' reports; return the sites that answered."""
        answers = self.send("hello", "", sites, seconds=seconds)
        for site, answer in answers.items():
            report = _read(answer)
            known, other = (self.refused, self.reports) if report.refused else (self.reports, self.refused)
            known[site] = report
            other.pop(site, None)
        return [site for site, answer in answers.items() if isinstance(answer, Opened)]

    def held_calls(self, run: str, sites: Sequence[str]) -> dict[str, HeldCalls]:
        """Return what the sites that are online have on their disks of a run of this user."""
        online = [site for site in sites if site in self.reports]
        found = {}
        for site, answer in self.send("hello", run, online).items():
            with suppress(*MISREAD):
                if isinstance(answer, Opened):
                    settled, pending = json_value(bytes(answer.parts["about"]))["calls"]
                    found[site] = HeldCalls(int(settled), int(pending))
        return found

    def warn(self) -> None:
        """Warn, once each, of differences that may change the last bits of a result, and of kinds that differ."""
        texts = []
        for site, report in self.reports.items():
            other = report.version != fedspan_version() and neighbours(report.version, fedspan_version())
            if other and (changed := differing(report.steps, digests())):
                texts.append(
                    f"site {site!r} runs fedspan {report.version}, and this is fedspan {fedspan_version()}; these "
                    f"steps differ, and are not requested from it: {first_of(changed)}"
                )
            if report.altered:
                texts.append(
                    f"site {site!r} has another checkout of fedspan {report.version}; these steps differ, and are not "
                    f"requested from it: {first_of(sorted(report.altered))}"
                )
            others = differences(report.environment)
            if others:
                texts.append(f"site {site!r} has {', '.join(others)}: the last bits of results may differ")
        differ = kinds_that_differ({site: report.columns for site, report in self.reports.items()})
        texts += [f"the sites' tables differ: {differ}"] if differ else []
        for text in texts:
            if text not in self._warned:
                self._warned.add(text)
                warnings.warn(text, stacklevel=3)

    def exchange_keys(self, runs: Iterable[str]) -> set[str]:
        """Send all sites' keys to all sites, for these runs; each site checks them itself.

        Return the sites that can't take them now, because they are paused for example. They count as offline.
        """
        not_yet: set[str] = set()
        if self._secure is None:
            return not_yet
        authority = self._requests.authority
        parts = {site: report.key for site, report in self.reports.items() if is_valid_key(report.key, authority)}
        self._refused_keys = {}
        for run in runs:
            for site, answer in self.send("keys", run, list(parts), {"least": self._secure.least}, parts).items():
                if isinstance(answer, Opened) and answer.head["kind"] != "done":
                    why = str(answer.head.get("why"))[:1000]
                    if answer.head.get("again") is True:
                        self.lost(site, why)
                        not_yet.add(site)
                    else:
                        self._refused_keys[site] = why
        return not_yet

    def refresh_restarted(self, run: str, instances: Mapping[str, object]) -> None:
        """Refresh the reports of sites that have restarted, by the `instances` that answered, and exchange new keys."""
        known = {site: self.reports[site].instance if site in self.reports else None for site in instances}
        restarted = [site for site in instances if instances[site] != known[site]]
        if restarted:
            self.refresh(restarted)
            self.exchange_keys([run])

    def too_large(self, site: str, parts: Mapping[str, bytes]) -> str:
        """Return why a request is too large for a site, which has reported its limit; empty if it is not."""
        size = sum(len(part) for name, part in parts.items() if not name.startswith(APART) or name == APART + site)
        limit = self.reports[site].max_bytes if site in self.reports else size
        return f"the request has {size:,} bytes, and site {site!r} accepts at most {limit:,}" if size > limit else ""

    def removed(self, sites: Iterable[str]) -> dict[str, str]:
        """Return which of the sites have left the federation, with a sentence."""
        listed = self._requests.authority.sites
        return {
            site: f"site {site!r} was removed from the federation" for site in sites if listed and site not in listed
        }

    def objection(self, site: str, ids: Iterable[str] = ()) -> str:
        """Return why a site can't take part in these steps and transforms, by what is known; empty if it can.

        Nothing is sent to it otherwise.
        """
        report, mine = self.reports.get(site), fedspan_version()
        if report is not None and not neighbours(report.version, mine):
            return f"site {site!r} runs fedspan {report.version}, and this is fedspan {mine}: use one version"
        if report is not None and report.version != mine and (differ := differing(report.steps, ids)):
            return (
                f"site {site!r} runs fedspan {report.version}, and this is fedspan {mine}, in which {differ[0]!r} "
                "differs: use one version"
            )
        if report is not None and (other := [id for id in ids if id in report.altered]):
            return f"site {site!r} has another checkout of fedspan {mine}, in which {other[0]!r} differs: use one"
        return self._refused_keys.get(site, "")


def _waiting(offline: Mapping[str, str]) -> str:
    """Describe for which sites a run waits, with their reasons.

    >>> _waiting({"south": "no answer within the deadline", "west": "west is not connected"})
    'waiting for south, west: no answer within the deadline; west is not connected'
    """
    return f"waiting for {first_of(sorted(offline))}: {'; '.join(sorted(set(offline.values()))[:10])}"


def _read(answer: Answer) -> SiteReport:
    if not isinstance(answer, Opened):
        return SiteReport(refused=answer.detail or str(answer.kind))
    if answer.head["kind"] != "about":
        why = str(answer.head.get("why"))[:1000] or "no reason given"
        return SiteReport(refused=why, busy=why if answer.head.get("again") is True else "")
    try:
        about = json_value(bytes(answer.parts["about"]))
        if about.get("refused"):
            return SiteReport(str(about["version"])[:100], str(about["refused"])[:1000])
        steps = {str(id): str(digest) for id, digest in about.get("steps", {}).items()}
        return SiteReport(
            version=str(about["version"]),
            steps=steps,
            altered=altered(steps) if about["version"] == fedspan_version() else frozenset(),
            environment={str(key): str(value) for key, value in about["environment"].items()},
            fingerprint=str(about["fingerprint"])[:1000],
            busy=str(about["busy"])[:200],
            key=bytes(answer.parts["key"]),
            instance=str(answer.head["instance"]),
            max_bytes=int(about["max_bytes"]),
            **_published(answer.parts.get("owner", b"{}")),
        )
    except MISREAD:
        return SiteReport(refused="the answer lacks a field that it must have")


def _published(owner: Any) -> dict[str, Any]:
    """Return what a site's owner publishes of its table and rules; nothing if it is unreadable."""
    try:
        about = json_value(bytes(owner))
        rows, target, task = about.get("rows"), about.get("target"), about.get("task")
        return {
            "rows": None if rows is None else int(rows),
            "columns": {str(name)[:200]: str(kind)[:20] for name, kind in about.get("columns", {}).items()},
            "allowed": tuple(map(str, about.get("steps", ()))),
            "target": tuple(map(str, target)) if isinstance(target, list) else () if target is None else (str(target),),
            "task": None if task is None else str(task),
            "approval": about.get("approval") is True,
        }
    except MISREAD:
        return {}


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

"""Sums over the calls of a few runs: by site, by step, by reason of failure. Numbers only, no markup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fedspan.federation.record import CallRecord, RunRecord

_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")


@dataclass
class SiteTotals:
    """What one site did in all runs."""

    asked: int = 0
    answered: int = 0
    failed: int = 0
    down: int = 0
    up: int = 0

    def __iadd__(self, other: SiteTotals) -> SiteTotals:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self


@dataclass
class StepTotals:
    """What one step of one run came to."""

    step: str
    calls: int = 0
    replayed: int = 0
    asked: int = 0
    answered: int = 0
    failed: int = 0
    down: int = 0
    up: int = 0
    seconds: float = 0.0

    def add(self, call: CallRecord) -> None:
        """Count a call."""
        self.calls += 1
        self.replayed += call.replayed
        self.asked += len(call.asked)
        self.answered += len(call.answered)
        self.failed += len(call.failed)
        self.down += sum(call.bytes_down.values())
        self.up += sum(call.bytes_up.values())
        self.seconds += call.seconds


@dataclass
class Reason:
    """A reason for failures: as it was first given, how often, by whom, in which steps."""

    text: str
    count: int = 0
    sites: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)


def by_site(records: Iterable[RunRecord], also: Iterable[str] = ()) -> dict[str, SiteTotals]:
    """Return the totals of every site of the runs, and of those named in `also`, sorted by name.

    Examples
    --------
    >>> call = CallRecord(0, "f", None, ("a", "b"), ("a",), {"b": "no reply"}, {"a": 5, "b": 5}, {"a": 7}, 0.1)
    >>> record = RunRecord("demo", {}, number=0, seed=0, sites=("a", "b"), calls=[call])
    >>> by_site([record])["b"]
    SiteTotals(asked=1, answered=0, failed=1, down=5, up=0)
    """
    sums: dict[str, Counter[str]] = {name: Counter() for name in ("asked", "answered", "failed", "down", "up")}
    names = set(also)
    for record in records:
        names.update(record.sites)
        for call in record.calls:
            sums["asked"].update(call.asked)
            sums["answered"].update(call.answered)
            sums["failed"].update(call.failed.keys())
            sums["down"].update(call.bytes_down)
            sums["up"].update(call.bytes_up)
    names.update(*sums.values())
    return {site: SiteTotals(**{what: sums[what][site] for what in sums}) for site in sorted(names)}


def by_step(record: RunRecord) -> list[StepTotals]:
    """Return the totals of every step of a run, in the order in which the steps were first called."""
    totals: dict[str, StepTotals] = {}
    for call in record.calls:
        totals.setdefault(call.step, StepTotals(call.step)).add(call)
    return list(totals.values())


def by_reason(records: Iterable[RunRecord]) -> list[Reason]:
    """Return the reasons of all failures, the most frequent first.

    Reasons that differ in numbers or in the step's name alone are one reason: "a reply to call 3 came for call 4" comes
    with many numbers, and a budget that is spent with every step that is refused for it.

    Examples
    --------
    >>> def call(n):
    ...     return CallRecord(n, "f", None, ("a",), (), {"a": f"late by {n} s"}, {}, {}, 0.0)
    >>> record = RunRecord("demo", {}, number=0, seed=0, sites=("a",), calls=[call(1), call(2)])
    >>> [(reason.text, reason.count) for reason in by_reason([record])]
    [('late by 1 s', 2)]
    """
    found: dict[str, Reason] = {}
    for record in records:
        for call in record.calls:
            for site, text in call.failed.items():
                alike = _NUMBER.sub("#", text.replace(repr(call.step), "@"))
                reason = found.setdefault(alike, Reason(text))
                reason.count += 1
                reason.sites[site] += 1
                reason.steps[call.step] += 1
    return sorted(found.values(), key=lambda reason: -reason.count)


def run_names(records: Sequence[RunRecord]) -> list[str]:
    """Return a name for each run: what ran, with its number where the same thing ran twice.

    Examples
    --------
    >>> runs = [RunRecord(what, {}, number=n, seed=0, sites=()) for n, what in enumerate(["A", "B", "A"])]
    >>> run_names(runs)
    ['A (run 0)', 'B', 'A (run 2)']
    """
    often = Counter(record.what for record in records)
    return [f"{r.what} (run {r.number})" if often[r.what] > 1 else r.what for r in records]

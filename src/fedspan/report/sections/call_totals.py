"""Sums over the calls of runs, by site and by step, and rounds counted through a run. Numbers only, no markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from fedspan.federation.record import CallRecord, RunRecord


@dataclass
class Totals:
    """Calls, requested, usable and failed replies, bytes and seconds: of a site, a step, or all together."""

    calls: int = 0
    replayed: int = 0
    requested: int = 0
    answered: int = 0
    failed: int = 0
    down: int = 0
    up: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, call: CallRecord) -> Totals:
        """Return the totals of one call."""
        sizes = sum(call.bytes_down.values()), sum(call.bytes_up.values())
        return cls(1, call.replayed, len(call.asked), len(call.answered), len(call.failed), *sizes, call.seconds)

    @classmethod
    def all(cls, totals: Iterable[Totals]) -> Totals:
        """Return the sum of totals."""
        found = list(totals)
        return cls(*(sum(getattr(one, field.name) for one in found) for field in fields(cls)))


def by_site(records: Iterable[RunRecord], also: Iterable[str] = ()) -> dict[str, Totals]:
    """Return the replies and bytes of every site of the runs, and of those named in `also`, sorted by name."""
    sums: dict[str, Counter[str]] = {name: Counter() for name in ("requested", "answered", "failed", "down", "up")}
    names = set(also)
    for record in records:
        names.update(record.sites)
        for call in record.calls:
            given = (call.asked, call.answered, call.failed.keys(), call.bytes_down, call.bytes_up)
            for counter, more in zip(sums.values(), given, strict=True):
                counter.update(more)
    names.update(*sums.values())
    return {site: Totals(**{what: sums[what][site] for what in sums}) for site in sorted(names)}


def by_step(records: Iterable[RunRecord]) -> dict[str, Totals]:
    """Return the totals of every step of the runs, in the order in which the steps were first called."""
    calls: dict[str, list[Totals]] = {}
    for call in (call for record in records for call in record.calls):
        calls.setdefault(call.step, []).append(Totals.of(call))
    return {step: Totals.all(found) for step, found in calls.items()}


def run_names(records: Sequence[RunRecord]) -> list[str]:
    """Return a name for each run: what ran, with its number where the same ran twice."""
    often = Counter(record.what for record in records)
    return [f"{r.what} (run {r.number})" if often[r.what] > 1 else r.what for r in records]


class Round(NamedTuple):
    """One round: its loop in the run (from 0), and the number of rounds that the run had before it."""

    loop: int
    number: int


@dataclass(frozen=True)
class RoundIndex:
    """The rounds of a run's calls and metrics, in their order; None outside of loops."""

    calls: list[Round | None]
    metrics: list[Round | None]

    @property
    def total(self) -> int:
        """The number of rounds in which a site was called."""
        return len({found.number for found in self.calls if found is not None})


def round_index(record: RunRecord) -> RoundIndex:
    """Count the rounds of a run through all of its loops, each of which begins at round 0.

    A loop begins where the number of the round falls, or where the run was outside of all loops before.
    """
    # Metrics that are logged after a call, and before the next one, have its number.
    events = [(call.number, 0, i, call.round) for i, call in enumerate(record.calls)]
    events += [(entry.call, 1, i, entry.round) for i, entry in enumerate(record.metrics)]
    found = RoundIndex([None] * len(record.calls), [None] * len(record.metrics))
    loop, before, number = -1, 0, -1
    last: int | None = None
    for _, kind, i, turn in sorted(events, key=lambda event: event[:3]):
        if turn is not None:
            if last is None or turn < last:
                loop, before = loop + 1, number + 1
            number = before + turn
            (found.metrics if kind else found.calls)[i] = Round(loop, number)
        last = turn
    return found

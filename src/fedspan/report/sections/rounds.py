"""Rounds counted through a run: a protocol may have several loops, and each of them begins at round 0."""

from __future__ import annotations

from dataclasses import dataclass

from fedspan.federation.record import RunRecord


@dataclass(frozen=True)
class Turn:
    """One round: of which loop of the run (from 0), and how many rounds the run had before it."""

    loop: int
    number: int


@dataclass(frozen=True)
class Turns:
    """The rounds of a run's calls and metrics, in their order; None outside of loops."""

    calls: list[Turn | None]
    metrics: list[Turn | None]

    @property
    def asked(self) -> int:
        """In how many rounds somebody was asked."""
        return len({turn.number for turn in self.calls if turn is not None})


def turns(record: RunRecord) -> Turns:
    """Count the rounds of a run through all of its loops.

    A loop begins where the number of the round falls, or where the run was outside of all loops before.

    Examples
    --------
    >>> from fedspan.federation.record import Metrics
    >>> record = RunRecord("demo", {}, number=0, seed=0, sites=())
    >>> record.metrics += [Metrics(i, turn, {"loss": 1.0}) for i, turn in enumerate([0, 1, 0, 1, None, 2])]
    >>> [turn and (turn.loop, turn.number) for turn in turns(record).metrics]
    [(0, 0), (0, 1), (1, 2), (1, 3), None, (2, 6)]
    """
    # What is logged after a call, and before the next one, bears its number.
    events = [(call.number, 0, i, call.round) for i, call in enumerate(record.calls)]
    events += [(entry.call, 1, i, entry.round) for i, entry in enumerate(record.metrics)]
    found = Turns([None] * len(record.calls), [None] * len(record.metrics))
    loop, before, number = -1, 0, -1
    last: int | None = None
    for _, kind, i, turn in sorted(events, key=lambda event: event[:3]):
        if turn is not None:
            if last is None or turn < last:
                loop, before = loop + 1, number + 1
            number = before + turn
            (found.metrics if kind else found.calls)[i] = Turn(loop, number)
        last = turn
    return found

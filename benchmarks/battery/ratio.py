"""A ratio of times, theirs over ours, with its spread.

Ours and theirs take turns, and the ratio of a turn is that of neighbours in time: what else the machine does hits both.
Times are those of the processor, which other programs do not add to. The time on the clock is taken beside it, in the
same turns: a sleep or a lock is in that one alone. Everybody has one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ENOUGH = 0.02  # seconds of the processor: what is shorter is done several times in a turn
PATIENCE = 1.0  # seconds on the clock: no more of what mostly waits


@dataclass(frozen=True)
class Fresh:
    """Work on something that is made again each time, which does not count: a federation that remembers nothing."""

    make: Callable[[], Any]
    run: Callable[[Any], Any]


Work = Callable[[], Any] | Fresh
Spent = np.ndarray  # two numbers: seconds of the processor, seconds on the clock


@dataclass(frozen=True)
class Ratio:
    """How many times as long a peer takes.

    Attributes
    ----------
    what : str
        What is done, and how much of it.
    peer : str
        Who else does it.
    turns : tuple of float
        Their time over ours, of each turn. Above 1: ours is faster.
    ours, theirs : float
        Median seconds.
    accuracy : str
        In words and numbers, what makes the two comparable.
    quality : dict of str to (ours, theirs)
        Measures of the results of which more is better, where these are not simply equal.
    clock : (ours, theirs), optional
        Median seconds on the clock, of the same turns.
    """

    what: str
    peer: str
    turns: tuple[float, ...]
    ours: float
    theirs: float
    accuracy: str = ""
    quality: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    clock: tuple[float, float] | None = None

    @classmethod
    def of(cls, what: str, peer: str, ours: Sequence[Spent], theirs: Sequence[Spent], accuracy: str = "") -> Ratio:
        """Make the ratio of what each turn has spent."""
        (mine, my_clock), (other, their_clock) = (np.median(spent, axis=0).tolist() for spent in (ours, theirs))
        turns = tuple(float(b[0] / a[0]) for a, b in zip(ours, theirs, strict=True))
        return cls(what, peer, turns, mine, other, accuracy, clock=(my_clock, their_clock))

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """First quartile, median and third quartile of the turns."""
        low, middle, high = np.percentile(self.turns, [25, 50, 75])
        return float(low), float(middle), float(high)

    @property
    def name(self) -> str:
        """What and against whom: one of a kind."""
        return f"{self.what} | {self.peer}"

    def line(self) -> str:
        """Return a line to print."""
        low, middle, high = self.quartiles
        spread = f"{figure(middle)}x [{figure(low)}, {figure(high)}]"
        measures = "; ".join(f"{name} {a:.4f} (theirs {b:.4f})" for name, (a, b) in self.quality.items())
        remark = "; ".join(part for part in (self.accuracy, measures) if part)
        times = f"ours {duration(self.ours)}, theirs {duration(self.theirs)}"
        return f"{spread:>24}  {self.peer}; {times}" + f"; {remark}" * bool(remark)


@dataclass(frozen=True)
class LeftOut:
    """Comparisons that could not be made here, and why.

    Attributes
    ----------
    module, why : str
    peers : str
        How the names of the peers begin that are missing; of all, where it is empty.
    """

    module: str
    why: str
    peers: str = ""

    def __str__(self) -> str:
        return f"{self.module}: {self.why}"


def compared(
    what: str,
    ours: Work,
    peers: Mapping[str, Work],
    *,
    turns: int = 3,
    per: int = 1,
    accuracy: Mapping[str, str] | str = "",
) -> Iterator[Ratio]:
    """Let ours and its peers take turns; yield the ratio of each peer.

    Parameters
    ----------
    turns : int
        In this process. One more is made at first, in which caches are filled and code is compiled, and does not count.
    per : int
        Divide the times by this: rows, sites.
    accuracy : str or dict by peer
    """
    works: dict[str, Work] = {"": ours, **peers}
    spent: dict[str, list[Spent]] = {name: [] for name in works}
    for turn in range(turns + 1):
        for name, work in works.items():
            seconds = seconds_of(work)
            if turn:
                spent[name].append(seconds / per)
    for name in peers:
        remark = accuracy if isinstance(accuracy, str) else accuracy.get(name, "")
        yield Ratio.of(what, name, spent[""], spent[name], remark)


def clocks() -> Spent:
    """Return what the clock of the processor and the one on the wall show: differences are seconds spent."""
    return np.array([time.process_time(), time.perf_counter()])


def seconds_of(work: Work) -> Spent:
    """Return the processor's seconds of one call, the median of as many as fill 20 ms, and those on the clock.

    The latter are the mean: other programs interrupt a few of many short calls, or one long one, for as long in all.
    """
    times: list[float] = []
    walls: list[float] = []
    while not times or (sum(times) < ENOUGH and sum(walls) < PATIENCE):
        thing = work.make() if isinstance(work, Fresh) else None
        wall, start = time.perf_counter(), time.process_time()  # the processor's last: nothing else is between its two
        if isinstance(work, Fresh):
            work.run(thing)
        else:
            work()
        end = time.process_time()
        times.append(end - start)
        walls.append(time.perf_counter() - wall)
    return np.array([np.median(times), np.mean(walls)])


def processor_seconds(work: Work) -> float:
    """Return the processor's seconds of one call."""
    return float(seconds_of(work)[0])


def figure(value: float) -> str:
    """Return a number to two digits, or more where they are there anyway.

    >>> figure(123.4), figure(12.34), figure(1.234), figure(0.1001), figure(0.01234)
    ('123', '12', '1.2', '0.10', '0.012')
    """
    if value >= 9.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 0.995 else f"{value:#.2g}"


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it.

    >>> duration(2.5), duration(0.0025), duration(2.5e-6), duration(2.5e-7)
    ('2.5 s', '2.5 ms', '2.5 us', '0.25 us')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{figure(seconds / size)} {unit}"
    return f"{figure(seconds / 1e-6)} us"

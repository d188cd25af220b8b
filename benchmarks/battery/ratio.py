"""A ratio of times, theirs over ours, with its spread.

Ours and theirs take turns, and the ratio of a turn is that of neighbours in time: what else the machine does hits both.
Times are those of the processor, which other programs do not add to: nothing here waits for a disk or a network.
Everybody has one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ENOUGH = 0.02  # seconds: what is shorter is done several times in a turn


@dataclass(frozen=True)
class Fresh:
    """Work on something that is made anew each time, which does not count: a federation that remembers nothing."""

    make: Callable[[], Any]
    run: Callable[[Any], Any]


Work = Callable[[], Any] | Fresh


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
    """

    what: str
    peer: str
    turns: tuple[float, ...]
    ours: float
    theirs: float
    accuracy: str = ""
    quality: Mapping[str, tuple[float, float]] = field(default_factory=dict)

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
        told = "; ".join(part for part in (self.accuracy, measures) if part)
        times = f"ours {duration(self.ours)}, theirs {duration(self.theirs)}"
        return f"{spread:>24}  {self.peer}; {times}" + f"; {told}" * bool(told)


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
    spent: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns + 1):
        for name, work in works.items():
            seconds = processor_seconds(work)
            if turn:
                spent[name].append(seconds / per)
    for name in peers:
        ratios = tuple(float(b / a) for a, b in zip(spent[""], spent[name], strict=True))
        told = accuracy if isinstance(accuracy, str) else accuracy.get(name, "")
        yield Ratio(what, name, ratios, float(np.median(spent[""])), float(np.median(spent[name])), told)


def processor_seconds(work: Work) -> float:
    """Return the time of one call, the median of as many as fill 20 ms."""
    times: list[float] = []
    while not times or sum(times) < ENOUGH:
        if isinstance(work, Fresh):
            thing = work.make()
            start = time.process_time()
            work.run(thing)
        else:
            start = time.process_time()
            work()
        times.append(time.process_time() - start)
    return float(np.median(times))


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

"""Progress over parts of known relative cost, with the time that is left: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


class TimeLeft:
    """Shows on standard error which part runs, and about how long all of them will still take.

    `costs` are the seconds of each part on a slow machine. Parts that are done show how fast this one is.
    """

    def __init__(self, costs: Mapping[str, float]) -> None:
        self._costs = dict(costs)
        self._done = 0.0
        self._began = time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Show that the part `name` runs, until the block ends."""
        number, left = list(self._costs).index(name) + 1, self.seconds_left()
        words = f"{number} of {len(self._costs)}: {name}"
        total = sum(self._costs.values())
        if sys.stderr.isatty():
            columns = (BarColumn(), TextColumn("{task.description}"))
            with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
                bar.update(bar.add_task(f"{words}, about {left:.0f} s left", total=total), completed=self._done)
                yield
        else:
            print(f"{words}, about {left:.0f} s left", file=sys.stderr)
            yield
        self._done += self._costs[name]

    def seconds_left(self) -> float:
        """Return about how many seconds the parts that are not done will take."""
        left = sum(self._costs.values()) - self._done
        pace = (time.perf_counter() - self._began) / self._done if self._done else 1.0
        return max(1.0, left * pace)

"""Rounds of a run that somebody else's loop counts: an optimiser that calls back now and then."""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

from fedspan.federation import Federation


class Turns:
    """Counts up to `n` rounds of a run, one per call of `next`; a context, that ends the count."""

    def __init__(self, fed: Federation, n: int) -> None:
        self._rounds = cast(Generator[int, None, None], fed.rounds(n))

    def next(self) -> None:
        """Begin the next round, if there is one."""
        next(self._rounds, None)

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *error: object) -> None:
        self._rounds.close()

"""What a site has given away, call by call: the sums of one call over two sets of sites would bare their difference.

The memory outlasts the run, and goes by the run and number of the call itself: a coordinator that was killed, or says
so, may ask for the same sum once more, of the same sites, and gets it under new keys. A call of which the site has
forgotten is one that is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fedspan.errors import FedspanError

_MOST_CALLS = 32  # of one run: calls before these are over


@dataclass
class _Call:
    asked: bytes  # the digest of the question
    alive: tuple[str, ...]  # for whom the masked reply was
    left: tuple[str, ...] = ()  # whose sum this site has helped to uncover


@dataclass
class _Calls:
    over: int = -1  # the last number that is over
    open: dict[int, _Call] = field(default_factory=dict)


class Given:
    """To which question, and for which sites, masked replies and shares were given in each call of each run."""

    def __init__(self) -> None:
        self._runs: dict[str, _Calls] = {}

    def check(self, run: str, number: int, asked: bytes) -> None:
        """Refuse a call that is over, or that this site has answered to another question."""
        calls = self._runs.get(run, _Calls())
        if number <= calls.over:
            raise FedspanError(f"call {number} of this run is over at this site")
        if number in calls.open and calls.open[number].asked != asked:
            raise FedspanError(f"this site has given a masked reply to another question in call {number} of this run")

    def masked(self, run: str, number: int, asked: bytes, alive: tuple[str, ...]) -> None:
        """Take note of a masked reply, or refuse it where there was one for other sites."""
        self.check(run, number, asked)
        calls = self._runs.setdefault(run, _Calls())
        before = calls.open.setdefault(number, _Call(asked, alive))
        if before.alive != alive:
            raise FedspanError(
                f"this site has given a masked reply for another set of sites in call {number} of this run: ask the "
                "same sites, or begin the run anew"
            )
        while len(calls.open) > _MOST_CALLS:
            calls.over = max(calls.over, min(calls.open))
            del calls.open[min(calls.open)]

    def unmasked(self, run: str, number: int, left: tuple[str, ...]) -> None:
        """Take note of shares, or refuse them where there were some for the sum over other sites."""
        calls = self._runs.get(run, _Calls())
        if number not in calls.open:
            raise FedspanError(f"call {number} of this run is over at this site")
        before = calls.open[number]
        if before.left and before.left != left:
            raise FedspanError(
                f"this site has helped to uncover the sum over another set of sites in call {number} of this run: "
                "begin the run anew"
            )
        before.left = left

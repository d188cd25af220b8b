"""Who asks what of a site: all that its owner's rules may look at before a step touches data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Ask:
    """One request as the site's owner sees it: what will be run, and nothing that only the asker says of it.

    `who` and `role` come from the asker's certificate. `step` is the dotted name of the step; in a secure sum, of the
    step that is summed. `how` is ``"ask"``, ``"sum"`` or ``"mean"``, for a round of a secure sum ``"secure"`` and its
    name, and for what is no call ``"hello"``, ``"introduce"`` or ``"end"``. `first` says that it is the run's first
    call at this site, `repeated` that it was answered before, and what was said is said again. `payload` is what the
    step is told; ``None`` where it was judged before, in a sum's first round.
    """

    who: str
    role: str
    run: str
    number: int
    part: int
    step: str
    transforms: tuple[str, ...]
    how: str
    first: bool
    payload: Mapping[str, Any] | None = field(default=None, compare=False)
    repeated: bool = False

    @property
    def is_call(self) -> bool:
        """Whether a step is to be run."""
        return self.how not in ("", "hello", "introduce", "end")

    @property
    def secure(self) -> bool:
        """Whether it is a round of a secure sum."""
        return self.how.startswith("secure ")


class Guard(Protocol):
    """The owner's word on every request, kept by the site's own code."""

    @property
    def largest_reply(self) -> int | None:
        """Bytes that a reply may have."""

    def welcome(self, ask: Ask) -> None:
        """Refuse with a `PolicyError` whoever is to learn nothing of this site."""

    def admit(self, ask: Ask) -> None:
        """Refuse with a `PolicyError` a call that may not be made, before data are touched."""

    def look(self, ask: Ask) -> None:
        """Refuse with a `PolicyError` what the data themselves forbid: they have been looked at then."""

    def release(self, ask: Ask, size: int) -> None:
        """Refuse with a `PolicyError` before an answer of `size` bytes leaves."""

    def refused(self, ask: Ask, why: str, outcome: str, ran: bool) -> None:
        """Take note of what was ``"refused"``, whoever refused it, or has ``"failed"``; `ran`: data were looked at."""


class NoRules:
    """Whoever has the role may run every step, and nothing is written down."""

    largest_reply: int | None = None

    def welcome(self, ask: Ask) -> None:
        """Refuse nobody."""

    def admit(self, ask: Ask) -> None:
        """Refuse no call."""

    def look(self, ask: Ask) -> None:
        """Look at nothing."""

    def release(self, ask: Ask, size: int) -> None:
        """Let everything leave."""

    def refused(self, ask: Ask, why: str, outcome: str, ran: bool) -> None:
        """Take note of nothing."""

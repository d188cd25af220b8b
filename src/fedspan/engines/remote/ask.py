"""Who asks what of a site: all that its owner's rules may look at before a step touches data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Ask:
    """One call as the site's owner sees it.

    `who` and `role` come from the asker's certificate. `step` is the dotted name of the step; in a secure sum, of the
    step that is summed. `first` says that it is the run's first call at this site.
    """

    who: str
    role: str
    run: str
    number: int
    part: int
    step: str
    lenses: tuple[str, ...]
    how: str
    first: bool


class Guard(Protocol):
    """The owner's word on every call, kept by the site's own code."""

    def admit(self, ask: Ask) -> None:
        """Refuse with a `PolicyError` before the step touches data."""

    def release(self, ask: Ask, size: int) -> None:
        """Refuse with a `PolicyError` before a reply of `size` bytes leaves."""

    def refused(self, ask: Ask, why: str, outcome: str) -> None:
        """Take note of a call that was ``"refused"``, whoever refused it, or has ``"failed"``."""

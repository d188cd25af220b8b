"""What a site keeps of one run: its state as of the last accepted call, and the call after it that may be accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from fedspan.errors import FedspanError
from fedspan.federation.calls.call import Call, Delivery
from fedspan.wire import Message


class Identified(Protocol):
    """A call that can be known again."""

    def question(self, site: str) -> bytes:
        """Return what identifies what one site is told in it."""

    @property
    def session(self) -> str:
        """The secure sum that it is a part of."""


@dataclass
class Kept:
    """A site's state in one run: as of the last accepted call, and the one after it that may yet be accepted."""

    number: int = -1
    state: Message = field(default_factory=dict)
    pending: list[tuple[Identified, Delivery]] = field(default_factory=list)  # several where a sum is made in parts
    pending_number: int | None = None  # the call that `pending` answers: it stands even if the step failed

    def goes_on(self, call: Call) -> bool:
        """Whether a call is another part of what is pending, and not the beginning: that of a sum may be lost."""
        if call.number != self.pending_number or call.part == 0:
            return False
        return any(before.session == call.session for before, _ in self.pending)

    def settle(self, after: int) -> None:
        """Bring the state to the one after call `after`: keep the pending call's changes, or take them back."""
        if after not in (self.number, self.pending_number):
            raise FedspanError(f"this site has its state as of call {self.number}, not of call {after}")
        pending, self.pending = self.pending, []
        if after == self.number:
            return
        self.number = after
        for _, delivery in pending:
            if delivery.changes:
                self.state = delivery.changes.applied_to(self.state)


class Records(Protocol):
    """Where a site writes down what it keeps, if that is to outlive its process."""

    def load(self, run: str) -> Kept:
        """Return what is kept of a run; a new one where nothing is. The host changes it, and then says so."""

    def answered(self, call: Call, after: int, delivery: Delivery) -> None:
        """Write down a reply and what it did to the state, before it leaves."""

    def failed(self, call: Call, after: int) -> None:
        """Write down that a step failed, and the state with it is that after call `after`."""

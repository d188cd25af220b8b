"""Why a site does not answer, as it says it: sentences of fedspan's own, and no text that may hold data."""

from __future__ import annotations

from fedspan.engines.remote.messages.envelope import MISREAD
from fedspan.engines.remote.site.site_store import StaleError
from fedspan.errors import (
    BudgetError,
    FedspanError,
    LedgerError,
    LostSumError,
    MessageError,
    PolicyError,
    UnknownStepError,
)
from fedspan.wire import Message

_REFUSALS = (BudgetError, LedgerError, MessageError, PolicyError, StaleError, UnknownStepError)


class BusyError(FedspanError):
    """A request came while another one is being answered."""


class StepError(FedspanError):
    """A step raised something of its own, whose text stays at the site."""

    def __init__(self, step: str, error: BaseException) -> None:
        super().__init__(f"step {step!r} raised {type(error).__name__}, whose text stays at the site")


def with_note(error: FedspanError, note: str) -> FedspanError:
    """Return an error with something that the site's own log says besides, and nobody is told."""
    error.add_note(note)
    return error


def refusal(error: Exception) -> Message:
    """Return what the head of a response says of an error.

    `again` says that the same request may be answered if it is made once more.
    """
    kind = "failed"
    if isinstance(error, FedspanError):
        why = str(error)
        kind = "refused" if isinstance(error, _REFUSALS) else "failed"
    elif isinstance(error, MISREAD):
        why, kind = "the request does not say all that it must, or not as it must", "refused"
    else:
        why = f"the site failed with {type(error).__name__}: its owner's log may say more"
    again = isinstance(error, BusyError | LostSumError)
    told: Message = {"kind": kind, "why": why, "error": type(error).__name__, "again": again}
    return told | ({"seen": error.seen} if isinstance(error, StaleError) else {})

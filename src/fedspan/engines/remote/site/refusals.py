"""Refusals: the sentence that a site sends instead of a reply. It is fedspan's own, and holds no data."""

from __future__ import annotations

import json

from fedspan.engines.remote.messages.envelope import MISREAD
from fedspan.errors import (
    BudgetError,
    FedspanError,
    LedgerError,
    LostSumError,
    MessageError,
    PolicyError,
    UnknownStepError,
)
from fedspan.federation.outcomes import FailureKind
from fedspan.federation.site.call_context import OversizeError
from fedspan.wire import Message

_LONGEST_FACTS = 1000


class BusyError(FedspanError):
    """A request came while the site is still answering another one."""


class StaleError(FedspanError):
    """A request that was seen before; `seen` is the serial number of the last one."""

    def __init__(self, message: str, seen: int) -> None:
        super().__init__(message)
        self.seen = seen


class StepError(FedspanError):
    """A step raised an error whose text may hold data, and stays at the site."""

    def __init__(self, step: str, error: BaseException) -> None:
        super().__init__(f"step {step!r} raised {type(error).__name__}, whose text stays at the site")


_REFUSALS = (BudgetError, LedgerError, MessageError, PolicyError, StaleError, UnknownStepError)
_KINDS = {
    BudgetError: FailureKind.BUDGET_SPENT,
    BusyError: FailureKind.LATE,
    OversizeError: FailureKind.OVERSIZE,
    StaleError: FailureKind.STALE,
}


def refusal(error: Exception) -> Message:
    """Return what the head of a response reports of an error; `again` invites the sender to repeat the request."""
    kind, failure = "failed", FailureKind.STEP_FAILED
    facts = error.facts if isinstance(error, BudgetError) else {}
    if isinstance(error, FedspanError):
        why = str(error)
    elif isinstance(error, MISREAD):
        why = "the request lacks a field that it must have"
    else:
        why = f"the site failed with {type(error).__name__}: its owner's log may have more"
    if isinstance(error, _REFUSALS) or (isinstance(error, MISREAD) and not isinstance(error, FedspanError)):
        kind, failure = "refused", FailureKind.REFUSED
    for known, its_kind in _KINDS.items():
        failure = its_kind if isinstance(error, known) else failure
    again = isinstance(error, BusyError | LostSumError)
    head: Message = {"kind": kind, "failure": failure.value, "why": why, "again": again, "facts": json.dumps(facts)}
    return head | ({"seen": error.seen} if isinstance(error, StaleError) else {})


def read_facts(text: object) -> dict[str, float]:
    """Return the figures that a site reports with a failure: few names with finite numbers, or none."""
    try:
        facts = json.loads(text) if isinstance(text, str) and len(text) < _LONGEST_FACTS else {}
    except (ValueError, RecursionError):
        facts = {}
    if not isinstance(facts, dict):
        return {}
    return {str(name)[:40]: float(value) for name, value in facts.items() if type(value) in (int, float)}

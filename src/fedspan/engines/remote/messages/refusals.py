"""Refusals: the sentence that a site sends instead of a reply. It is fedspan's own, and holds no data."""

from __future__ import annotations

import json
from typing import Any

from fedspan.checks import json_value
from fedspan.engines.remote.messages.envelope import MISREAD
from fedspan.errors import (
    BudgetError,
    FedspanError,
    LedgerError,
    LostSumError,
    MessageError,
    PausedError,
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

    def __init__(self, step: str, error: str) -> None:
        super().__init__(f"step {step!r} raised {error}, whose text stays at the site")


class StepLimitError(FedspanError):
    """A step took more time or memory than it may, and was ended."""

    def __init__(self, step: str, why: str) -> None:
        super().__init__(f"step {step!r} was ended: {why}")


#: Kinds of errors, from the narrowest on: the kind of the response, and that of the failure at the coordinator.
_KINDS: tuple[tuple[Any, str, FailureKind], ...] = (
    (BudgetError, "refused", FailureKind.BUDGET_SPENT),
    (OversizeError, "refused", FailureKind.OVERSIZE),
    (StaleError, "refused", FailureKind.STALE),
    ((BusyError, PausedError), "failed", FailureKind.LATE),
    (StepLimitError, "failed", FailureKind.OVER_LIMIT),
    ((LedgerError, MessageError, PolicyError, UnknownStepError), "refused", FailureKind.REFUSED),
    (FedspanError, "failed", FailureKind.STEP_FAILED),
    (MISREAD, "refused", FailureKind.REFUSED),
    (Exception, "failed", FailureKind.STEP_FAILED),
)


def refusal(error: Exception) -> Message:
    """Return what the head of a response reports of an error; `again` invites the sender to repeat the request."""
    kind, failure = next((kind, failure) for errors, kind, failure in _KINDS if isinstance(error, errors))
    why = str(error)
    if not isinstance(error, FedspanError):  # whose text may hold data
        name = type(error).__name__
        why = "the request lacks a field that it must have" if kind == "refused" else f"the site failed with {name}"
    head: Message = {"kind": kind, "failure": failure.value, "why": why}
    head |= {"again": isinstance(error, BusyError | LostSumError | PausedError)}
    head |= {"facts": json.dumps(error.facts if isinstance(error, BudgetError) else {})}
    return head | ({"seen": error.seen} if isinstance(error, StaleError) else {})


def read_facts(text: object) -> dict[str, float]:
    """Return the figures that a site reports with a failure: few names with finite numbers, or none."""
    try:
        facts = json_value(text, _LONGEST_FACTS) if isinstance(text, str) else {}
    except ValueError:
        facts = {}
    if not isinstance(facts, dict):
        return {}
    return {str(name)[:40]: float(value) for name, value in facts.items() if type(value) in (int, float)}

"""Why a site does not answer, as it says it: sentences of fedspan's own, and no text that may hold data."""

from __future__ import annotations

import json

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
from fedspan.federation.outcomes import FailureKind
from fedspan.wire import Message

_LONGEST_FACTS = 1000
_REFUSALS = (BudgetError, LedgerError, MessageError, PolicyError, StaleError, UnknownStepError)


class BusyError(FedspanError):
    """A request came while another one is being answered."""


class StepError(FedspanError):
    """A step raised something of its own, whose text stays at the site."""

    def __init__(self, step: str, error: BaseException) -> None:
        super().__init__(f"step {step!r} raised {type(error).__name__}, whose text stays at the site")


def refusal(error: Exception) -> Message:
    """Return what the head of a response reports of an error.

    `again` says that the same request may be answered if it is repeated.
    """
    kind, failure, facts = "failed", FailureKind.STEP_FAILED, {}
    if isinstance(error, FedspanError):
        why = str(error)
        if isinstance(error, _REFUSALS):
            kind, failure = "refused", FailureKind.REFUSED
    elif isinstance(error, MISREAD):
        why, kind, failure = "the request lacks something that it must have", "refused", FailureKind.REFUSED
    else:
        why = f"the site failed with {type(error).__name__}: its owner's log may say more"
    if isinstance(error, BudgetError):
        failure, facts = FailureKind.BUDGET_SPENT, error.facts
    elif isinstance(error, BusyError):
        failure = FailureKind.LATE
    again = isinstance(error, BusyError | LostSumError)
    told: Message = {"kind": kind, "failure": failure.value, "why": why, "again": again, "facts": json.dumps(facts)}
    return told | ({"seen": error.seen} if isinstance(error, StaleError) else {})


def read_facts(text: object) -> dict[str, float]:
    """Return the figures that a site reports with a failure: few names with finite numbers, or none."""
    try:
        facts = json.loads(text) if isinstance(text, str) and len(text) < _LONGEST_FACTS else {}
    except (ValueError, RecursionError):
        facts = {}
    if not isinstance(facts, dict):
        return {}
    return {str(name)[:40]: float(value) for name, value in facts.items() if type(value) in (int, float)}

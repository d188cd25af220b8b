"""Every error that fedspan raises on purpose: one base, so that one ``except`` catches them all.

A message names what was wrong, the value, and what is allowed. It never holds data rows.
"""

from __future__ import annotations

from collections.abc import Mapping


class FedspanError(Exception):
    """Base of all fedspan errors."""


class InputError(FedspanError, ValueError):
    """A parameter, a table or a study file that cannot be used."""


class MessageError(FedspanError, ValueError):
    """A payload or reply that a message cannot hold, or bytes that are not a message."""


class UnknownStepError(FedspanError, LookupError):
    """A call names a step that is not installed."""


class PolicyError(FedspanError, ValueError):
    """A policy, or a combination of policy and protocol, that cannot work."""


class PausedError(PolicyError):
    """A site answers nothing for a while, and a run may wait for it."""


class DiskError(PausedError):
    """A site's disk is full, or takes nothing more for another reason; the site answers again when it does."""


class QuorumError(FedspanError):
    """Too few sites answered a call. ``failed`` holds the failures by site."""

    def __init__(self, message: str, failed: Mapping[str, str]) -> None:
        super().__init__(message)
        self.failed = dict(failed)


class DeadlineError(FedspanError):
    """A run has taken longer than its policy allows."""


class LostSumError(FedspanError):
    """A site was restarted during a secure sum, and can take part in the next one."""


class JournalError(FedspanError):
    """A journal is damaged, in use, or belongs to another run."""


class DataMissingError(FedspanError, FileNotFoundError):
    """A data set is not in the data folder; the message names its source."""


class MissingPackageError(FedspanError, ImportError):
    """An optional package is not installed; the message has the command that installs it."""


class BudgetError(FedspanError):
    """A site refuses a call that would exceed its privacy budget; `facts` has the figures."""

    def __init__(self, message: str, **facts: float) -> None:
        super().__init__(message)
        self.facts = facts


class LedgerError(FedspanError):
    """A site's ledger is damaged, was tampered with, or cannot be used."""


def with_note(error: FedspanError, note: str) -> FedspanError:
    """Return an error with a note for the site's own log."""
    error.add_note(note)
    return error

"""Every error that fedspan raises on purpose: one base, so that one ``except`` catches them all.

A message is one sentence for the reader: what was wrong, the value, what is allowed. It never holds data rows.
"""

from __future__ import annotations

from collections.abc import Mapping


class FedspanError(Exception):
    """Base of all fedspan errors."""


class InputError(FedspanError, ValueError):
    """What the user gave cannot be used: a parameter, a table, a study file."""


class MessageError(FedspanError, ValueError):
    """A payload or reply holds something that may not travel, or bytes that are not a message."""


class UnknownStepError(FedspanError, LookupError):
    """A call names a step that is not installed."""


class PolicyError(FedspanError, ValueError):
    """A policy, or a combination of policy and protocol, that cannot work."""


class QuorumError(FedspanError):
    """Too few sites answered a call. ``failed`` has the failures by site."""

    def __init__(self, message: str, failed: Mapping[str, str]) -> None:
        super().__init__(message)
        self.failed = dict(failed)


class DeadlineError(FedspanError):
    """A run has taken longer than its policy allows."""


class LostSumError(FedspanError):
    """A site knows nothing of a secure sum that is under way: it was restarted, and can take part in the next one."""


class JournalError(FedspanError):
    """A journal is damaged, in use, or belongs to another run."""


class DataMissingError(FedspanError, FileNotFoundError):
    """A data set is not in the data folder; the message says where to get it."""


class MissingPackageError(FedspanError, ImportError):
    """An optional package is not installed; the message says how to get it."""


class BudgetError(FedspanError):
    """A site refuses to answer, because its privacy budget would be exceeded; `facts` has the figures."""

    def __init__(self, message: str, **facts: float) -> None:
        super().__init__(message)
        self.facts = facts


class LedgerError(FedspanError):
    """A site's ledger is damaged, was tampered with, or cannot be used."""


def with_note(error: FedspanError, note: str) -> FedspanError:
    """Return an error with a note that only the site's own log shows."""
    error.add_note(note)
    return error

"""The federation core: sites, steps, replies, policy, faults, journal and record."""

from __future__ import annotations

from fedspan.federation.calls.corruption import Attack, AttackedCall
from fedspan.federation.calls.faults import FaultPlan
from fedspan.federation.federation import Federation
from fedspan.federation.journal import Journal
from fedspan.federation.outcomes import Ending, EndingKind, Failure, FailureKind
from fedspan.federation.policy import Policy, SecureSum
from fedspan.federation.privacy_spent import PrivacySpent
from fedspan.federation.record import CallRecord, Metrics, RunRecord
from fedspan.federation.replies import Replies, Total
from fedspan.federation.run import Observer
from fedspan.federation.site.shown_rows import RowBatch
from fedspan.federation.site.site import Site, generator
from fedspan.federation.site.steps import step
from fedspan.federation.site.transforms import transform

__all__ = [
    "Attack",
    "AttackedCall",
    "CallRecord",
    "Ending",
    "EndingKind",
    "Failure",
    "FailureKind",
    "FaultPlan",
    "Federation",
    "Journal",
    "Metrics",
    "Observer",
    "Policy",
    "PrivacySpent",
    "Replies",
    "RowBatch",
    "RunRecord",
    "SecureSum",
    "Site",
    "Total",
    "generator",
    "step",
    "transform",
]

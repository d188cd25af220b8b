"""Attacks on what a coordinator received: what it can rebuild of the rows.

`audit` tries every attack on a run or a model and returns a `LeakCard`; `trilaterate`, `fill`, `unrotate` and
`rows_from_sums` are single attacks. See ``docs/leaks.md``.
"""

from __future__ import annotations

from fedspan.audit.attack_case import Case
from fedspan.audit.audit_run import ATTACKS, audit
from fedspan.audit.distance_attacks import fill, unrotate
from fedspan.audit.leak_card import LeakCard, LeakEntry
from fedspan.audit.received import Received, ReceivedMap, from_model, from_run
from fedspan.audit.row_measures import psnr, reidentified, relative_error
from fedspan.audit.sums_attack import Sums, rows_from_sums
from fedspan.audit.trilateration import Rebuilt, trilaterate

__all__ = [
    "ATTACKS",
    "Case",
    "LeakCard",
    "LeakEntry",
    "Rebuilt",
    "Received",
    "ReceivedMap",
    "Sums",
    "audit",
    "fill",
    "from_model",
    "from_run",
    "psnr",
    "reidentified",
    "relative_error",
    "rows_from_sums",
    "trilaterate",
    "unrotate",
]

"""What a coordinator can rebuild of the rows, from what it received.

`audit` attacks a run or a model with everything there is and returns a `LeakCard`; `trilaterate`, `fill`, `unrotate`
and `rows_from_sums` are the attacks themselves. See ``docs/leaks.md``.
"""

from __future__ import annotations

from fedspan.privacy.audit.attacks import ATTACKS, Case
from fedspan.privacy.audit.auditing import audit
from fedspan.privacy.audit.card import LeakCard, LeakEntry
from fedspan.privacy.audit.measures import psnr, reidentified, relative_error
from fedspan.privacy.audit.received import Received, from_model, from_run
from fedspan.privacy.audit.received_map import ReceivedMap
from fedspan.privacy.audit.sums_attack import Sums, rows_from_sums
from fedspan.privacy.audit.trilaterate import Rebuilt, trilaterate
from fedspan.privacy.audit.with_public import fill, unrotate

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

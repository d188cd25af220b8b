"""The budgets of sites, as far as a run's record knows them: a site tells its own where it refuses for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedspan.federation.record import RunRecord

_TOLD = re.compile(r"privacy budget is epsilon=(\S+) at delta=(\S+), it has spent ([^\s,]+),")


@dataclass(frozen=True)
class Budget:
    """A site's budget, and what it had spent of it in all runs when it last said so: texts, as the site wrote them."""

    epsilon: str
    delta: str
    spent: str

    def __str__(self) -> str:
        return f"{self.epsilon} at delta {self.delta}, of which {self.spent} was spent when it refused"


def budgets_told(record: RunRecord) -> dict[str, Budget]:
    """Return the budgets of the sites that refused a call because theirs did not last.

    Examples
    --------
    >>> from fedspan.federation.record import CallRecord
    >>> why = "this site refuses: its privacy budget is epsilon=6 at delta=1e-05, it has spent 4, and this call ..."
    >>> call = CallRecord(0, "f", None, ("a",), (), {"a": why}, {}, {}, 0.0)
    >>> record = RunRecord("demo", {}, number=0, seed=0, sites=("a",), calls=[call])
    >>> print(budgets_told(record)["a"])
    6 at delta 1e-05, of which 4 was spent when it refused
    """
    found = ((site, _TOLD.search(why)) for _, site, why in record.failures)
    return {site: Budget(*told.groups()) for site, told in found if told is not None}

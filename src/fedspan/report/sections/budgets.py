"""The budgets of sites, from the figures that sites report when they refuse a call because of them."""

from __future__ import annotations

from dataclasses import dataclass

from fedspan.federation.outcomes import FailureKind
from fedspan.federation.record import RunRecord


@dataclass(frozen=True)
class Budget:
    """A site's budget, and what it had spent of it in all runs when it last refused."""

    epsilon: float
    delta: float
    spent: float

    def __str__(self) -> str:
        return f"{self.epsilon:g} at delta {self.delta:g}, of which {self.spent:.4g} was spent when it refused"


def reported_budgets(record: RunRecord) -> dict[str, Budget]:
    """Return the budgets of the sites that refused a call because theirs did not last.

    Examples
    --------
    >>> from fedspan.federation import Failure
    >>> from fedspan.federation.record import CallRecord
    >>> why = Failure(FailureKind.BUDGET_SPENT, "", None, {"epsilon": 6.0, "delta": 1e-5, "spent": 4.0})
    >>> call = CallRecord(0, "f", None, ("a",), (), {"a": why}, {}, {}, 0.0)
    >>> record = RunRecord("demo", {}, number=0, seed=0, sites=("a",), calls=[call])
    >>> print(reported_budgets(record)["a"])
    6 at delta 1e-05, of which 4 was spent when it refused
    """
    return {
        site: Budget(*(float(failure.facts[name]) for name in ("epsilon", "delta", "spent")))
        for _, site, failure in record.failures
        if failure.kind is FailureKind.BUDGET_SPENT and {"epsilon", "delta", "spent"} <= failure.facts.keys()
    }

"""Kinds of failures and endings: code compares kinds, people read the text."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

from fedspan.checks import first_of


class FailureKind(StrEnum):
    """Why a site gave no usable reply."""

    NO_REPLY = "no reply"
    OFFLINE = "offline"
    LATE = "late"
    STEP_FAILED = "step failed"
    OVER_LIMIT = "over the limit"
    REFUSED = "refused"
    BUDGET_SPENT = "budget spent"
    MALFORMED = "malformed"
    MISSHAPEN = "misshapen"
    MISCOUNTED = "miscounted"
    NON_FINITE = "non-finite"
    OVERSIZE = "oversize"
    STALE = "stale"
    REJECTED = "rejected"


class Failure(str):
    """Why a site gave no usable reply: a sentence for people, with a `kind` and `facts` for code.

    Parameters
    ----------
    kind : FailureKind
    detail : str
        The sentence without the kind.
    error : exception, optional
        What the step raised, where it ran in this process.
    facts : mapping, optional
        Plain values that belong to the kind, such as the epsilon that a budget has spent.

    Examples
    --------
    >>> failure = Failure(FailureKind.LATE, "no reply within 60 s")
    >>> failure, failure.kind is FailureKind.LATE
    ('late: no reply within 60 s', True)
    """

    kind: FailureKind
    detail: str
    error: BaseException | None
    facts: Mapping[str, Any]

    def __new__(
        cls,
        kind: FailureKind,
        detail: str = "",
        error: BaseException | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make the text from kind and detail."""
        self = super().__new__(cls, f"{kind}: {detail}" if detail else str(kind))
        self.kind, self.detail, self.error, self.facts = kind, detail, error, dict(facts or {})
        return self

    @property
    def offline(self) -> bool:
        """Whether the site was not reached: it gets the call again where the quorum needs it."""
        return self.kind is FailureKind.OFFLINE

    def values(self) -> dict[str, Any]:
        """Return the failure as records and journals keep it."""
        return {"kind": self.kind.value, "detail": self.detail} | ({"facts": dict(self.facts)} if self.facts else {})

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Read what `values` returned."""
        return cls(FailureKind(values["kind"]), str(values["detail"]), None, values.get("facts"))


def by_reason(failed: Mapping[str, str]) -> str:
    """Return sites and why they failed, where sites with the same reason share one.

    Examples
    --------
    >>> by_reason({"a": "late", "b": "offline", "c": "late"})
    'a, c: late; b: offline'
    """
    sites: dict[str, list[str]] = {}
    for site, why in failed.items():
        sites.setdefault(str(why), []).append(site)
    shown = [f"{first_of(names)}: {why}" for why, names in sites.items()]
    left = sum(map(len, list(sites.values())[5:]))
    return "; ".join(shown[:5]) + (f"; and {left} more" if left else "")


class EndingKind(StrEnum):
    """How a run ended."""

    RUNNING = "running"
    FINISHED = "finished"
    CONVERGED = "converged"
    STOPPED = "stopped"
    ROUNDS_USED_UP = "rounds used up"
    CLOSED = "closed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Ending(str):
    """How a run ended, empty while it runs: a sentence for people, with a `kind` for code.

    Examples
    --------
    >>> Ending(EndingKind.CONVERGED, "converged: residual 1e-9"), bool(Ending())
    ('converged: residual 1e-9', False)
    """

    kind: EndingKind

    def __new__(cls, kind: EndingKind = EndingKind.RUNNING, words: str | None = None) -> Self:
        """Make the text; without `words` it is the kind's name."""
        text = "" if kind is EndingKind.RUNNING else str(kind)
        self = super().__new__(cls, text if words is None else words)
        self.kind = kind
        return self

    def values(self) -> dict[str, str]:
        """Return the ending as a record's file keeps it."""
        return {"how": self.kind.value, "words": str(self)}

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Self:
        """Read what `values` returned."""
        return cls(EndingKind(values["how"]), values["words"])


#: Of a run that has not ended.
NOT_ENDED = Ending()

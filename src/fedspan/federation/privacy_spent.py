"""What a run has spent of the sites' privacy, and what no noise covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

#: What one guarantee protects: whoever sees the replies can hardly tell which of two such tables a site has.
UNIT = "one row of one site replaced by any other; the numbers of rows are public"
#: The same where the numbers of rows are not public.
ROW_ADDED = "one row of one site added or removed"


@dataclass(frozen=True)
class PrivacySpent:
    """The privacy that one run has spent.

    Attributes
    ----------
    mechanism : str
        With its parameters.
    epsilon : dict
        By site: exact, for all that the run asked of it, and at most that where replies were lost; infinite where a
        site alone knows it and did not say.
    accountant : dict
        By site: the same by the accountant of dp-accounting; empty where that package is not installed.
    delta : float
    unit : str
        What the guarantee is for.
    covers, leaves_out : tuple of str
        What of the sites' replies the noise covers, and what it does not.
    simulated : tuple of str
        Sites whose noise follows from the run's seed, because they have no ledger: nothing of them is protected. So
        are those counted that did not say that they have one.
    refused : tuple of str
        Sites that refused in mid-run, because their budget did not last: their epsilon is of what they answered.
    guaranteed : bool
        False where the noise depends on the rows, so that the figures are no guarantee.
    """

    mechanism: str
    epsilon: dict[str, float]
    delta: float
    accountant: dict[str, float]
    covers: tuple[str, ...]
    leaves_out: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()
    guaranteed: bool = True
    unit: str = UNIT
    refused: tuple[str, ...] = ()

    @property
    def worst(self) -> float:
        """The largest epsilon of a site."""
        return max(self.epsilon.values(), default=0.0)

    def leaving_out(self, *what: str) -> PrivacySpent:
        """Return this with more that no noise covers."""
        return replace(self, leaves_out=(*self.leaves_out, *what))

    def __add__(self, other: PrivacySpent) -> PrivacySpent:
        """Return the two together: epsilons and deltas add up, which is always true, and more than is spent.

        Examples
        --------
        >>> one = PrivacySpent("one", {"a": 1.0}, 1e-5, {}, ("sums",))
        >>> other = PrivacySpent("other", {"a": 2.0, "b": 2.0}, 1e-6, {}, ("sums", "means"))
        >>> (one + other).sentence()
        'epsilon 3 at delta 1.1e-05; covers sums and means'
        """
        sites = sorted({**self.epsilon, **other.epsilon})
        counted = (
            {site: self.accountant.get(site, 0.0) + other.accountant.get(site, 0.0) for site in sites}
            if self.accountant and other.accountant
            else {}
        )
        return PrivacySpent(
            f"{self.mechanism} and {other.mechanism}",
            {site: self.epsilon.get(site, 0.0) + other.epsilon.get(site, 0.0) for site in sites},
            self.delta + other.delta,
            counted,
            tuple(dict.fromkeys(self.covers + other.covers)),
            tuple(dict.fromkeys(self.leaves_out + other.leaves_out)),
            tuple(sorted({*self.simulated, *other.simulated})),
            self.guaranteed and other.guaranteed,
            self.unit if self.unit == other.unit else f"{self.unit}; and {other.unit}",
            tuple(sorted({*self.refused, *other.refused})),
        )

    def sentence(self) -> str:
        """Say it in one line: epsilon and delta, for what (where that is not `UNIT`), what is covered and what is not.

        Examples
        --------
        >>> PrivacySpent("demo", {"a": 2.0, "b": 1.0}, 1e-5, {"a": 2.01}, ("sums",), ("means",), ("a", "b")).sentence()
        'epsilon 2 (accountant: 2.01) at delta 1e-05, simulated; covers sums; does not cover means'
        """
        beside = f" (accountant: {max(self.accountant.values()):.4g})" if self.accountant else ""
        marks = "" if self.unit == UNIT else f" for {self.unit}"
        marks += "" if self.guaranteed else ", no guarantee: the noise depends on the rows"
        if self.simulated:
            some = f" at {len(self.simulated)} of {len(self.epsilon)} sites"
            marks += f", simulated{some if len(self.simulated) < len(self.epsilon) else ''}"
        out = f"; does not cover {', nor '.join(self.leaves_out)}" if self.leaves_out else ""
        out += f"; {', '.join(self.refused[:10])} refused when the budget there was spent" if self.refused else ""
        return (
            f"epsilon {self.worst:.4g}{beside} at delta {self.delta:g}{marks}; covers {' and '.join(self.covers)}{out}"
        )

    def values(self) -> dict[str, Any]:
        """Return it as a record's file keeps it."""
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PrivacySpent:
        """Read it from a record's file."""
        found = dict(values)
        for name in ("covers", "leaves_out", "simulated", "refused"):
            found[name] = tuple(found.get(name, ()))
        for name in ("epsilon", "accountant"):
            found[name] = {site: _number(value) for site, value in found[name].items()}
        return cls(**found)


def _number(value: Any) -> float:
    return float(value["float"]) if isinstance(value, dict) else float(value)

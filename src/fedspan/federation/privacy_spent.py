"""What a run has spent of the sites' privacy, and what no noise covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

#: What a guarantee protects: the replies hardly reveal which of two such tables a site has.
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
        By site: exact for all that the run requested of it, and an upper bound where replies were lost. Infinite where
        only the site knows it and did not report it.
    accountant : dict
        By site: the same by the accountant of dp-accounting; empty where that package is not installed.
    delta : float
    unit : str
        What the guarantee is for.
    covers, leaves_out : tuple of str
        What of the sites' replies the noise covers, and what it does not.
    simulated : tuple of str
        Sites without a ledger, or that did not report one: their noise follows from the run's seed and protects
        nothing.
    refused : tuple of str
        Sites whose budget did not last for the run: their epsilon is that of what they answered.
    guaranteed : bool
        False where the noise depends on the rows, so that the figures guarantee nothing.
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
        """Return the same privacy, with more replies that no noise covers."""
        return replace(self, leaves_out=(*self.leaves_out, *what))

    def __add__(self, other: PrivacySpent) -> PrivacySpent:
        """Return an upper bound for two runs together: epsilons and deltas add up.

        Examples
        --------
        >>> one = PrivacySpent("one", {"a": 1.0}, 1e-5, {}, ("sums",))
        >>> other = PrivacySpent("other", {"a": 2.0, "b": 2.0}, 1e-6, {}, ("sums", "means"))
        >>> (one + other).sentence()
        'epsilon 3 at delta 1.1e-05; covers sums and means'
        """
        counted = bool(self.accountant and other.accountant)
        return PrivacySpent(
            f"{self.mechanism} and {other.mechanism}",
            _added(self.epsilon, other.epsilon),
            self.delta + other.delta,
            _added(self.accountant, other.accountant) if counted else {},
            tuple(dict.fromkeys(self.covers + other.covers)),
            tuple(dict.fromkeys(self.leaves_out + other.leaves_out)),
            tuple(sorted({*self.simulated, *other.simulated})),
            self.guaranteed and other.guaranteed,
            self.unit if self.unit == other.unit else f"{self.unit}; and {other.unit}",
            tuple(sorted({*self.refused, *other.refused})),
        )

    def figures(self) -> str:
        """Return epsilon, delta and unit (unless it is `UNIT`) in a few words."""
        text = f"epsilon {self.worst:.4g}"
        text += f" (accountant: {max(self.accountant.values()):.4g})" if self.accountant else ""
        text += f" at delta {self.delta:g}" + ("" if self.unit == UNIT else f" for {self.unit}")
        return text + ("" if self.guaranteed else ", no guarantee: the noise depends on the rows")

    def sentence(self) -> str:
        """Describe it in one line: its figures, what is covered and what is not.

        Examples
        --------
        >>> PrivacySpent("demo", {"a": 2.0, "b": 1.0}, 1e-5, {"a": 2.01}, ("sums",), ("means",), ("a", "b")).sentence()
        'epsilon 2 (accountant: 2.01) at delta 1e-05, simulated; covers sums; does not cover means'
        """
        text = self.figures()
        if self.simulated:
            all_sites = len(self.simulated) >= len(self.epsilon)
            text += ", simulated" + ("" if all_sites else f" at {len(self.simulated)} of {len(self.epsilon)} sites")
        text += f"; covers {' and '.join(self.covers)}"
        text += f"; does not cover {', nor '.join(self.leaves_out)}" if self.leaves_out else ""
        return text + (
            f"; {', '.join(self.refused[:10])} refused when the budget there was spent" if self.refused else ""
        )

    def values(self) -> dict[str, Any]:
        """Return it as a record's file keeps it."""
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PrivacySpent:
        """Read it from a record's file."""
        found: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        for name in ("epsilon", "accountant"):
            found[name] = {site: _number(value) for site, value in found[name].items()}
        return cls(**found)


def _added(some: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {site: some.get(site, 0.0) + others.get(site, 0.0) for site in sorted({**some, **others})}


def _number(value: Any) -> float:
    return float(value["float"]) if isinstance(value, dict) else float(value)

"""The leak card: what was attacked, what the attacker knew, and what it found."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.durable.whole_file import write_whole
from fedspan.federation.record import strict_json

#: Measures in the order of the card, and how they are shown.
SHOWN = {
    "relative_error": ("relative error", "{:.3g}"),
    "psnr": ("PSNR (dB)", "{:.1f}"),
    "reidentified": ("re-identified", "{:.1%}"),
    "auc": ("membership AUC", "{:.3f}"),
    "rebuilt": ("rows to 1e-6", "{:.1%}"),
    "exact": ("rows found exactly", "{:.2%}"),
    "found": ("rows in messages", "{:.2%}"),
    "followed": ("rows followed", "{:.2%}"),
}


@dataclass(frozen=True)
class LeakEntry:
    """One attack.

    Attributes
    ----------
    attack, target, knows, verdict : str
        Its name, what was attacked, what the attacker is assumed to know, and the result in a sentence.
    measures, baseline : dict
        How near the rebuilt rows, and the mean row as a guess for all, are to the true ones, where these were given.
    facts : dict
        What the attacker knows without the truth: rank, residual.
    rebuilt : array (n, m), optional
        The rebuilt rows. They are not saved.
    """

    attack: str
    target: str
    knows: str
    verdict: str
    measures: dict[str, float] = field(default_factory=dict)
    baseline: dict[str, float] = field(default_factory=dict)
    facts: dict[str, float | bool] = field(default_factory=dict)
    rebuilt: NDArray[Any] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class LeakCard:
    """All attacks on what one coordinator received. Cards `beside` it have their lines in its table, to compare.

    Examples
    --------
    >>> entry = LeakEntry("guess", "nothing", "the mean row", "Nothing.", {"relative_error": 1.0})
    >>> print(LeakCard("FedPCA", "the model", (entry,)))
    FedPCA, from the model
    <BLANKLINE>
    attack  relative error
    guess   1
    <BLANKLINE>
    guess: Nothing.
    """

    what: str
    where: str
    entries: tuple[LeakEntry, ...]
    remarks: tuple[str, ...] = ()
    beside: tuple[LeakCard, ...] = ()
    #: Where the truth was given in another order: its row that each rebuilt row is. Not saved.
    order: NDArray[Any] | None = field(default=None, repr=False, compare=False)

    def lines(self) -> list[list[str]]:
        """Return the table of measures: a head, the mean row where it was measured, and one line per attack."""
        cards = (self, *self.beside)
        known = [key for key in SHOWN if any(key in entry.measures for card in cards for entry in card.entries)]
        if not known:
            return []
        table = [["attack", *(SHOWN[key][0] for key in known)]]
        base: dict[str, float] = next((entry.baseline for entry in self.entries if entry.baseline), {})
        if base:
            table.append(["(the mean row for all)", *_cells(base, known)])
        for card in cards:
            table += [[card.what, *[""] * len(known)]] if self.beside else []
            table += [[entry.attack, *_cells(entry.measures, known)] for entry in card.entries if entry.measures]
        return table

    def __str__(self) -> str:
        table = self.lines()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        parts = [f"{self.what}, from {self.where}"]
        if table:
            lines = ("  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in table)
            parts.append("\n".join(lines))
        parts += [fill(f"{entry.attack}: {entry.verdict}", 110) for entry in self.entries]
        parts += [fill(remark, 110) for remark in self.remarks]
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain values, without the rebuilt rows."""
        kept = ("attack", "target", "knows", "verdict", "measures", "baseline", "facts")
        entries = [{name: getattr(entry, name) for name in kept} for entry in self.entries]
        values = {"format": 1, "what": self.what, "where": self.where, "entries": entries, "remarks": self.remarks}
        values |= {"beside": [card.to_dict() for card in self.beside]} if self.beside else {}
        plain: dict[str, Any] = strict_json(values)
        return plain

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the card as JSON, completely or not at all, for its owner alone (mode 0600)."""
        write_whole(path, json.dumps(self.to_dict(), indent=2, allow_nan=False).encode())


def _cells(values: dict[str, float], known: list[str]) -> list[str]:
    def cell(key: str) -> str:
        value = values.get(key, np.nan)
        return "exact" if value == np.inf else SHOWN[key][1].format(value) if np.isfinite(value) else ""

    return [cell(key) for key in known]

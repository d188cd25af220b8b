"""The attacks, each a function of what was received and of what is known besides; ``None`` where it has no target.

A further attack is one more such function in `ATTACKS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fedspan.audit.k_means_attack import rows_in_differences
from fedspan.audit.leak_card import LeakEntry
from fedspan.audit.map_attacks import MAP_ATTACKS
from fedspan.audit.public_rows_attack import fill, unrotate
from fedspan.audit.received_run import Received
from fedspan.audit.row_measures import Bounds, psnr, reidentified, relative_error
from fedspan.audit.sums_attack import rows_from_sums, small_enough
from fedspan.audit.trilateration import Rebuilt, trilaterate

Array = NDArray[Any]

#: Part of the measured error below which what the attacker knows of its own contradicts it.
_DOUBTFUL = 0.8
#: Part of the sums that rows which have them to rounding leave unexplained.
_SAME_SUMS = 1e-8
_IN_DOUBT = (
    "Nothing can be said: the rebuilt rows agree with the distances, and are {:.2g} of the spread off the true rows as "
    "these were given. Are they the rows of this run, in site order, then row order? Give them by site (the study, or "
    "truth={{site: rows}})."
)


@dataclass(frozen=True)
class Case:
    """What was received, and what is known besides it.

    Attributes
    ----------
    received : Received
    truth : array (n, m), optional
        The true rows as the model saw them, to measure by; no attack uses them.
    public : array (k, m), optional
        Rows of the same kind that the attacker has, as the model would see them.
    bounds : (float, float), optional
        The least and the greatest value of the data, before any preprocessing.
    undo : callable, optional
        From rows as the model saw them to rows before preprocessing, where that is known.
    order : array (n,), optional
        The row of what was given as the truth that each row of `truth` is, where that came in another order.
    """

    received: Received
    truth: Array | None = field(default=None, repr=False)
    public: Array | None = field(default=None, repr=False)
    bounds: Bounds | None = None
    undo: Callable[[Array], Array] | None = field(default=None, repr=False)
    order: Array | None = field(default=None, repr=False)

    @cached_property
    def rebuilt(self) -> Rebuilt | None:
        """Rows by trilateration, which several attacks start from."""
        found = self.received
        if found.distances is None or found.landmarks is None:
            return None
        return trilaterate(found.distances, found.landmarks)

    @cached_property
    def in_doubt(self) -> bool:
        """Whether rows fit their distances and are nowhere near the true ones: these may be in another order.

        Rows that had noise before they were measured are so, too, and rightly.
        """
        found = self.rebuilt
        if found is None or self.truth is None or self.received.noise_on_rows:
            return False
        error = relative_error(found.rows, self.truth)
        return error >= 1 and found.outside < _DOUBTFUL * error

    def entry(self, rows: Array, attack: str, target: str, knows: str, say: str = "", **facts: Any) -> LeakEntry:
        """Return the entry of an attack that rebuilt `rows`, measured where the truth is known."""
        found: dict[str, float] = {}
        base: dict[str, float] = {}
        if self.truth is not None:
            found, base = self._measures(rows), self.baseline
        if found.get("relative_error", 0.0) >= 1 and self.in_doubt:
            say = say or _IN_DOUBT.format(found["relative_error"])
        return LeakEntry(attack, target, knows, say or _verdict(found, facts), found, base, facts, self.raw(rows))

    def raw(self, rows: Array) -> Array:
        """Return rows in the units that they had before preprocessing, where that can be undone."""
        return rows if self.undo is None else np.asarray(self.undo(rows))

    @cached_property
    def baseline(self) -> dict[str, float]:
        """Measures of the mean row as a guess for all."""
        assert self.truth is not None
        return self._measures(np.tile(self.truth.mean(axis=0), (len(self.truth), 1)))

    def _measures(self, rows: Array) -> dict[str, float]:
        assert self.truth is not None
        found = {"relative_error": relative_error(rows, self.truth)}
        if self.bounds is not None:
            found["psnr"] = psnr(self.raw(rows), self.raw(self.truth), self.bounds)
        return {**found, "reidentified": reidentified(rows, self.truth)}


def trilateration(case: Case) -> LeakEntry | None:
    """Rebuild rows from their distances to landmarks."""
    found = case.rebuilt
    if found is None:
        return None
    return case.entry(
        found.rows,
        "trilateration",
        f"distances of {len(found.rows)} rows to {found.n_landmarks} landmarks",
        "the landmarks, which the coordinator computes itself, and the distances, which it is sent",
        determined=found.determined,
        directions=found.directions,
        columns=found.n_columns,
        effective_directions=found.effective,
        cut=found.cut,
        estimated_relative_error=found.outside,
        misfit=found.misfit,
    )


def public_rows(case: Case) -> LeakEntry | None:
    """Rebuild rows from their distances, and guess what these leave open from public rows."""
    found = case.rebuilt
    if found is None or case.public is None:
        return None
    return case.entry(
        fill(found, case.public),
        "trilateration, filled from public rows",
        f"distances of {len(found.rows)} rows to {found.n_landmarks} landmarks",
        f"the landmarks, the distances, and {len(case.public)} public rows of the same kind",
    )


def secret_rotation(case: Case) -> LeakEntry | None:
    """Rebuild rows as if the sites had turned and shifted all of them by a key that they share."""
    found = case.rebuilt
    if found is None or case.public is None:
        return None
    # The attack uses inner products of rows alone: what it finds is the same whether they were turned or not.
    return case.entry(
        unrotate(found.rows, case.public),
        "had the sites turned their rows by a secret rotation",
        f"distances of {len(found.rows)} rows to {found.n_landmarks} landmarks",
        f"the landmarks as they would be turned, the distances, and {len(case.public)} public rows, but not the key",
    )


def totals(case: Case) -> LeakEntry | None:
    """Rebuild rows from FedDL's totals over all sites, and from their distances where these were posted."""
    received, sums = case.received, case.received.sums
    if sums is None or not small_enough(sums) or (case.truth is not None and len(case.truth) != sums.n):
        return None
    found = case.rebuilt
    if found is not None and (found.determined or len(found.rows) != sums.n):
        return None  # distances alone fix the rows, or are of others
    start = None if found is None else found.rows
    fitted = rows_from_sums(sums, start=start, distances=received.distances, landmarks=received.landmarks)
    rows, matched = fitted.rows, ""
    if found is None and case.truth is not None:
        own, true = linear_sum_assignment(cdist(rows, case.truth))
        rows = rows[own[np.argsort(true)]]
        matched = " Sums have no order: rebuilt rows were matched with the true ones."
    numbers = f"{sums.equations} numbers about the {sums.unknowns} that {sums.n} rows have"
    facts = {"equations": sums.equations, "unknowns": sums.unknowns, "misfit": fitted.misfit}
    entry = case.entry(
        rows,
        "totals of FedDL" + ("" if found is None else ", and distances"),
        f"moments, sums of cosines and sines, and pulls of {len(sums.pulls)} landmarks, over all sites: {numbers}",
        "what is asked in each round, and the totals; a secure sum hides neither",
        "" if case.truth is not None else _by_misfit(fitted.misfit, numbers),
        **facts,
    )
    return replace(entry, verdict=entry.verdict + matched)


def _by_misfit(misfit: float, numbers: str) -> str:
    if misfit < _SAME_SUMS:
        return (
            f"Rows were found that have the very sums ({numbers}): no others are likely to, so that they are the rows."
        )
    return f"Rows were found whose sums are {misfit:.2g} off ({numbers}): the rows in part, or rows much like them."


def site_means(case: Case) -> LeakEntry | None:
    """Guess each row by its site's mean, which single replies to the moments' call give away."""
    received = case.received
    if case.truth is None or len(received.row_sites) != len(case.truth) or len(set(received.row_sites)) < 2:
        return None
    rows = np.empty(case.truth.shape)
    for number in np.unique(received.row_sites):
        mine = received.row_sites == number
        rows[mine] = case.truth[mine].mean(axis=0)
    fewest = int(np.bincount(received.row_sites)[np.unique(received.row_sites)].min())
    made, about = ("landmarks", "kernel-weighted, about the landmarks")
    if received.map is not None:
        made, about = ("centres", "of the rows closest to each centre")
    said = "A site of one row has no secret left." if fewest == 1 else f"The smallest site has {fewest} rows."
    return case.entry(
        rows,
        "sums of single sites",
        f"the sums by which {made} are learned, if the coordinator sees each site's part",
        "each site's number of rows and sum of rows; with a secure sum it knows their totals alone",
        f"A site's sum over its number of rows is its mean row, and that is all that is guessed here. {said} "
        f"The sums of each round ({about}) say more, and those of single sites were not attacked.",
    )


#: All attacks, in the order of the card.
ATTACKS: tuple[Callable[[Case], LeakEntry | None], ...] = (
    trilateration,
    public_rows,
    secret_rotation,
    totals,
    site_means,
    *MAP_ATTACKS,
    rows_in_differences,
)


def _verdict(found: dict[str, float], facts: dict[str, Any]) -> str:
    """Say in a sentence what an attack means for the rows."""
    if not found:
        if facts.get("determined"):
            return "The distances fix every row: who has them has the rows, up to rounding and noise."
        share = facts.get("estimated_relative_error")
        if share is None:
            return "Rows were rebuilt; how near they are cannot be said without the true ones."
        return (
            f"Rows are rebuilt in {facts['directions']} of at most {facts['columns']} directions; from the distances "
            f"alone the attacker knows to be off by {share:.2g} of the rows' spread."
        )
    error, named = found["relative_error"], found["reidentified"]
    if error < 1e-3:
        return f"Every row is rebuilt, to {error:.1g} of the rows' spread: the coordinator has the data."
    if named >= 0.5:
        return f"{named:.1%} of the rows are recognised among all by what was rebuilt ({error:.2g} of the spread off)."
    if error < 0.9:
        return f"Rows are rebuilt in part ({error:.2g} of the spread off), and {named:.1%} of them are recognised."
    if error < 1:
        return f"Little more than the mean row was found ({error:.2g} of the spread off; {named:.1%} recognised)."
    return (
        f"The attack failed: the mean row is a better guess. {named:.1%} are recognised; another attack may do better."
    )

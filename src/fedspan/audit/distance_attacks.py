"""Attacks on distances of rows to landmarks, and on the sums by which FedDL learns these.

Each is a function of a `Case`, and returns ``None`` where it has no target.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fedspan.audit.attack_case import Case
from fedspan.audit.leak_card import LeakEntry
from fedspan.audit.public_rows_attack import fill, unrotate
from fedspan.audit.sums_attack import rows_from_sums, small_enough
from fedspan.audit.trilateration import Rebuilt

#: The share of the sums that rows which have them to rounding leave unexplained.
_SAME_SUMS = 1e-8


def trilateration(case: Case) -> LeakEntry | None:
    """Rebuild rows from their distances to landmarks."""
    found = case.rebuilt
    if found is None:
        return None
    return case.entry(
        found.rows,
        "trilateration",
        _distances(found),
        "the landmarks, which the coordinator computes itself, and the distances, which the sites send",
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
    knows = f"the landmarks, the distances, and {len(case.public)} public rows of the same kind"
    rows = fill(found, case.public)
    return case.entry(rows, "trilateration, filled from public rows", _distances(found), knows)


def secret_rotation(case: Case) -> LeakEntry | None:
    """Rebuild rows as if the sites had rotated and shifted all of them by a key that they share."""
    found = case.rebuilt
    if found is None or case.public is None:
        return None
    knows = f"the landmarks, rotated likewise, the distances, and {len(case.public)} public rows, but not the key"
    # The attack uses inner products of rows alone, so that it finds the same whether they were rotated or not.
    rows = unrotate(found.rows, case.public)
    return case.entry(rows, "had the sites turned their rows by a secret rotation", _distances(found), knows)


def _distances(found: Rebuilt) -> str:
    return f"distances of {len(found.rows)} rows to {found.n_landmarks} landmarks"


def totals(case: Case) -> LeakEntry | None:
    """Rebuild rows from FedDL's totals over all sites, and from their distances where these were posted."""
    received, sums, found = case.received, case.received.sums, case.rebuilt
    if sums is None or not small_enough(sums) or (case.truth is not None and len(case.truth) != sums.n):
        return None
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
    verdict = ""
    if case.truth is None and fitted.misfit < _SAME_SUMS:
        verdict = f"Rows were found that have the very sums ({numbers}): others hardly exist, so these are the rows."
    elif case.truth is None:
        verdict = (
            f"Rows were found whose sums are {fitted.misfit:.2g} off ({numbers}): the rows in part, or similar ones."
        )
    entry = case.entry(
        rows,
        "totals of FedDL" + ("" if found is None else ", and distances"),
        f"moments, sums of cosines and sines, and pulls of {len(sums.pulls)} landmarks, over all sites: {numbers}",
        "the requests of each round, and the totals; a secure sum hides neither",
        verdict,
        equations=sums.equations,
        unknowns=sums.unknowns,
        misfit=fitted.misfit,
    )
    return replace(entry, verdict=entry.verdict + matched)


def site_means(case: Case) -> LeakEntry | None:
    """Guess each row by its site's mean, which the site's reply to the request for moments reveals."""
    received, truth = case.received, case.truth
    if truth is None or len(received.row_sites) != len(truth):
        return None
    numbers, counts = np.unique(received.row_sites, return_counts=True)
    if len(numbers) < 2:
        return None
    rows = np.empty(truth.shape)
    for number in numbers:
        mine = received.row_sites == number
        rows[mine] = truth[mine].mean(axis=0)
    made, about = "landmarks", "kernel-weighted, about the landmarks"
    if received.map is not None:
        made, about = "centres", "of the rows closest to each centre"
    fewest = int(counts.min())
    smallest = "A site of one row has no secret left." if fewest == 1 else f"The smallest site has {fewest} rows."
    return case.entry(
        rows,
        "sums of single sites",
        f"the sums by which {made} are learned, if the coordinator sees each site's part",
        "each site's number of rows and sum of rows; with a secure sum it knows their totals alone",
        f"A site's sum over its number of rows is its mean row, which is the guess here. {smallest} "
        f"The sums of each round ({about}) reveal more, and those of single sites were not attacked.",
    )


#: In the order of the card.
DISTANCE_ATTACKS = (trilateration, public_rows, secret_rotation, totals, site_means)

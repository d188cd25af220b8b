"""Attacks on distances of rows to landmarks, and on the sums by which FedDL learns these.

An attack of the card is a function of a `Case` that yields its entries, none without a target. Two of them need public
rows of the same kind, such as other images or other patients:

`fill`: trilateration leaves rows open in part where landmarks are fewer than columns, or distances are noisy. The best
linear prediction, learned from the public rows, completes them.

`unrotate`: the sites may have rotated and shifted all their rows by a secret key. Distances do not change, so maps do
not suffer. Principal axes of the rotated rows are those of the public ones up to signs and small turns. The attack
tries the signs, and then matches the two clouds of points (iterative closest points).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fedspan.arrays import Array, Matrix
from fedspan.audit.attack_case import Case
from fedspan.audit.leak_card import LeakEntry
from fedspan.audit.sums_attack import rows_from_sums, small_enough
from fedspan.audit.trilateration import Rebuilt
from fedspan.errors import InputError
from fedspan.linalg.kernels.gaussian_kernel import squared_distances

#: The share of the sums that rows which have them to rounding leave unexplained.
_SAME_SUMS = 1e-8
#: The most public rows that are used, and the fewest from which anything can be learned.
MOST_PUBLIC, FEWEST_PUBLIC = 10_000, 20
_RIDGES = np.geomspace(1e-8, 1e2, 21)
#: Axes whose signs are tried in all ways; the numbers of axes that are then matched, and the rounds for each.
_SIGNED = 10
_WIDTHS, _TURNS, _LAST_TURNS = (10, 20, 40, 60, 100), 5, 15
#: Rows and public rows that are matched; the rotation that is found holds for all.
_MOST_MATCHED = 5000


def on_distances(case: Case) -> Iterator[LeakEntry]:
    """Rebuild rows from their distances to landmarks, also with the help of public rows."""
    found, public = case.rebuilt, case.public
    if found is None:
        return
    target = f"distances of {len(found.rows)} rows to {found.n_landmarks} landmarks"
    yield case.entry(
        found.rows,
        "trilateration",
        target,
        "the landmarks, which the coordinator computes itself, and the distances, which the sites send",
        determined=found.determined,
        directions=found.directions,
        columns=found.n_columns,
        effective_directions=found.effective,
        cut=found.cut,
        estimated_relative_error=found.outside,
        misfit=found.misfit,
    )
    if public is None:
        return
    knows = f"the landmarks, the distances, and {len(public)} public rows of the same kind"
    yield case.entry(fill(found, public), "trilateration, filled from public rows", target, knows)
    # This attack uses inner products of rows alone, so that it finds the same whether they were rotated or not.
    knows = f"the landmarks, rotated likewise, the distances, and {len(public)} public rows, but not the key"
    rows = unrotate(found.rows, public)
    yield case.entry(rows, "had the sites turned their rows by a secret rotation", target, knows)


def on_totals(case: Case) -> Iterator[LeakEntry]:
    """Rebuild rows from FedDL's totals over all sites, and from their distances where these were posted."""
    received, sums, found = case.received, case.received.sums, case.rebuilt
    if sums is None or not small_enough(sums) or (case.truth is not None and len(case.truth) != sums.n):
        return
    fixed = found is not None and found.directions >= len(sums.centre)
    if found is not None and (fixed or len(found.rows) != sums.n):
        return  # distances alone fix the rows, or all that the sums are about, or they are of others
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
    yield replace(entry, verdict=entry.verdict + matched)


def on_site_sums(case: Case) -> Iterator[LeakEntry]:
    """Guess each row by its site's mean, which the site's reply to the request for moments reveals."""
    received, truth = case.received, case.truth
    if truth is None or len(received.row_sites) != len(truth):
        return
    numbers, counts = np.unique(received.row_sites, return_counts=True)
    if len(numbers) < 2:
        return
    rows = np.empty(truth.shape)
    for number in numbers:
        mine = received.row_sites == number
        rows[mine] = truth[mine].mean(axis=0)
    made, about = "landmarks", "kernel-weighted, about the landmarks"
    if received.map is not None:
        made, about = "centres", "of the rows closest to each centre"
    fewest = int(counts.min())
    smallest = "A site of one row has no secret left." if fewest == 1 else f"The smallest site has {fewest} rows."
    yield case.entry(
        rows,
        "sums of single sites",
        f"the sums by which {made} are learned, if the coordinator sees each site's part",
        "each site's number of rows and sum of rows; with a secure sum it knows their totals alone",
        f"A site's sum over its number of rows is its mean row, which is the guess here. {smallest} "
        f"The sums of each round ({about}) reveal more, and those of single sites were not attacked.",
    )


def fill(found: Rebuilt, public: Array) -> Matrix:
    """Return rows (n, m) as predicted from their landmark coordinates, learned from public rows (k, m).

    A linear prediction whose ridge is chosen on a fifth of the public rows.
    """
    P = _checked(public, found.n_columns)
    mean = P.mean(axis=0)
    seen = (P - mean) @ found.axes.T  # the public rows' own landmark coordinates
    wanted = P - mean
    late = np.arange(len(P)) % 5 == 0
    gram = seen[~late].T @ seen[~late] / np.count_nonzero(~late) + np.diag(found.noise)
    cross = seen[~late].T @ wanted[~late] / np.count_nonzero(~late)
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0)
    # Public rows as the coordinator would see them: with the noise of the private ones.
    noise = np.random.default_rng(0).standard_normal((np.count_nonzero(late), len(found.noise))) * np.sqrt(found.noise)
    tried, cross = (seen[late] + noise) @ vectors, vectors.T @ cross
    ridges = _RIDGES * max(float(values.mean()), np.finfo(float).tiny)
    errors = [float(((tried / (values + ridge) @ cross - wanted[late]) ** 2).sum()) for ridge in ridges]
    coefficients = vectors / (values + ridges[int(np.argmin(errors))]) @ cross
    offset = (found.centre - mean) @ found.axes.T
    return np.asarray(mean + (found.coordinates + offset) @ coefficients)


def unrotate(rows: Array, public: Array) -> Matrix:
    """Return rows (n, m) as they were before a secret rotation and offset.

    Parameters
    ----------
    rows : array (n, m')
        Rotated rows, as trilateration finds them, in any orthogonal coordinates.
    public : array (k, m)
        Rows of the same kind, not rotated. Memory: up to 5000 x 5000 numbers.
    """
    P = _checked(public, np.shape(public)[-1])
    mean = P.mean(axis=0)
    theirs, axes = _principal(P - mean)
    mine, _ = _principal(rows - np.mean(rows, axis=0))
    k = min(mine.shape[1], theirs.shape[1])
    mine, theirs, axes = mine[:, :k], theirs[:, :k], axes[:k]
    a_few, theirs = mine[:: -(-len(mine) // _MOST_MATCHED)], theirs[:: -(-len(theirs) // _MOST_MATCHED)]
    R, offset = np.diag(_signs(mine, theirs)), np.zeros(k)
    for width in (*(width for width in _WIDTHS if width < k), k):
        for _ in range(_LAST_TURNS if width == k else _TURNS):
            # Match both ways: one way alone draws the rows together, towards the dense parts of the public ones.
            there, back = _matches((a_few @ R + offset)[:, :width], theirs[:, :width])
            a, b = np.concatenate([a_few, a_few[back]]), np.concatenate([theirs[there], theirs])
            about, aim = a.mean(axis=0), b.mean(axis=0)
            U, _, Wt = np.linalg.svd((a - about).T @ (b - aim))
            R = U @ Wt
            offset = aim - about @ R
    return np.asarray(mean + (mine @ R + offset) @ axes)


def _principal(D: Matrix) -> tuple[Matrix, Matrix]:
    """Return scores and axes, the widest first."""
    _, S, V = np.linalg.svd(D if len(D) <= D.shape[1] else np.linalg.qr(D, mode="r"), full_matrices=False)
    V = V[max(1e-7 * S[0], np.finfo(float).tiny) < S][: _WIDTHS[-1]]
    return D @ V.T, V


def _signs(mine: Matrix, theirs: Matrix) -> Matrix:
    """Return the signs of axes by which rows come nearest to public ones; of the leading axes all ways are tried."""
    k = min(_SIGNED, mine.shape[1])
    few, many = _some(mine, 250)[:, :k], _some(theirs, 1000)[:, :k]
    squares = np.float32(0.5) * np.vecdot(many, many)
    best, found = np.inf, np.ones(k)
    for number in range(2**k):
        signs = 1.0 - 2.0 * ((number >> np.arange(k)) & 1)
        # ||a - b||^2 / 2 without the terms that the signs do not change
        apart = float((squares - (few * signs.astype(np.float32)) @ many.T).min(axis=1).sum())
        if apart < best:
            best, found = apart, signs
    return np.concatenate([found, np.ones(mine.shape[1] - k)])


def _some(rows: Matrix, most: int) -> NDArray[np.float32]:
    picked = np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int)
    return np.asarray(rows[picked], dtype=np.float32)


def _matches(A: Matrix, B: Matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the nearest row of B for each of A, and the nearest row of A for each of B."""
    apart = squared_distances(A, B)
    return apart.argmin(axis=1), apart.argmin(axis=0)


def _checked(public: Array, columns: int) -> Matrix:
    """Return public rows in double precision, thinned where there are many; refuse too few and other columns."""
    P = np.asarray(public)
    if P.ndim != 2 or P.shape[1] != columns or len(P) < FEWEST_PUBLIC or P.dtype.kind not in "fiub":
        raise InputError(
            f"public has the shape {P.shape}, and must have at least {FEWEST_PUBLIC} rows of {columns} numbers"
        )
    P = np.asarray(P[:: -(-len(P) // MOST_PUBLIC)], dtype=np.float64)
    if not np.isfinite(P).all():
        raise InputError("public must hold finite numbers only")
    return P

"""Attacks on maps of centres: on posted positions, on the centres themselves, and on the histograms of every round."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import rankdata

from fedspan.audit.followed_rows import followed
from fedspan.audit.leak_card import LeakEntry
from fedspan.audit.received_map import ReceivedMap

if TYPE_CHECKING:
    from fedspan.audit.row_attacks import Case

Array = NDArray[Any]

#: How many neighbours are averaged is found among these, by public rows that are left out.
_NEIGHBOURS = (1, 2, 5, 10, 20, 50)
#: Principal components of public rows that a network learns to tell: positions say no more of the rest.
_COMPONENTS = 50
#: Rounds for which a row must be alone in its cell to count as followed.
_ROUNDS = 10


def positions_by_public_rows(case: Case) -> LeakEntry | None:
    """Guess a row by the public rows that lie nearest to it on the map."""
    found = case.received.map
    if found is None or found.positions is None or case.public is None or len(case.public) < 2:
        return None
    placed = found.place(case.public)
    tree = cKDTree(placed)
    near = tree.query(placed, min(len(placed), max(_NEIGHBOURS) + 1))[1][:, 1:]
    k = _best(near, case.public, case.public)
    rows = case.public[_nearest(tree, found.positions, k)].mean(axis=1)
    return case.entry(
        rows,
        "positions: nearest public rows",
        f"positions of {len(rows)} rows",
        f"the map, and {len(case.public)} public rows, which it places as the sites place theirs",
        averaged_rows=k,
    )


def positions_by_both(case: Case) -> LeakEntry | None:
    """Guess a row by the nearest public rows and the nearest centres, weighed as is best for public rows."""
    found = case.received.map
    if found is None or found.positions is None or case.public is None or len(case.public) < 20:
        return None
    public, placed = case.public, found.place(case.public)
    rows, centres = cKDTree(placed), cKDTree(found.centre_positions)
    own = rows.query(placed, min(len(placed), max(_NEIGHBOURS) + 1))[1][:, 1:]
    near = _nearest(centres, placed, min(len(found.centres), max(_NEIGHBOURS)))
    k, c = _best(own, public, public), _best(near, public, found.centres)
    middle = public.mean(axis=0)

    def guesses(of_rows: Array, of_centres: Array) -> Array:
        parts = (public[of_rows[:, :k]].mean(axis=1), found.centres[of_centres[:, :c]].mean(axis=1))
        return np.stack([part - middle for part in parts])

    A = guesses(own, near).reshape(2, -1)
    weights = np.linalg.lstsq(A @ A.T, A @ (public - middle).ravel(), rcond=None)[0]
    told = guesses(_nearest(rows, found.positions, k), _nearest(centres, found.positions, c))
    return case.entry(
        middle + np.tensordot(weights, told, 1),
        "positions: public rows and centres",
        f"positions of {told.shape[1]} rows",
        f"the map with its {len(found.centres)} centres, and {len(public)} public rows, which it places likewise",
        averaged_rows=k,
        averaged_centres=c,
    )


def positions_by_learned_inverse(case: Case) -> LeakEntry | None:
    """Guess a row by a network that has learned the way back from positions, on public rows."""
    found = case.received.map
    if found is None or found.positions is None or case.public is None or len(case.public) < 20:
        return None
    rows = _learned(found.place(case.public), case.public, found.positions)
    return case.entry(
        rows,
        "positions: learned inverse",
        f"positions of {len(rows)} rows",
        f"the map, and {len(case.public)} public rows, which it places as the sites place theirs",
    )


def positions_by_centres(case: Case) -> LeakEntry | None:
    """Guess a row by the centres that lie nearest to it on the map."""
    found = case.received.map
    if found is None or found.positions is None:
        return None
    tree, k = cKDTree(found.centre_positions), min(5, len(found.centres))
    if case.public is not None:
        near = _nearest(tree, found.place(case.public), min(len(found.centres), max(_NEIGHBOURS)))
        k = _best(near, case.public, found.centres)
    rows = found.centres[_nearest(tree, found.positions, k)].mean(axis=1)
    return case.entry(
        rows,
        "positions: nearest centres",
        f"positions of {len(rows)} rows",
        f"the map with its {len(found.centres)} centres",
        averaged_centres=k,
    )


def rows_by_centres(case: Case) -> LeakEntry | None:
    """Guess each row by its nearest centre, as if somebody told which that is."""
    found = case.received.map
    if found is None or case.truth is None:
        return None
    _, which = _to_centres(found, case.truth)
    return case.entry(
        found.centres[which],
        "centres: the nearest one, given away",
        f"{len(found.centres)} centres, the smallest of {found.counts.min()} rows",
        "the centres, and of each row which is the nearest: no message tells that",
    )


def membership(case: Case) -> LeakEntry | None:
    """Tell rows that made the centres from rows that did not, by the distance to the nearest centre."""
    found = case.received.map
    if found is None or case.truth is None or case.public is None or not len(case.public):
        return None
    members, others = _to_centres(found, case.truth)[0], _to_centres(found, case.public)[0]
    ranks = rankdata(np.concatenate([members, others]))
    m, n = len(members), len(others)
    auc = 1.0 - float((ranks[:m].sum() - m * (m + 1) / 2) / (m * n))
    said = f"A row of the sites is nearer to its centre than a public row in {auc:.1%} of pairs; by chance it is 50 %."
    return LeakEntry(
        "centres: membership",
        f"{len(found.centres)} centres",
        f"the centres, the rows that are asked about, and {n} public rows to compare with",
        said,
        {"auc": auc},
        {"auc": 0.5},
    )


def rows_in_histograms(case: Case) -> LeakEntry | None:
    """Follow rows that are alone in a cell from round to round."""
    histograms = case.received.histograms
    if len(histograms) < 2:
        return None
    lengths = followed(histograms)
    n = max(float(histograms[-1].sum()), 1.0)
    long = int((lengths >= _ROUNDS).sum())
    last = int(lengths.max(initial=0))
    said = (
        f"Of {n:.0f} rows {len(lengths)} are alone in their cell in the last round, {long} of them for {_ROUNDS} "
        f"rounds or more, one for {last}: their positions are known, as if they were posted, but not whose they are."
        if len(lengths)
        else f"Of {n:.0f} rows none is alone in its cell in the last round: none was followed to the end."
    )
    facts = {"rounds": len(histograms), "alone_at_the_end": len(lengths), "followed": long, "longest": last}
    return LeakEntry(
        "histograms: rows alone in a cell",
        f"summed histograms of {len(histograms)} rounds",
        "the sums of all sites, of every round",
        said,
        {"followed": long / n},
        {"followed": 0.0},
        dict(facts),
    )


#: In the order of the card.
MAP_ATTACKS = (
    positions_by_public_rows,
    positions_by_learned_inverse,
    positions_by_centres,
    positions_by_both,
    rows_by_centres,
    membership,
    rows_in_histograms,
)


def _nearest(tree: cKDTree, positions: Array, k: int) -> Array:
    return np.asarray(tree.query(positions, k)[1]).reshape(len(positions), k)


def _best(near: Array, rows: Array, values: Array) -> int:
    """Return how many of the `near` (n, most) values are to be averaged for the least error, by rows that are known."""
    tried = np.arange(0, len(rows), -(-len(rows) // 1000))
    sizes = sorted({min(k, near.shape[1]) for k in _NEIGHBOURS})
    errors = [float(np.mean((values[near[tried, :k]].mean(axis=1) - rows[tried]) ** 2)) for k in sizes]
    return int(sizes[int(np.argmin(errors))])


def _learned(placed: Array, public: Array, positions: Array) -> Array:
    """Return rows that a network tells from positions, after it has seen public rows and theirs."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    mean, spread = placed.mean(axis=0), np.maximum(placed.std(axis=0), 1e-12)
    middle = public.mean(axis=0)
    D = np.asarray(public - middle, dtype=np.float64)
    axes = np.linalg.eigh(D.T @ D)[1][:, ::-1][:, : min(_COMPONENTS, D.shape[1])]
    scores = D @ axes
    scale = max(float(scores.std()), 1e-12)
    network = MLPRegressor(
        hidden_layer_sizes=(128, 128), learning_rate_init=3e-3, max_iter=150, early_stopping=True, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # what it has learned by then is what it tells
        network.fit((placed - mean) / spread, scores / scale)
    told = network.predict((positions - mean) / spread).reshape(len(positions), -1)
    return np.asarray(middle + scale * told @ axes.T)


def _to_centres(found: ReceivedMap, rows: Array) -> tuple[Array, Array]:
    """Return the distance of each row to its nearest centre, along the map's axes, and which that is."""
    distance, which = cKDTree(found.seen(found.centres)).query(found.seen(rows))
    return np.asarray(distance), np.asarray(which)

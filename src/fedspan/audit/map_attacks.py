"""Attacks on maps of centres: on posted positions, on the centres themselves, and on the histograms of every round."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import find_objects, label
from scipy.spatial import cKDTree
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedspan.arrays import Array
from fedspan.audit.attack_case import Case
from fedspan.audit.leak_card import LeakEntry
from fedspan.audit.received import ReceivedMap

#: The numbers of neighbours to average that are tried, on public rows that are left out.
_NEIGHBOURS = (1, 2, 5, 10, 20, 50)
#: The fewest public rows from which the way back from positions can be learned.
_FEWEST_TO_LEARN = 20
#: Principal components of public rows that a network learns: positions hold no more about the others.
_COMPONENTS = 50
#: Rounds for which a row must be alone in its cell to count as followed.
_ROUNDS = 10
#: Cells that a row may move in a round and still count as the same.
_REACH = 2.0
_ALONE = 1e-6


def on_positions(case: Case) -> Iterator[LeakEntry]:
    """Guess each row by centres, by public rows, by a learned inverse of the map, and by centres and public rows."""
    found, public = case.received.map, case.public
    if found is None or found.positions is None:
        return
    positions = found.positions
    known = f"the map with its {len(found.centres)} centres"

    def entry(rows: Array, attack: str, knows: str, **facts: Any) -> LeakEntry:
        return case.entry(rows, f"positions: {attack}", f"positions of {len(rows)} rows", knows, **facts)

    by_centres = _nearest_centres(found, public)
    centres = by_centres.guess(positions)
    yield entry(centres, "nearest centres", known, averaged_centres=by_centres.k)
    if public is None or len(public) < 2:
        return
    knows = f"the map, and {len(public)} public rows, which it places as the sites place theirs"
    by_rows = _nearest_public(found, public)
    rows = by_rows.guess(positions)
    yield entry(rows, "nearest public rows", knows, averaged_rows=by_rows.k)
    if len(public) < _FEWEST_TO_LEARN:
        return
    yield entry(_learned(found.place(public), public, positions), "learned inverse", knows)
    # Both together, weighed as is best for the public rows.
    middle = public.mean(axis=0)
    A = np.stack([by_rows.of_public - middle, by_centres.of_public - middle]).reshape(2, -1)
    weights = np.linalg.lstsq(A @ A.T, A @ (public - middle).ravel(), rcond=None)[0]
    guess = middle + np.tensordot(weights, np.stack([rows - middle, centres - middle]), 1)
    averaged = {"averaged_rows": by_rows.k, "averaged_centres": by_centres.k}
    knows = f"{known}, and {len(public)} public rows, which it places likewise"
    yield entry(guess, "public rows and centres", knows, **averaged)


def on_centres(case: Case) -> Iterator[LeakEntry]:
    """Guess each row by its nearest centre, as if that were known; and distinguish rows that made the centres."""
    found, truth, public = case.received.map, case.truth, case.public
    if found is None or truth is None:
        return
    distances, which = _to_centres(found, truth)
    yield case.entry(
        found.centres[which],
        "centres: the nearest one, given away",
        f"{len(found.centres)} centres, the smallest of {found.counts.min()} rows",
        "the centres, and of each row which is the nearest: no message contains that",
    )
    if public is None or not len(public):
        return
    member = np.repeat([True, False], [len(truth), len(public)])
    auc = float(roc_auc_score(member, -np.concatenate([distances, _to_centres(found, public)[0]])))
    yield LeakEntry(
        "centres: membership",
        f"{len(found.centres)} centres",
        f"the centres, the rows in question, and {len(public)} public rows to compare with",
        f"A row of the sites is nearer to its centre than a public row in {auc:.1%} of pairs; by chance it is 50 %.",
        {"auc": auc},
        {"auc": 0.5},
    )


def on_histograms(case: Case) -> Iterator[LeakEntry]:
    """Follow rows that are alone in a cell from round to round."""
    histograms = case.received.histograms
    if len(histograms) < 2:
        return
    lengths = followed(histograms)
    n = max(float(histograms[-1].sum()), 1.0)
    long, longest = int((lengths >= _ROUNDS).sum()), int(lengths.max(initial=0))
    verdict = f"Of {n:.0f} rows none is alone in its cell in the last round: none was followed to the end."
    if len(lengths):
        verdict = (
            f"Of {n:.0f} rows {len(lengths)} are alone in their cell in the last round, {long} of them for {_ROUNDS} "
            f"rounds or more, one for {longest}: their positions are known, as if they were posted, but not whose "
            "they are."
        )
    yield LeakEntry(
        "histograms: rows alone in a cell",
        f"summed histograms of {len(histograms)} rounds",
        "the sums of all sites, of every round",
        verdict,
        {"followed": long / n},
        {"followed": 0.0},
        {"rounds": len(histograms), "alone_at_the_end": len(lengths), "followed": long, "longest": longest},
    )


@dataclass(frozen=True)
class _Nearest:
    """Guesses by the mean of the `k` nearest known rows on the map; `of_public` are those of the public rows."""

    tree: cKDTree
    values: Array
    k: int
    of_public: Array

    def guess(self, positions: Array) -> Array:
        near = np.asarray(self.tree.query(positions, self.k)[1]).reshape(len(positions), self.k)
        return np.asarray(self.values[near].mean(axis=1))


def _nearest_public(found: ReceivedMap, public: Array) -> _Nearest:
    placed = found.place(public)
    tree = cKDTree(placed)
    near = tree.query(placed, min(len(placed), max(_NEIGHBOURS) + 1))[1][:, 1:]  # without itself
    k = _best(near, public, public)
    return _Nearest(tree, public, k, public[near[:, :k]].mean(axis=1))


def _nearest_centres(found: ReceivedMap, public: Array | None) -> _Nearest:
    tree, L = cKDTree(found.centre_positions), len(found.centres)
    if public is None:
        return _Nearest(tree, found.centres, min(5, L), np.empty((0, found.centres.shape[1])))
    most = min(L, max(_NEIGHBOURS))
    near = np.asarray(tree.query(found.place(public), most)[1]).reshape(len(public), most)
    k = _best(near, public, found.centres)
    return _Nearest(tree, found.centres, k, found.centres[near[:, :k]].mean(axis=1))


def _best(near: Array, rows: Array, values: Array) -> int:
    """Return how many of the `near` (n, most) values to average for the least error, by rows that are known."""
    tried = np.arange(0, len(rows), -(-len(rows) // 1000))
    sizes = sorted({min(k, near.shape[1]) for k in _NEIGHBOURS})
    errors = [float(np.mean((values[near[tried, :k]].mean(axis=1) - rows[tried]) ** 2)) for k in sizes]
    return int(sizes[int(np.argmin(errors))])


def _learned(placed: Array, public: Array, positions: Array) -> Array:
    """Return rows that a network predicts from positions, trained on public rows and their positions."""
    axes = PCA(min(_COMPONENTS, *public.shape), svd_solver="full").fit(public)
    scores = axes.transform(public)
    scale = max(float(scores.std()), 1e-12)
    rates = {"learning_rate_init": 3e-3, "max_iter": 150, "early_stopping": True}
    learned = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(128, 128), random_state=0, **rates))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a network that is not quite trained predicts as well
        learned.fit(placed, scores / scale)
    return np.asarray(axes.inverse_transform(scale * learned.predict(positions).reshape(len(positions), -1)))


def _to_centres(found: ReceivedMap, rows: Array) -> tuple[Array, Array]:
    """Return the distance of each row to its nearest centre, along the map's axes, and which that is."""
    distance, which = cKDTree(found.seen(found.centres)).query(found.seen(rows))
    return np.asarray(distance), np.asarray(which)


def lone_rows(histogram: Array) -> Array:
    """Return the places (m, 2), in cells, of the rows that share no node with others: four nodes that add up to one."""
    groups, _ = label(histogram > _ALONE, structure=np.ones((3, 3)))
    places = []
    for number, (rows, columns) in enumerate(find_objects(groups), start=1):
        if rows.stop - rows.start > 2 or columns.stop - columns.start > 2:
            continue
        part = np.where(groups[rows, columns] == number, histogram[rows, columns], 0.0)
        if abs(part.sum() - 1.0) < _ALONE:
            at = np.argwhere(part > 0)
            places.append([rows.start, columns.start] + part[part > 0] @ at)
    return np.array(places).reshape(-1, 2)


def followed(histograms: Sequence[Array]) -> NDArray[np.int64]:
    """Return, for each row that is alone in the last histogram, the number of rounds since when it has been so.

    A row is the same in two rounds where each is the other's nearest and no more than two cells away. Cells move and
    grow from round to round: places are compared about the mean of all rows, in units of their spread.
    """
    before, lengths = np.empty((0, 2)), np.empty(0, dtype=np.int64)
    for histogram in histograms:
        nodes = np.indices(histogram.shape).reshape(2, -1).T
        weights = histogram.ravel() / max(float(histogram.sum()), 1e-300)
        mean = weights @ nodes
        spread = max(float(np.sqrt(weights @ np.square(nodes - mean).sum(axis=1))), 1e-9)
        now = (lone_rows(histogram) - mean) / spread
        found = np.ones(len(now), dtype=np.int64)
        if len(now) and len(before):
            distance, old = cKDTree(before).query(now)
            back = cKDTree(now).query(before)[1]
            same = (distance <= _REACH / spread) & (back[old] == np.arange(len(now)))
            found[same] += lengths[old[same]]
        before, lengths = now, found
    return lengths

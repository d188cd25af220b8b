"""Tables 1 and 2: maps of a data set, centralised, by the paper's form of distances and by ours, with noise or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score, silhouette_score

from fedspan.arrays import Array
from fedspan.linalg.layout.map_quality import map_neighbors, shared_neighbors
from fedspan.papers.fed_tsne.learned_paper import (
    DELTA,
    FACES,
    LEAK_HEADS,
    Leak,
    PaperRows,
    Pooled,
    beside,
    epsilon_words,
    learned,
    noise_words,
    paper_way,
)
from fedspan.papers.results_paper import Maps, Table, Words, published
from fedspan.privacy import PaperNoise
from fedspan.privacy.mechanisms import Mechanism

#: Neighbours by which accuracy and preservation are measured.
NEIGHBORS = (1, 10, 50)
#: Rows of which the silhouette coefficient is taken (it needs all distances between them), and rows that are drawn.
SILHOUETTE_ROWS, MOST_DRAWN = 4000, 2500
_WAYS = {"paper": "paper's form", "coordinates": "ours"}


@dataclass(frozen=True)
class Quality:
    """Measures of a map; `accuracy` (CA) and `preserved` (NPA) by 1, 10 and 50 neighbours.

    CA is the accuracy of leave-one-out votes of the nearest rows on the map. NPA is the share of a row's true
    neighbours that are its neighbours on the map. NMI and SC are those of k-means on the map, with as many clusters as
    classes.
    """

    accuracy: tuple[float, ...]
    preserved: tuple[float, ...]
    nmi: float
    silhouette: float

    def values(self) -> tuple[float, ...]:
        """Return all in the order of the paper's tables."""
        return *self.accuracy, *self.preserved, self.nmi, self.silhouette


#: The names of `Quality.values`.
NAMES = (*(f"CA{k}" for k in NEIGHBORS), *(f"NPA{k}" for k in NEIGHBORS), "NMI", "SC")


def quality(Z: Array, y: Array, truth: Array) -> Quality:
    """Measure a map Z (n, 2) of rows with classes y and true neighbours (n, 50 or more)."""
    found = map_neighbors(Z, max(NEIGHBORS))
    clusters = KMeans(int(y.max()) + 1, n_init=10, random_state=0).fit(Z).labels_
    size = min(len(Z), SILHOUETTE_ROWS)
    return Quality(
        tuple(vote_accuracy(found[:, :k], y) for k in NEIGHBORS),
        tuple(shared_neighbors(found[:, :k], truth[:, :k]) for k in NEIGHBORS),
        float(normalized_mutual_info_score(y, clusters)),
        float(silhouette_score(Z, clusters, sample_size=size, random_state=0)),
    )


def vote_accuracy(found: Array, y: Array) -> float:
    """Return how often most of a row's neighbours (n, k) have its class.

    Examples
    --------
    >>> vote_accuracy(np.array([[1, 2], [0, 2], [0, 1]]), np.array([0, 0, 1]))
    0.6666666666666666
    """
    votes = np.zeros((len(y), int(y.max()) + 1), dtype=np.int32)
    np.add.at(votes, (np.arange(len(y))[:, None], y[found]), 1)
    return float(np.mean(votes.argmax(axis=1) == y))


@dataclass(frozen=True)
class MapSetting:
    """One way of learning landmarks (`split` and `privacy`), and the forms of distance that are made of it."""

    split: str
    privacy: Mechanism | None = None
    methods: Sequence[str] = ("paper", "coordinates")
    faces: Sequence[str] = tuple(FACES)


@dataclass(frozen=True)
class TableLine:
    """One line of a table: how the map was made (``setting=None``: centralised), and how good it is."""

    setting: MapSetting | None
    method: str
    quality: Quality
    places: Array
    epsilon: float = np.inf
    leak: Leak | None = None

    @property
    def name(self) -> str:
        """How the map was made, in words."""
        if self.setting is None:
            return "centralised"
        return f"{_WAYS[self.method]}, {self.setting.split}{noise_words(self.setting.privacy)}"

    @property
    def plain(self) -> bool:
        """Whether there was no noise."""
        return self.setting is None or self.setting.privacy is None

    def cells(self, paper: Mapping[str, Sequence[float]]) -> list[str]:
        """Return the line as text, the paper's numbers for its own form of distance in brackets."""
        epsilon, way = "", "centralised"
        if self.setting is not None:
            epsilon = epsilon_words(self.epsilon)
            way = paper_way(self.setting.split, self.setting.privacy) if self.method == "paper" else ""
        values = self.quality.values()
        shown = [beside(*both) for both in zip(values, paper.get(way, [None] * len(values)), strict=True)]
        return [self.name, *shown, epsilon, *(["", ""] if self.leak is None else self.leak.cells())]


Found = dict[str, list[TableLine]]


def centralised(rows: PaperRows) -> tuple[Array, Found]:
    """Return the true neighbours (n, 50) of all rows, and maps of the pooled rows: a line for each face."""
    pooled = Pooled(rows.X)
    maps = pooled.maps(FACES)
    lines = {face: [TableLine(None, "", quality(Z, rows.y, pooled.indices), Z)] for face, Z in maps.items()}
    return pooled.indices[:, : max(NEIGHBORS)], lines


def federated(rows: PaperRows, truth: Array, setting: MapSetting, rounds: int) -> Found:
    """Return maps of a setting, measured against true neighbours: lines by face."""
    found: Found = {face: [] for face in setting.faces}
    fitted = learned(rows, rows.sites(setting.split), setting.privacy, rounds=rounds)
    leak = fitted.leak()
    for method in setting.methods:
        for face, Z in fitted.maps(method, found).items():
            found[face].append(TableLine(setting, method, quality(Z, rows.y, truth), Z, fitted.epsilon, leak))
    return found


def map_tables(data: str, rows: PaperRows, found: Found, rounds: int) -> list[Table]:
    """Return a table for each face."""
    paper = {face: published("fed-tsne")["maps"].get(f"{data}, {face}", {}) for face in found}
    theirs = " In brackets: the paper's values, of 40,000 rows and over its runs." if any(paper.values()) else ""
    remark = (
        f"{rows.n_landmarks} landmarks, {rounds} rounds, ten sites where rows are split at random (IID) and one for "
        f"each class otherwise (without noise the landmarks are those of the pooled rows whatever the split, so that "
        f"one split stands for all); one run, seed 0.{theirs} CA: leave-one-out accuracy on the map; NPA: share of the "
        "true neighbours kept; NMI, SC: of k-means on the map (SC of at most 4,000 rows). Epsilon: of the landmarks "
        f"alone, worst site, delta {DELTA:g}; it does not cover the posted distances. Leak: rows rebuilt from these."
    )
    title, columns = f"{rows.name}, {len(rows.X):,} rows", ["", *NAMES, "epsilon", *LEAK_HEADS]
    return [
        Table(f"{title}: {face}", columns, [line.cells(paper[face]) for line in lines], remark)
        for face, lines in found.items()
    ]


def map_pictures(rows: PaperRows, found: Found) -> Maps:
    """Return the maps themselves without those with noise: of a large set, evenly spaced rows."""
    some = slice(None, None, -(-len(rows.X) // MOST_DRAWN))
    shown: dict[str, Array] = {
        f"{face}, {line.name}": np.round(line.places[some], 3)
        for face, lines in found.items()
        for line in lines
        if line.plain
    }
    remark = "Coloured by class, which no layout has seen; turned as the layout left them. Without noise."
    return Maps(f"{rows.name}: the maps", rows.y[some], shown, remark)


def words(found: Mapping[str, Found]) -> Words:
    """Return the conclusions from the numbers of this very run."""
    compared = []
    for data, faces in found.items():
        for face, lines in faces.items():
            below = []
            for method in ("coordinates", "paper"):
                ours = next(line.quality for line in lines if line.setting and line.method == method and line.plain)
                top = lines[0].quality
                below += [top.accuracy[1] - ours.accuracy[1], top.preserved[1] - ours.preserved[1]]
            compared.append(
                f"{data}, {face}: below the centralised map by {below[0]:.3f} (CA10) and {below[1]:.3f} (NPA10) with "
                f"landmark coordinates, by {below[2]:.3f} and {below[3]:.3f} with the paper's form."
            )
    lines = [line for faces in found.values() for several in faces.values() for line in several]
    noisy = [line.epsilon for line in lines if line.setting and isinstance(line.setting.privacy, PaperNoise)]
    range_ = " to ".join(dict.fromkeys(epsilon_words(value) for value in (min(noisy), max(noisy)))) if noisy else ""
    noise = (
        "Noise. The paper's Fed-tSNE+ and Fed-UMAP+ add noise as large as the gradient's own spread. In these tables "
        f"its epsilon is {range_}, where 1 is strong protection and 100 none; and the size of the noise is taken from "
        "the rows, so strictly there is no guarantee at all."
    )
    leaks = [line.leak.relative_error for line in lines if line.leak is not None]
    leak = (
        "The leak. Noise on gradients covers the landmarks alone. The distances that are posted next come from the "
        f"rows as they are: rebuilt rows have a relative error of {min(leaks):.2g} to {max(leaks):.2g} (1: nothing is "
        "known). A map by posted distances is not private against the coordinator."
    )
    return Words("Conclusions", [*compared, noise if noisy else "No map here has the paper's noise.", leak])

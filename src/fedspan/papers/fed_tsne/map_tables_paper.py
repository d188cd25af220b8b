"""Tables 1 and 2: maps of a data set, centralised, by the paper's form of distances and by ours, with noise or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.papers.fed_tsne.fed_tsne_numbers_paper import MAPS, beside
from fedspan.papers.fed_tsne.layouts_paper import Pooled
from fedspan.papers.fed_tsne.leak_paper import HEADS, Leak, leak
from fedspan.papers.fed_tsne.map_measures_paper import NAMES, NEIGHBORS, Quality, quality
from fedspan.papers.fed_tsne.rows_paper import Rows
from fedspan.papers.fed_tsne.variants_paper import DELTA, GUARANTEED, PAPER_NOISE, epsilon_words, learned, noise_words
from fedspan.papers.results_paper import Maps, Table
from fedspan.privacy.mechanisms import Mechanism


@dataclass(frozen=True)
class Setting:
    """One way of learning landmarks (`split` and `privacy`), and the forms of distance that are made of it."""

    split: str
    privacy: Mechanism | None
    methods: Sequence[str]
    faces: Sequence[str] = ("t-SNE", "UMAP")

    def only(self, *methods: str) -> Setting:
        """Return this with some forms of distance alone."""
        return replace(self, methods=methods)

    def by(self, *faces: str) -> Setting:
        """Return this with some faces alone."""
        return replace(self, faces=faces)


#: Without noise and with one local step any split has the same landmarks, and so the same maps.
PLAIN = Setting("one class", None, ("paper", "coordinates"))
PLAIN_IID = Setting("IID", None, ("paper", "coordinates"))
NOISY_IID = Setting("IID", PAPER_NOISE, ("paper", "coordinates"))
NOISY = Setting("one class", PAPER_NOISE, ("paper", "coordinates"))
PRIVATE = Setting("one class", GUARANTEED, ("coordinates",))

#: Rows of a map that are drawn.
MOST_DRAWN = 2500
_WAYS = {"paper": "paper's form", "coordinates": "ours"}


@dataclass(frozen=True)
class Line:
    """One line of a table: how the map was made, and how good it is."""

    setting: Setting | None
    method: str
    quality: Quality
    places: NDArray[Any]
    epsilon: float = np.inf
    leak: Leak | None = None

    def name(self) -> str:
        """Say how the map was made."""
        if self.setting is None:
            return "centralised"
        return f"{_WAYS[self.method]}, {self.setting.split}{noise_words(self.setting.privacy)}"

    def cells(self, theirs: Sequence[float] | None) -> list[str]:
        """Return the line as text, the paper's numbers in brackets."""
        values = self.quality.values()
        shown = [beside(v, None if theirs is None else theirs[i]) for i, v in enumerate(values)]
        epsilon = "" if self.setting is None else epsilon_words(self.epsilon)
        return [self.name(), *shown, epsilon, *(["", ""] if self.leak is None else self.leak.cells())]

    def theirs(self, data: str, face: str) -> tuple[float, ...] | None:
        """Return the paper's numbers for the same thing, which it has for its own form of distance."""
        if self.setting is None:
            return MAPS.get((data, face), {}).get((None, False))
        if self.method != "paper":
            return None
        return MAPS.get((data, face), {}).get((self.setting.split, self.setting.privacy is not None))


Found = dict[str, list[Line]]


def centralised(rows: Rows, faces: Sequence[str]) -> tuple[NDArray[Any], Found]:
    """Return the true neighbours (n, 50) of all rows, and maps of the pooled rows: a line for each face."""
    pooled = Pooled(rows.X)
    maps = pooled.maps(faces).items()
    lines = {face: [Line(None, "", quality(Z, rows.y, pooled.indices), Z)] for face, Z in maps}
    return pooled.indices[:, : max(NEIGHBORS)], lines


def federated(rows: Rows, truth: NDArray[Any], setting: Setting, faces: Sequence[str], rounds: int = 50) -> Found:
    """Return maps of a setting, measured against true neighbours: lines by face."""
    found: Found = {face: [] for face in faces if face in setting.faces}
    sites = rows.iid() if setting.split == "IID" else rows.by_class()
    fitted = learned(rows, sites, setting.privacy, rounds=rounds)
    leaked = leak(fitted)
    for method in setting.methods:
        for face, Z in fitted.maps(method, found).items():
            found[face].append(Line(setting, method, quality(Z, rows.y, truth), Z, fitted.epsilon, leaked))
    return found


def map_tables(data: str, rows: Rows, found: Found, rounds: int = 50) -> list[Table]:
    """Return a table for each face."""
    columns = ["", *NAMES, "epsilon", *HEADS]
    return [
        Table(
            f"{rows.name}, {len(rows.X):,} rows: {face}",
            columns,
            [line.cells(line.theirs(data, face)) for line in lines],
            _remark(rows, rounds, bool(MAPS.get((data, face)))),
        )
        for face, lines in found.items()
    ]


def map_pictures(rows: Rows, found: Found) -> Maps:
    """Return the maps themselves, those with noise left out: every so many rows of a large set."""
    some = slice(None, None, -(-len(rows.X) // MOST_DRAWN))
    shown = {
        f"{face}, {line.name()}": np.round(line.places[some], 3)
        for face, lines in found.items()
        for line in lines
        if line.setting is None or line.setting.privacy is None
    }
    return Maps(
        f"{rows.name}: the maps",
        rows.y[some],
        shown,
        "Coloured by class, which no map was told; turned as the layout left them. Without noise.",
    )


def _remark(rows: Rows, rounds: int, compared: bool) -> str:
    theirs = " In brackets: the paper's values, of 40,000 rows and over its runs." if compared else ""
    return (
        f"{rows.n_landmarks} landmarks, {rounds} rounds, ten sites where rows are split at random (IID) and one for "
        f"each class otherwise (without noise the landmarks are those of the pooled rows whatever the split, so that "
        f"one split stands for all); one run, seed 0.{theirs} CA: leave-one-out accuracy on the map; NPA: share of the "
        "true neighbours kept; NMI, SC: of k-means on the map (SC of at most 4,000 rows). Epsilon: of the landmarks "
        f"alone, worst site, delta {DELTA:g}; it does not cover the posted distances. Leak: rows rebuilt from these."
    )


def differences(found: Found, face: str, method: str) -> tuple[float, float]:
    """Return by how much CA10 and NPA10 of a form without noise are below the centralised map's."""
    lines = found[face]
    ours: Any = next(line for line in lines if line.setting and line.method == method and line.setting.privacy is None)
    top = lines[0].quality
    return top.accuracy[1] - ours.quality.accuracy[1], top.preserved[1] - ours.quality.preserved[1]

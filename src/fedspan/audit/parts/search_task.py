"""The input of one search of messages, and its findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Array, Matrix
from fedspan.audit.parts.row_chances import beyond_chance, column_bits
from fedspan.audit.parts.row_forms import row_views
from fedspan.audit.sent_values import Place, Sent, vectors_of
from fedspan.audit.true_table import TrueTable


@dataclass
class Found:
    """What one search found: distinct rows (or cells), and the places of the messages."""

    rows: set[int] = field(default_factory=set)
    places: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    forms: set[str] = field(default_factory=set)

    def add(self, place: Place, rows: Iterable[int], form: str = "") -> None:
        """Note a message that contains rows, and the form that they have there."""
        self.rows.update(map(int, rows))
        self.places[place] += 1
        self.forms |= {form} if form else set()


@dataclass
class Findings:
    """What all searches found, by their names; why some were cut short; and places where chance can't be excluded."""

    #: Multiplications of one search, after which vectors are left out.
    WORK: ClassVar[float] = 3e9

    found: dict[str, Found] = field(default_factory=lambda: defaultdict(Found))
    cut: dict[str, str] = field(default_factory=dict)
    unsure: set[Place] = field(default_factory=set)

    def limit(self, search: str, count: int, most: int, what: str) -> None:
        """Note that a search examines `most` of `count` things, if there are more."""
        if count > most:
            self.cut[search] = f"{search}: {most} of {count} {what}"

    def known(self, *searches: str) -> set[Place]:
        """Return the places where the named searches found rows."""
        return {place for name in searches for place in self.found[name].places}


@dataclass
class VectorTask:
    """The vectors of the messages that are as wide as the true rows (n, m), and these rows in their usual forms.

    `vectors` and `places` shrink: a vector that a search has recognised need not be searched for other forms.
    """

    sent: Sent
    table: TrueTable
    rows: Matrix = field(repr=False)
    findings: Findings

    def __post_init__(self) -> None:
        self.unique, self.keep = np.unique(self.rows, axis=0, return_index=True)
        self.vectors, self.places = _vectors(self.sent, self.rows.shape[1])

    @cached_property
    def sites(self) -> Array | None:
        """The site of each row, where it is known."""
        sites = self.table.sites
        return None if sites is None or len(sites) != len(self.rows) else sites

    @cached_property
    def views(self) -> dict[str, Matrix]:
        """Distinct rows in the forms in which they are commonly sent."""
        return {name: view[self.keep] for name, view in row_views(self.rows, self.sites).items()}

    @cached_property
    def cell_bits(self) -> Matrix:
        """The information in each cell of the distinct rows, in bits."""
        return column_bits(self.rows)[self.keep]

    @cached_property
    def bits(self) -> Matrix:
        """The information in each of the distinct rows, in bits."""
        return np.asarray(self.cell_bits.sum(axis=1))

    def rows_of(self, site: str) -> Array:
        """Return which of the distinct rows a site may have: its own where that is known, all for a total."""
        if self.sites is None or self.table.guessed or not site:
            return np.arange(len(self.unique))
        return np.flatnonzero(self.sites[self.keep] == site)

    def sources(self) -> Iterator[tuple[str, Array]]:
        """Yield each site, and "" for totals, with its vectors."""
        groups: dict[str, list[int]] = defaultdict(list)
        for i, place in enumerate(self.places):
            groups[place.site].append(i)
        for site, members in groups.items():
            yield site, np.array(members)

    def add_sure(
        self, search: str, form: str, ours: Array, which: Array, chances: Matrix, tests: float
    ) -> NDArray[np.bool_]:
        """Note the hits that chance does not explain, of the vectors `ours`, and return which they are."""
        sure = beyond_chance(which, chances, tests)
        for i in np.flatnonzero(sure):
            self.findings.found[search].add(self.places[ours[i]], [self.keep[which[i]]], form)
        return sure

    def without(self, recognised: NDArray[np.bool_]) -> None:
        """Leave out vectors that were recognised."""
        rest = np.flatnonzero(~recognised)
        self.vectors, self.places = self.vectors[rest], [self.places[i] for i in rest]


def _vectors(sent: Sent, m: int) -> tuple[Matrix, list[Place]]:
    """Return all distinct vectors of m numbers of each key that are not constant, and their first places."""
    parts, owners = [], []
    places: list[Place] = []
    lone: dict[Any, list[tuple[Place, float]]] = defaultdict(list)
    for value in sent.values:
        place = value.place
        if value.numbers.size == 1:
            one = (place, float(value.numbers.ravel()[0]))
            lone[place.run, place.call, place.site].append(one)  # the numbers of one reply
            lone[place.run, place.key, place.site, "all calls"].append(one)
        for part in vectors_of(value, m):
            parts.append(part)
            owners.append(np.full(len(part), len(places)))
            places.append(replace(place))  # an object of its own for each reading
    for group in lone.values():
        numbers = np.array([number for _, number in group])
        for start in range(0, len(numbers) - m + 1, 1 if len(numbers) <= 4 * m else m):
            parts.append(numbers[None, start : start + m])
            owners.append(np.full(1, len(places)))
            places.append(group[start][0])
    if not parts:
        return np.empty((0, m)), []
    V, owner = np.concatenate(parts), np.concatenate(owners)
    good = usable(V)
    V, owner = V[good], owner[good]
    keys: dict[Any, int] = {}
    key = np.array([keys.setdefault((place.step, place.key, place.site), len(keys)) for place in places])[owner]
    marks = V @ np.random.default_rng(0).standard_normal(m)
    once = np.sort(np.unique(np.column_stack([marks, key]), axis=0, return_index=True)[1])
    return V[once], [places[i] for i in owner[once]]


def usable(V: Matrix) -> NDArray[np.bool_]:
    """Return which vectors are finite, not huge and not constant."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.isfinite(V).all(axis=1) & (np.abs(V).max(axis=1) < 1e100) & (np.ptp(V, axis=1) > 0))

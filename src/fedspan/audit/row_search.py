"""Searches of all messages of a run for the true rows, whatever protocol sent them.

The true rows are at hand, so this is no attack: it looks for messages that contain rows, in the forms of `SEARCHES`.
What it finds is a fact. What it does not find may be there in another form.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, ndtr

from fedspan.audit.leak_card import LeakEntry
from fedspan.audit.parts.row_chances import EQUAL, LEVEL, beyond_chance, cell_bits, nearest, step
from fedspan.audit.parts.row_forms import (
    KINDS,
    QUANTISED,
    SMALL,
    WIDTHS,
    affine_match,
    direction_space,
    equal_integers,
    evenly_chosen,
    low_integers,
    low_parts,
    plain_space,
    quantised_rows,
    row_views,
    some_triples,
    sorted_space,
)
from fedspan.audit.sent_values import Place, Sent, vectors_of

Array = NDArray[Any]
Matrix = NDArray[np.float64]

#: What is searched for, and the name of each search on the card.
SEARCHES = {
    "rows": "rows as they are, centred, standardised, scaled to a range or with the columns in another order, also "
    "rounded or in single precision",
    "scaled rows": "rows times a factor, with or without an offset, both common to the row",
    "some columns": "neighbouring columns of rows, three or more",
    "scaled columns": "three or more rows with a factor and an offset of each column",
    "low bits": "rows in the low bits or last decimals of numbers",
    "differences": "rows, or their squares, as differences of two vectors of one site or of totals",
    "cells": "numbers in double precision that equal cells",
    "texts": "cells of text",
    "arrays per row": "arrays with one entry per row",
}
#: Multiplications of one search, after which vectors are left out; and vectors of which all differences are formed.
WORK = 3e9
MOST_PAIRED = 3000
#: Hypotheses of the search for scaled columns, over all keys.
_HYPOTHESES = 3e7
_FEWEST_LETTERS = 3
#: The most places that an entry names.
_NAMED = 3


@dataclass(frozen=True)
class TrueTable:
    """The true rows: the numeric columns (n, m), the texts of each other column, and the rows' sites where known."""

    numbers: Matrix = field(repr=False)
    texts: tuple[tuple[str, ...], ...] = field(repr=False)
    names: tuple[str, ...]
    sites: Array | None = field(default=None, repr=False)

    def ordered(self, order: Any, sizes: Mapping[str, int]) -> TrueTable:
        """Return the rows in another order; where their sites are not given, they are in the order of the sites."""
        sites = self.sites
        if sites is None and sum(sizes.values()) == len(self.numbers):
            sites = np.repeat(sorted(sizes), [sizes[name] for name in sorted(sizes)])
        texts = tuple(tuple(np.array(column, dtype=object)[order]) for column in self.texts)
        return TrueTable(self.numbers[order], texts, self.names, sites)


NO_TABLE = TrueTable(np.empty((0, 0)), (), ())


def true_table(truth: Any) -> TrueTable:
    """Return the columns of true rows: an array, a data frame, or a mapping from sites to these."""
    if isinstance(truth, Mapping):
        tables = [true_table(truth[name]) for name in sorted(truth)]
        joined = zip(*(table.texts for table in tables), strict=True)
        return TrueTable(
            np.concatenate([table.numbers for table in tables]),
            tuple(tuple(cell for part in parts for cell in part) for parts in joined),
            tables[0].names,
            np.repeat(sorted(truth), [len(table.numbers) for table in tables]),
        )
    cells = np.asarray(truth)
    cells = cells[:, None] if cells.ndim == 1 else cells
    columns, texts = [], []
    for column in cells.T if cells.ndim == 2 else ():
        try:
            columns.append(np.asarray(column, dtype=np.float64))
        except (TypeError, ValueError):
            texts.append(tuple(str(cell) for cell in column))
    numbers = np.column_stack(columns) if columns else np.empty((len(cells), 0))
    return TrueTable(numbers, tuple(texts), tuple(map(str, getattr(truth, "columns", ()))))


@dataclass
class _Found:
    """What one search found: distinct rows (or cells), and the places of the messages."""

    rows: set[int] = field(default_factory=set)
    places: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    forms: set[str] = field(default_factory=set)

    def add(self, place: Place, rows: Iterator[int] | Sequence[int], form: str = "") -> None:
        self.rows.update(map(int, rows))
        self.places[place] += 1
        self.forms |= {form} if form else set()


class RowSearch:
    """The searches of one set of messages; `tables` are the true rows as they are, and as the model saw them.

    `entries` has one entry of a card for each search that found something, `remarks` what was searched for and what was
    cut short.
    """

    def __init__(self, sent: Sent, table: TrueTable, tables: Sequence[Matrix]) -> None:
        self.sent, self.table = sent, table
        self.found: dict[str, _Found] = {name: _Found() for name in SEARCHES}
        self.cut: dict[str, str] = {}
        self.unsure: set[Place] = set()
        distinct: list[Matrix] = []
        for given in tables:
            rows = np.where(np.isfinite(given), given, 0.0)
            if rows.shape[1] and not any(rows.shape == other.shape and (rows == other).all() for other in distinct):
                distinct.append(rows)
        for rows in distinct:
            if rows.shape[1] > 1 and len(rows) > 1:
                self._search_vectors(rows)
                self._search_parts(*np.unique(rows, axis=0, return_index=True))
            self._search_cells(rows)
        self._search_texts()
        self._search_arrays(distinct[0] if distinct else np.empty((len(table.numbers), 0)))

    # Vectors

    def _search_vectors(self, rows: Matrix) -> None:
        vectors, places = self._vectors(rows.shape[1])
        if not len(vectors):
            return
        sites = self.table.sites
        unique, keep = np.unique(rows, axis=0, return_index=True)
        if len(unique) < 2:
            return
        views = row_views(rows, None if sites is None or len(sites) != len(rows) else sites)
        bits = cell_bits(rows)[keep]
        most = max(100, int(WORK / unique.size))
        self._cut("rows", len(vectors), most, "vectors")
        some = np.linspace(0, len(vectors) - 1, min(len(vectors), most)).astype(int)
        plain = [plain_space(name, view[keep], bits) for name, view in views.items()]
        lines = [
            direction_space(views[name][keep], bits, name, centred)
            for name in QUANTISED
            if name in views
            for centred in (0, 1)
        ]
        lines = [line for line in lines if rows.shape[1] > line.lost + 1]
        plain.append(sorted_space(unique, bits))
        rest = np.ones(len(vectors), dtype=np.bool_)  # a vector that is a row need not be searched for other forms
        for search, spaces in (("rows", plain), ("scaled rows", lines)):
            for space in spaces:
                some = some[rest[some]]
                which, chances = space.hits(vectors[some])
                sure = beyond_chance(which, chances, tests=len(plain) + len(lines))
                for i in np.flatnonzero(sure):
                    self.found[search].add(places[some[i]], [keep[which[i]]], space.name)
                rest[some[sure]] = False
        vectors, places = vectors[rest], [places[i] for i in np.flatnonzero(rest)]
        if not len(vectors):
            return
        self._search_low_bits(vectors, places, views, keep, bits)
        self._search_differences(vectors, places, views, keep, bits)
        self._search_columns(rows, vectors, places)

    def _vectors(self, m: int) -> tuple[Matrix, list[Place]]:
        """Return all distinct vectors of m numbers in the messages that are not constant, and their places."""
        parts, owners = [], []
        places: list[Place] = []
        lone: dict[Any, list[tuple[Place, float]]] = defaultdict(list)
        for value in self.sent.values:
            place = value.place
            if value.numbers.size == 1:
                one = (place, float(value.numbers.ravel()[0]))
                lone[place.run, place.call, place.site].append(one)  # the numbers of one reply
                lone[place.run, place.key, place.site, "all calls"].append(one)
            for part in vectors_of(value.numbers, m):
                parts.append(part)
                owners.append(np.full(len(part), len(places)))
                places.append(replace(place))  # an object of its own for each reading
        for group in lone.values():
            for part in vectors_of(np.array([number for _, number in group]), m):
                parts.append(part)
                owners.append(np.full(len(part), len(places)))
                places.append(group[0][0])
        if not parts:
            return np.empty((0, m)), []
        V, owner = np.concatenate(parts), np.concatenate(owners)
        good = np.isfinite(V).all(axis=1) & (np.abs(V).max(axis=1) < 1e100) & (np.ptp(V, axis=1) > 0)
        V, owner = V[good], owner[good]
        once = np.sort(np.unique(V @ np.random.default_rng(0).standard_normal(m), return_index=True)[1])
        return V[once], [places[i] for i in owner[once]]

    def _cut(self, search: str, count: int, most: int, what: str) -> None:
        if count > most:
            self.cut[search] = f"{search}: {most} of {count} {what}"

    # Low bits

    def _search_low_bits(
        self, V: Matrix, places: list[Place], views: dict[str, Matrix], keep: Array, bits: Matrix
    ) -> None:
        m = V.shape[1]
        names = [name for name in QUANTISED if name in views]
        lines = [direction_space(views[name][keep], bits, name, 1) for name in names]
        most = max(20, int(5 * WORK / (len(keep) * m * len(lines) * KINDS)))
        self._cut("low bits", len(V), most, "vectors")
        V, chosen = evenly_chosen(V, most)
        kinds = list(low_parts(V))
        tests = len(kinds) * (len(lines) + 1)
        for form, ours, residues in kinds:
            if m > 3:
                for line in lines:
                    which, chances = line.hits(residues)
                    self._add_sure("low bits", form, places, chosen[ours], which, chances, keep, tests)
        # Quantised cells may wrap, so that they are on no line with the rows: compare them as integers.
        with np.errstate(over="ignore", invalid="ignore"):
            for width, ours, low in low_integers(V):
                if len(ours) and (width in WIDTHS or views[""].size < SMALL):
                    for quantised in quantised_rows({name: views[name][keep] for name in names}, width):
                        which, chances = equal_integers(low, quantised, width)
                        form = f"{width} low bits"
                        self._add_sure("low bits", form, places, chosen[ours], which, chances, keep, 30 * 60)

    def _add_sure(
        self, search: str, form: str, places: list[Place], ours: Array, which: Array, chances: Matrix, keep: Array,
        tests: float,
    ) -> None:  # fmt: skip
        for i in np.flatnonzero(beyond_chance(which, chances, tests)):
            self.found[search].add(places[ours[i]], [keep[which[i]]], form)

    # Differences of two vectors

    def _search_differences(
        self, V: Matrix, places: list[Place], views: dict[str, Matrix], keep: Array, bits: Matrix
    ) -> None:
        sources: dict[Any, list[int]] = defaultdict(list)
        for i, place in enumerate(places):
            sources[place.site].append(i)
        rng = np.random.default_rng(0)
        spaces = [plain_space(name, views[name][keep], bits) for name in ("", "centred")]
        spaces.append(plain_space("squared", np.square(views[""][keep]), bits))
        for members in sources.values():
            self._cut("differences", len(members), MOST_PAIRED, "vectors of one source")
            mine = np.array(members)[np.linspace(0, len(members) - 1, min(len(members), MOST_PAIRED)).astype(int)]
            for space in spaces:
                A = space.into(V[mine])
                aim = rng.standard_normal(A.shape[1])
                marks, wanted = A @ aim, np.sort(space.rows @ aim)
                size = 1e-12 * np.abs(A).sum(axis=1) + 1e-12
                pairs = []
                for i in range(len(mine)):
                    apart = marks - marks[i]
                    place = np.minimum(np.searchsorted(wanted, apart), len(wanted) - 1)
                    gap = np.minimum(np.abs(wanted[place] - apart), np.abs(wanted[np.maximum(place - 1, 0)] - apart))
                    pairs += [(j, i) for j in np.flatnonzero(gap <= 4 * np.abs(aim).max() * (size + size[i])) if j != i]
                    if len(pairs) > 1_000_000:
                        self.cut["differences"] = "differences: ended after a million likely pairs"
                        break
                if not pairs:
                    continue
                more, less = np.array(pairs).T
                D = V[mine[more]] - V[mine[less]]
                which, chances = space.hits(D)
                # Neither of the two is the row itself, which the search for rows finds.
                chances = np.where(np.abs(V[mine[less]]).max(axis=1) > EQUAL * np.abs(D).max(axis=1), chances, 1.0)
                chances = np.where(np.ptp(D, axis=1) > 0, chances, 1.0)
                good = chances * len(mine) ** 2 * len(spaces) * len(sources) < LEVEL
                for pair in np.flatnonzero(good):
                    place = places[max(mine[more[pair]], mine[less[pair]])]
                    self.found["differences"].add(place, [keep[which[pair]]], space.name)

    # Factors and offsets of columns

    def _search_columns(self, rows: Matrix, V: Matrix, places: list[Place]) -> None:
        fine = [j for j in range(rows.shape[1]) if 2 * len(np.unique(rows[:, j])) > len(rows)]
        if len(fine) < 4:
            self.cut["scaled columns"] = (
                "scaled columns: not possible, as fewer than 4 columns have mostly distinct values"
            )
            return
        groups: dict[Any, list[int]] = defaultdict(list)
        for i, place in enumerate(places):
            groups[id(place)].append(i)  # one reading of one array
            groups[place.run, place.step, place.key, place.site].append(i)
        work, n = 0.0, len(rows)
        for group in map(np.array, dict.fromkeys(tuple(group) for group in groups.values() if len(group) > 2)):
            for triple in some_triples(group):
                work += n * n
                if work > _HYPOTHESES:
                    self.cut["scaled columns"] = (
                        f"scaled columns: {_HYPOTHESES:.0e} hypotheses were tried, and more exist"
                    )
                    return
                matched = affine_match(V[triple][:, fine], rows[:, fine])
                if matched is None:
                    continue
                first, second = rows[matched[0]][fine], rows[matched[1]][fine]
                a, b = V[triple[0]][fine], V[triple[1]][fine]
                back = first + (V[group][:, fine] - a) * (second - first) / (b - a)
                which, apart = nearest(back / rows[:, fine].std(axis=0), rows[:, fine] / rows[:, fine].std(axis=0), 1)
                same = apart[:, 0] < 1e-6
                for member in np.flatnonzero(same).tolist():
                    self.found["scaled columns"].add(places[group[member]], [which[member, 0]])
                break

    # Some columns of rows

    def _search_parts(self, unique: Matrix, keep: Array) -> None:
        """Look for neighbouring columns of rows: arrays that are at least three and fewer than all columns wide."""
        m = unique.shape[1]
        widths: dict[int, list[tuple[Place, Matrix]]] = defaultdict(list)
        for value in self.sent.values:
            for width in {extent for extent in value.numbers.shape if 3 <= extent < m}:
                for part in vectors_of(value.numbers, width):
                    widths[width].append((value.place, part))
        work = 0.0
        for width, parts in sorted(widths.items(), reverse=True):
            V = np.concatenate([part for _, part in parts])
            owner = np.repeat(np.arange(len(parts)), [len(part) for _, part in parts])
            good = np.isfinite(V).all(axis=1) & (np.abs(V).max(axis=1) < 1e100) & (np.ptp(V, axis=1) > 0)
            V, owner = V[good], owner[good]
            for offset in range(m - width + 1 if len(V) else 0):
                work += len(V) * len(unique) * width
                if work > WORK:
                    self.cut["some columns"] = "some columns of rows: not all widths and columns"
                    return
                columns, first = np.unique(unique[:, offset : offset + width], axis=0, return_index=True)
                if len(columns) < 2:
                    continue
                which, chances = plain_space("", columns, cell_bits(unique[:, offset : offset + width])[first]).hits(V)
                form = f"columns {offset + 1} to {offset + width}"
                for i in np.flatnonzero(beyond_chance(which, chances, tests=10 * m * len(widths))):
                    self.found["some columns"].add(parts[owner[i]][0], [keep[first[which[i]]]], form)

    # Single numbers, texts, arrays per row

    def _search_cells(self, rows: Matrix) -> None:
        """Look for numbers that equal cells. Cells of a coarse grid are met by chance, which is taken into account."""
        known = {place for name in ("rows", "scaled rows", "some columns") for place in self.found[name].places}
        parts, expected = [], 0.0  # of one number
        common = step(np.unique(rows))
        for j, column in enumerate(rows.T):
            cells, first = np.unique(column, return_index=True)
            width, grid = np.ptp(cells), max(common, step(cells))
            if len(cells) * grid < 1e-3 * width:  # neither constant nor too coarse to be recognised
                parts.append(np.column_stack([cells, first, np.full(len(cells), j)]))
                expected += len(cells) * max(grid, 2e-13 * np.abs(cells).max()) / width
        if not parts:
            self.cut["cells"] = "cells: the values of all columns are too coarse to be recognised"
            return
        all_cells = np.concatenate(parts)
        cells, first, columns = all_cells[np.argsort(all_cells[:, 0])].T
        hits, count, tried = [], 0, 0
        for value in self.sent.values:
            if value.numbers.dtype != np.float64 or value.place in known:
                continue
            numbers = np.unique(value.numbers[np.isfinite(value.numbers)])
            numbers = numbers[(numbers != 0) & (np.abs(numbers) != 1)]
            tried += len(numbers)
            place = np.clip(np.searchsorted(cells, numbers), 1, len(cells) - 1)
            place -= numbers - cells[place - 1] < cells[place] - numbers
            same = place[np.abs(cells[place] - numbers) <= 1e-13 * np.abs(numbers)]
            if len(same):
                hits.append((value.place, same))
                count += len(same)
        if count and gammainc(count, tried * expected) < LEVEL:
            for spot, same in hits:
                for j in np.unique(columns[same]).astype(int).tolist():
                    self.found["cells"].add(spot, first[same].tolist(), f"column {self._name(j, rows)}")

    def _name(self, j: int, rows: Matrix) -> str:
        names = self.table.names
        return names[j] if len(names) == rows.shape[1] else str(j + 1)

    def _search_texts(self) -> None:
        cells: dict[str, int] = {}
        for column in self.table.texts:
            for i, cell in enumerate(column):
                text = cell.strip()
                if (
                    len(text) >= _FEWEST_LETTERS
                    and text not in self.table.names
                    and text.lower() not in ("nan", "none")
                ):
                    cells.setdefault(text, i)
        if not cells:
            return
        letters = sum(len(text) for value in self.sent.values for text in value.texts if text not in cells)
        within = letters * len(cells) <= 10 * WORK
        if not within:
            self.cut["texts"] = "texts: only texts that are a cell, not longer ones that contain one"
        for value in self.sent.values:
            found = {text.strip() for text in value.texts} & cells.keys()
            for text in value.texts if within else ():
                if len(text) > _FEWEST_LETTERS and text not in cells:
                    found |= {
                        cell for cell in cells if cell in text and re.search(rf"(?<!\w){re.escape(cell)}(?!\w)", text)
                    }
            if found:
                self.found["texts"].add(value.place, [cells[cell] for cell in found])

    def _search_arrays(self, rows: Matrix) -> None:
        """Look for arrays as long as their site's table; where all tables are of one length, for related ones."""
        sizes = dict(self.sent.sizes)
        sites = self.table.sites
        if sites is not None:
            sizes |= dict(zip(*np.unique(sites, return_counts=True), strict=True))
        calls: dict[Any, dict[str, tuple[Place, Array]]] = defaultdict(dict)
        for value in self.sent.values:
            place = value.place
            if place.key != "names of keys" and (value.numbers.ndim or value.texts):
                shaped = value.numbers if value.numbers.ndim else np.array(value.texts)
                calls[place.run, place.call, place.key][place.site] = place, shaped
        for replies in calls.values():
            known = {site: one for site, one in replies.items() if sizes.get(site, 0) > 1}
            long = {site for site, (_, numbers) in known.items() if sizes[site] in numbers.shape}
            if not known or long != set(known):
                continue
            alike = len({sizes[site] for site in known}) == 1
            for site, (place, numbers) in known.items():
                mine = None if sites is None else np.flatnonzero(sites == site)
                if not alike or self._related(numbers, rows, mine):
                    self.found["arrays per row"].add(place, range(0) if mine is None else mine.tolist())
                    self.found["arrays per row"].forms |= {f"{sizes[site]} entries for {sizes[site]} rows"}
                elif numbers.shape.count(rows.shape[1]) < numbers.shape.count(sizes[site]):
                    self.unsure.add(place)

    def _related(self, numbers: Array, rows: Matrix, mine: Array | None) -> bool:
        """Return whether entries of an array go with the rows of its site, by the correlation with any column."""
        if mine is None or len(mine) < 8 or not rows.shape[1] or numbers.dtype.kind not in "fiub":
            return False
        axis = numbers.shape.index(len(mine))
        A = np.moveaxis(numbers, axis, 0).reshape(len(mine), -1)[:, :50].astype(np.float64)
        if not np.isfinite(A).all():
            return False
        B = np.column_stack([rows[mine], np.square(rows[mine]).sum(axis=1)])
        A, B = (C - C.mean(axis=0) for C in (A, B))
        norms = np.outer(np.linalg.norm(A, axis=0), np.linalg.norm(B, axis=0))
        r = np.divide(np.abs(A.T @ B), norms, out=np.zeros(norms.shape), where=norms > 0)
        z = np.sqrt(len(mine) - 3) * np.arctanh(np.minimum(r, 1 - 1e-12))
        return bool(2 * ndtr(-z.max()) * z.size * len(self.sent.values) < LEVEL)

    # The card

    @property
    def entries(self) -> tuple[LeakEntry, ...]:
        """One entry for each search that found something."""
        n = max(1, len(self.table.numbers))
        made = []
        for name, found in self.found.items():
            if not found.places:
                continue
            named = list(found.places)[:_NAMED]
            more = len(found.places) - len(named)
            where = "; ".join(map(str, named)) + (f"; and {more} more" if more else "")
            form = f" ({', '.join(sorted(found.forms))})" if found.forms else ""
            parts = {"texts": "texts of cells of ", "cells": "cells of ", "arrays per row": "entries for "}.get(
                name, ""
            )
            many = f"{parts}{len(found.rows)} of {n} rows" if found.rows else "values"
            made.append(
                LeakEntry(
                    f"search: {name}",
                    where,
                    "the messages; the true rows serve only to recognise them",
                    f"The messages contain {many}{form}: {where}.",
                    {"found": len(found.rows) / n} if found.rows else {},
                    {},
                    {"rows": len(found.rows), "messages": len(found.places)},
                )
            )
        return tuple(made)

    @property
    def remarks(self) -> list[str]:
        """What was searched, what for, what was found, and what was cut short."""
        searched = SEARCHES if len(self.table.numbers) else {"arrays per row": SEARCHES["arrays per row"]}
        found = [name for name, one in self.found.items() if one.places]
        result = f"Found: {', '.join(found)}." if found else "None was found; rows may be there in another form."
        lines = [
            f"All {self.sent.replies} replies in the journal were searched for {'; '.join(searched.values())}. {result}"
            " The journal has the totals of sums, and not the parts of single sites that make them up."
        ]
        if not len(self.table.numbers):
            lines.append("The other searches need the true rows (--truth, truth=).")
        if self.sent.longest:
            lines.append(f"The journal is large: of each value the first {self.sent.longest} entries were searched.")
        if self.cut:
            lines.append(f"Searches that were cut short or not possible: {'; '.join(self.cut.values())}.")
        if self.unsure:
            lines.append(
                f"Arrays that are as long as their site's table, which may be by chance: "
                f"{'; '.join(map(str, list(self.unsure)[:_NAMED]))}."
            )
        return lines

"""Searches for rows one vector at a time: as they are, scaled, behind a function, in part, with scaled columns."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from fedspan.arrays import Matrix
from fedspan.audit.parts.row_chances import Space, beyond_chance, nearest
from fedspan.audit.parts.row_forms import (
    CENTRED,
    QUANTISED,
    affine_match,
    direction_space,
    evenly_chosen,
    exponential_space,
    function_views,
    plain_space,
    some_triples,
    sorted_space,
)
from fedspan.audit.parts.search_task import VectorTask, usable
from fedspan.audit.sent_values import Place, vectors_of

#: Hypotheses of the search for scaled columns, over all keys.
_HYPOTHESES = 3e7


def search_rows(task: VectorTask) -> None:
    """Look for rows in the forms in which they are commonly sent, and leave the vectors out that are some."""
    plain = [plain_space(name, view, task.bits) for name, view in task.views.items()]
    plain.append(sorted_space(task.unique, task.bits))
    forms = [(name, centred) for name in QUANTISED for centred in (0, 1)] + [(name, 0) for name in CENTRED]
    lines = [
        direction_space(task.views[name], task.bits, name, centred) for name, centred in forms if name in task.views
    ]
    _search(task, {"rows": plain, "scaled rows": lines}, 1.0)


def search_functions(task: VectorTask) -> None:
    """Look for rows whose cells went through a function, also with a factor and an offset common to the row."""
    spaces: list[Space] = []
    for name, defined, view in function_views(task.views):
        made = plain_space(name, view, task.bits[defined]), direction_space(view, task.bits[defined], name, 1)
        spaces += [replace(space, numbers=defined, uneven=True) for space in made]
    spaces += [exponential_space(name, task.views[name], task.bits) for name in ("", "standardised")]
    _search(task, {"functions": spaces}, 0.25)


def _search(task: VectorTask, searches: dict[str, list[Space]], share: float) -> None:
    m = task.rows.shape[1]
    _, some = evenly_chosen(task.vectors, max(100, int(share * task.findings.WORK / task.unique.size)))
    recognised = np.zeros(len(task.vectors), dtype=np.bool_)
    tests = sum(map(len, searches.values()))
    for search, spaces in searches.items():
        task.findings.limit(search, len(task.vectors), len(some), "vectors")
        for space in spaces:
            some = some[~recognised[some]]
            if m > space.lost + 1 or not space.lost:
                which, chances = space.hits(task.vectors[some])
                sure = task.add_sure(search, space.name, some, which, chances, tests)
                recognised[some[sure]] = True
    task.without(recognised)


def search_scaled_columns(task: VectorTask) -> None:
    """Look for three or more rows with a factor and an offset of each column."""
    rows, V = task.rows, task.vectors
    fine = [j for j in range(rows.shape[1]) if 2 * len(np.unique(rows[:, j])) > len(rows)]
    if len(fine) < 4:
        task.findings.cut["scaled columns"] = (
            "scaled columns: not possible, as fewer than 4 columns have mostly distinct values"
        )
        return
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, place in enumerate(task.places):
        groups[id(place)].append(i)  # one reading of one array
        groups[place.run, place.step, place.key, place.site].append(i)
    work, n = 0.0, len(rows)
    spread = rows[:, fine].std(axis=0)
    for group in map(np.array, dict.fromkeys(tuple(group) for group in groups.values() if len(group) > 2)):
        for triple in some_triples(group):
            work += n * n
            if work > _HYPOTHESES:
                task.findings.cut["scaled columns"] = (
                    f"scaled columns: {_HYPOTHESES:.0e} hypotheses were tried, and more exist"
                )
                return
            matched = affine_match(V[triple][:, fine], rows[:, fine])
            if matched is None:
                continue
            first, second = rows[matched[0]][fine], rows[matched[1]][fine]
            a, b = V[triple[0]][fine], V[triple[1]][fine]
            back = first + (V[group][:, fine] - a) * (second - first) / (b - a)
            which, apart = nearest(back / spread, rows[:, fine] / spread, 1)
            for member in np.flatnonzero(apart[:, 0] < 1e-6).tolist():
                task.findings.found["scaled columns"].add(task.places[group[member]], [which[member, 0]])
            break


def search_some_columns(task: VectorTask) -> None:
    """Look for neighbouring columns of rows: arrays that are at least three and fewer than all columns wide."""
    unique, m = task.unique, task.unique.shape[1]
    widths: dict[int, list[tuple[Place, Matrix]]] = defaultdict(list)
    for value in task.sent.values:
        extents = {extent for numbers in (value.numbers, *value.readings) for extent in numbers.shape}
        for width in {extent for extent in extents if 3 <= extent < m}:
            for part in vectors_of(value, width):
                widths[width].append((value.place, part))
    work = 0.0
    for width, parts in sorted(widths.items(), reverse=True):
        V = np.concatenate([part for _, part in parts])
        owner = np.repeat(np.arange(len(parts)), [len(part) for _, part in parts])
        good = usable(V)
        V, owner = V[good], owner[good]
        for offset in range(m - width + 1 if len(V) else 0):
            work += len(V) * len(unique) * width
            if work > task.findings.WORK:
                task.findings.cut["some columns"] = "some columns of rows: not all widths and columns"
                return
            within = slice(offset, offset + width)
            columns, first = np.unique(unique[:, within], axis=0, return_index=True)
            if len(columns) < 2:
                continue
            bits = task.cell_bits[first, within].sum(axis=1)
            which, chances = plain_space("", columns, bits).hits(V)
            form = f"columns {offset + 1} to {offset + width}"
            for i in np.flatnonzero(beyond_chance(which, chances, tests=10 * m * len(widths))):
                task.findings.found["some columns"].add(parts[owner[i]][0], [task.keep[first[which[i]]]], form)

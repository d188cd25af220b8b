"""Searches for single cells, cells of text, and arrays with one entry per row."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import numpy as np
from scipy.special import gammainc, ndtr

from fedspan.arrays import Array, Matrix
from fedspan.audit.parts.encodings import digests_of
from fedspan.audit.parts.row_chances import LEVEL, step
from fedspan.audit.parts.search_task import Findings
from fedspan.audit.sent_values import NAMES_OF_KEYS, Place, Sent
from fedspan.audit.true_table import TrueTable

_FEWEST_LETTERS = 3
#: Cells this long are recognised within words, too.
_LONG = 8
_BREAKS = re.compile(r"[\W_]+")


def search_cells(sent: Sent, table: TrueTable, rows: Matrix, findings: Findings) -> None:
    """Look for numbers that equal cells. Cells of a coarse grid are met by chance, which is taken into account."""
    known = findings.known("rows", "scaled rows", "some columns")
    parts, expected = [], 0.0  # of one number
    common = step(np.unique(rows))
    for j, column in enumerate(rows.T):
        cells, first = np.unique(column, return_index=True)
        width, grid = np.ptp(cells), max(common, step(cells))
        if len(cells) * grid < 1e-3 * width:  # neither constant nor too coarse to be recognised
            parts.append(np.column_stack([cells, first, np.full(len(cells), j)]))
            expected += len(cells) * max(grid, 2e-13 * np.abs(cells).max()) / width
    if not parts:
        findings.cut["cells"] = "cells: the values of all columns are too coarse to be recognised"
        return
    all_cells = np.concatenate(parts)
    cells, first, columns = all_cells[np.argsort(all_cells[:, 0])].T
    hits, count, tried = [], 0, 0
    for value in sent.values:
        for given in (value.numbers, *value.readings):
            if given.dtype != np.float64 or value.place in known:
                continue
            numbers = np.unique(given[np.isfinite(given)])
            numbers = numbers[(numbers != 0) & (np.abs(numbers) != 1)]
            tried += len(numbers)
            place = np.clip(np.searchsorted(cells, numbers), 1, len(cells) - 1)
            place -= numbers - cells[place - 1] < cells[place] - numbers
            same = place[np.abs(cells[place] - numbers) <= 1e-13 * np.abs(numbers)]
            if len(same):
                hits.append((value.place, same))
                count += len(same)
    if count and gammainc(count, tried * expected) < LEVEL:
        names = table.names if len(table.names) == rows.shape[1] else [str(j + 1) for j in range(rows.shape[1])]
        for spot, same in hits:
            for j in np.unique(columns[same]).astype(int).tolist():
                findings.found["cells"].add(spot, first[same].tolist(), f"column {names[j]}")


def search_texts(sent: Sent, table: TrueTable, findings: Findings) -> None:
    """Look for cells of text and their digests, whatever the case of letters and the signs between words."""
    cells: dict[str, int] = {}
    digests: dict[str, int] = {}
    names = {_plain(name) for name in table.names}
    for column in table.texts:
        for i, cell in enumerate(column):
            text = _plain(cell)
            if len(text) >= _FEWEST_LETTERS and text not in names and text not in ("nan", "none"):
                if text not in cells:
                    digests |= {digest: i for form in (cell, cell.strip()) for digest in digests_of(form.encode())}
                cells.setdefault(text, i)
    if not cells:
        return
    sizes = sorted({len(digest) for digest in digests})
    messages = [(value, [_plain(text) for text in value.texts]) for value in sent.values if value.texts]
    letters = sum(len(text) for _, texts in messages for text in texts if text not in cells)
    within = letters * len(cells) <= 10 * findings.WORK
    if not within:
        findings.cut["texts"] = "texts: only texts that are a cell, not longer ones that contain one"
    for value, texts in messages:
        found = {cells[text] for text in texts if text in cells}
        for text in texts if within else ():
            if len(text) > _FEWEST_LETTERS and text not in cells:
                padded = f" {text} "
                found |= {
                    i for cell, i in cells.items() if cell in text and (len(cell) >= _LONG or f" {cell} " in padded)
                }
        if found:
            findings.found["texts"].add(value.place, found)
        tokens = {token for text in value.texts for token in re.findall(r"[0-9a-f]{8,128}", text.lower())}
        hashed = {digests[token] for token in tokens if len(token) in sizes and token in digests}
        if hashed:
            findings.found["texts"].add(value.place, hashed, "digests without a key")


def _plain(text: str) -> str:
    return _BREAKS.sub(" ", text.casefold()).strip()


def search_arrays(sent: Sent, table: TrueTable, rows: Matrix, findings: Findings) -> None:
    """Look for arrays as long as their site's table; where all tables are of one length, for related ones."""
    sizes = dict(sent.sizes)
    sites = table.sites
    if sites is not None:
        sizes |= dict(zip(*np.unique(sites, return_counts=True), strict=True))
    calls: dict[Any, dict[str, tuple[Place, Array]]] = defaultdict(dict)
    for value in sent.values:
        place = value.place
        if place.key != NAMES_OF_KEYS and (value.numbers.ndim or value.texts):
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
            if not alike or _related(numbers, rows, mine, len(sent.values)):
                findings.found["arrays per row"].add(place, range(0) if mine is None else mine.tolist())
                findings.found["arrays per row"].forms |= {f"{sizes[site]} entries for {sizes[site]} rows"}
            elif numbers.shape.count(rows.shape[1]) < numbers.shape.count(sizes[site]):
                findings.unsure.add(place)


def _related(numbers: Array, rows: Matrix, mine: Array | None, tests: int) -> bool:
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
    return bool(2 * ndtr(-z.max()) * z.size * tests < LEVEL)

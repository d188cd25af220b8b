"""The page of an audit: rebuilt rows beside the true ones, the leak card, and its meaning."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.audit import LeakCard, LeakEntry
from fedspan.report.charts.bars_and_cells import heat_map, image_tiles
from fedspan.report.charts.svg import charts, figure
from fedspan.report.markup import Html, count, esc, header, join, note, number, pairs, panel, section, table
from fedspan.report.page import write_page

Array = NDArray[Any]

MOST_IMAGES, MOST_ROWS, MOST_COLUMNS = 10, 6, 40
LONGEST_VERDICT = 600
_MEANING = (
    "The operator of the coordinator, and every reader of its files, can do what is shown here. Relative error is that "
    "of the rebuilt rows over the spread of the true ones: 0 is the row itself, 1 is no better than the mean row. "
    "Re-identified is the share of rebuilt rows whose nearest true row is the right one: a row need not be rebuilt "
    "well to be recognised. An attack that fails proves nothing, because a better one may not; one that works is a "
    "fact. This page and its pictures hold private rows: keep it as you keep them."
)


def write_leak_page(
    path: str | os.PathLike[str],
    card: LeakCard,
    *,
    truth: Array | None = None,
    image_shape: tuple[int, int] | None = None,
    columns: Sequence[str] | None = None,
) -> Path:
    """Write the page of an audit as one HTML file that opens offline, for its owner alone (mode 0600).

    Parameters
    ----------
    path : path
        The file to write; its folder must exist.
    card : LeakCard
    truth : array (n, m), optional
        The true rows, in the order and the units of the rebuilt ones.
    image_shape : (int, int), optional
        Where a row is an image.
    columns : sequence of str, optional
        Their names.
    """
    path = Path(path)
    title = f"What {card.what} gave away"
    result = worst(card.entries).verdict if card.entries else card.remarks[0]
    remarks = join(note(remark, LONGEST_VERDICT) for remark in card.remarks)
    parts = [
        header(title, result, _tiles(card)),
        *_rows(card.entries, truth, image_shape, columns),
        *([_card(card)] if card.entries else []),
        section("means", "What it means", Html(f"<p>{esc(_MEANING, 2000)}</p>"), remarks),
    ]
    write_page(path, title, join(parts, "\n"))
    return path


def worst(entries: Sequence[LeakEntry]) -> LeakEntry:
    """Return the attack that recognises the most rows, and comes nearest to them; the first, where none is measured."""

    def near(entry: LeakEntry) -> tuple[float, float]:
        found = entry.measures
        return found.get("reidentified", -1.0), -found.get("relative_error", np.inf)

    return max(entries, key=near)


def _tiles(card: LeakCard) -> list[tuple[str, str]]:
    """Return the worst of the measures."""

    def all_of(name: str) -> list[float]:
        return [entry.measures[name] for entry in card.entries if name in entry.measures]

    errors, decibels = all_of("relative_error"), all_of("psnr")
    named, aucs = all_of("reidentified"), all_of("auc")
    tiles = [("least relative error", number(min(errors), 2))] if errors else []
    if decibels:
        tiles.append(("best PSNR", "exact" if max(decibels) == np.inf else f"{max(decibels):.1f} dB"))
    tiles += [("re-identified", f"{100 * max(named):.3g} %")] if named else []
    tiles += [("membership AUC", f"{max(aucs):.3f}")] if aucs else []
    rows = next((entry.rebuilt for entry in card.entries if entry.rebuilt is not None), None)
    return tiles if rows is None else [*tiles, ("rows", count(rows.shape[0])), ("columns", count(rows.shape[1]))]


def _card(card: LeakCard) -> Html:
    lines = card.lines()
    panels = []
    for entry in card.entries:
        facts = [(name.replace("_", " "), _shown(value)) for name, value in entry.facts.items()]
        verdict = Html(f'<p class="verdict">{esc(entry.verdict, LONGEST_VERDICT)}</p>')
        target = note(f"Attacked: {entry.target}. Known to the attacker: {entry.knows}.", LONGEST_VERDICT)
        title = entry.attack[:1].upper() + entry.attack[1:]
        panels.append(panel(title, verdict, target, *([pairs(facts)] if facts else [])))
    body = Html(f'<div class="panels entries">{join(panels)}</div>')
    listed = [table(lines[0], lines[1:])] if lines else []
    return section("card", "Leak card", *listed, body, lead=f"{card.what}: what was found in {card.where}.")


def _shown(value: float | bool) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else number(float(value), 3)


def _rows(
    entries: Sequence[LeakEntry],
    truth: Array | None,
    image_shape: tuple[int, int] | None,
    columns: Sequence[str] | None,
) -> list[Html]:
    """Return a section with some rows, true and as every attack rebuilt them; none where no attack did."""
    shown = [(entry.attack, entry.rebuilt) for entry in entries if entry.rebuilt is not None]
    if not shown:
        return []
    shown = shown if truth is None else [("true rows", np.asarray(truth)), *shown]
    first = shown[0][1]
    n, m = first.shape
    picked = np.unique(np.linspace(0, n - 1, min(n, MOST_ROWS if image_shape is None else MOST_IMAGES)).astype(int))
    lead = f"Rows {', '.join(str(i + 1) for i in picked)} of {count(n)}."
    if image_shape is not None:
        shades = float(first[picked].min()), float(first[picked].max())
        drawn = [
            figure(
                name, image_tiles([("", rows[i]) for i in picked], image_shape, label=name, shades=shades, columns=5)
            )
            for name, rows in shown
        ]
        return [section("rows", "Rebuilt rows", charts(drawn), lead=lead)]
    names = [f"column {j + 1}" for j in range(m)] if columns is None else list(columns)
    rest = f" The first {MOST_COLUMNS} of {m} columns." if m > MOST_COLUMNS else ""
    which = "; ".join(f"{k + 1}: {name}" for k, (name, _) in enumerate(shown))
    # Cells are shaded by the deviation from the column's mean, up to 2.5 deviations.
    centre, scale = first.mean(axis=0), first.std(axis=0)
    drawn = []
    for i in picked:
        values = np.column_stack([rows[i, :MOST_COLUMNS] for _, rows in shown])
        apart = (values - centre[:MOST_COLUMNS, None]) / np.where(scale > 0, scale, 1.0)[:MOST_COLUMNS, None]
        heads = [str(k + 1) for k in range(len(shown))]
        cells = heat_map(
            np.clip(apart, -2.5, 2.5),
            names[:MOST_COLUMNS],
            heads,
            label=f"row {i + 1}, true and rebuilt",
            values=values,
        )
        drawn.append(figure(f"Row {i + 1}", cells))
    lead += f"{rest} Blue is above the mean of its column, orange below it. {which}."
    return [section("rows", "Rebuilt rows", charts(drawn), lead=lead)]

"""The page of an audit: rebuilt rows beside the true ones, the leak card, and its meaning."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedspan.arrays import Array
from fedspan.audit import LeakCard, LeakEntry
from fedspan.report.charts.bars_and_cells import heat_map, image_tiles
from fedspan.report.charts.svg import charts, figure
from fedspan.report.markup import Html, count, esc, header, join, note, number, pairs, panel, section, table
from fedspan.report.page import write_page

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

    `truth` (n, m) are the true rows, in the order and the units of the rebuilt ones. `image_shape` is given where a row
    is an image, and `columns` are their names.
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
    """Return the worst of the measures, and the size of what was rebuilt."""
    tiles = []
    for name, title, form in (
        ("relative_error", "least relative error", "{:.2g}"),
        ("psnr", "best PSNR", "{:.1f} dB"),
        ("reidentified", "re-identified", "{:.1%}"),
        ("auc", "membership AUC", "{:.3f}"),
    ):
        found = [entry.measures[name] for entry in card.entries if name in entry.measures]
        if found:
            best = min(found) if name == "relative_error" else max(found)
            tiles.append((title, "exact" if best == np.inf else form.format(best)))
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
    rebuilt = [(entry.attack, entry.rebuilt) for entry in entries if entry.rebuilt is not None]
    if not rebuilt:
        return []
    first = rebuilt[0][1] if truth is None else np.asarray(truth)
    n, m = first.shape
    shown = [] if truth is None else [("true rows", first)]
    shown += [(attack, rows) for attack, rows in rebuilt if len(rows) == n]  # others are not in the order of the rows
    picked = np.unique(np.linspace(0, n - 1, min(n, MOST_ROWS if image_shape is None else MOST_IMAGES)).astype(int))
    lead = f"Rows {', '.join(str(i + 1) for i in picked)} of {count(n)}."
    if image_shape is not None:
        shades = float(first[picked].min()), float(first[picked].max())
        drawn = []
        for name, rows in shown:
            images = [("", rows[i]) for i in picked]
            drawn.append(figure(name, image_tiles(images, image_shape, label=name, shades=shades, columns=5)))
        return [section("rows", "Rebuilt rows", charts(drawn), lead=lead)]
    # Cells are shaded by the deviation from the column's mean, up to 2.5 deviations.
    some = slice(MOST_COLUMNS)
    names = [f"column {j + 1}" for j in range(m)] if columns is None else list(columns)
    heads = [str(k + 1) for k in range(len(shown))]
    centre, scale = first.mean(axis=0)[some, None], np.maximum(first.std(axis=0), 1e-300)[some, None]
    drawn = []
    for i in picked:
        values = np.column_stack([rows[i, some] for _, rows in shown])
        apart = np.clip((values - centre) / scale, -2.5, 2.5)
        cells = heat_map(apart, names[some], heads, label=f"row {i + 1}, true and rebuilt", values=values, deepest=2.5)
        drawn.append(figure(f"Row {i + 1}", cells))
    lead += f" The first {MOST_COLUMNS} of {m} columns." if m > MOST_COLUMNS else ""
    which = "; ".join(f"{head}: {name}" for head, (name, _) in zip(heads, shown, strict=True))
    lead += f" Blue is above the mean of its column, orange below it. {which}."
    return [section("rows", "Rebuilt rows", charts(drawn), lead=lead)]

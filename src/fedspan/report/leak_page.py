"""The page of an audit: rebuilt rows beside the true ones, the leak card, and what it means."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.audit import LeakCard, LeakEntry
from fedspan.report.markup import Html, count, esc, join, note, number, pairs, panel, section, table
from fedspan.report.models.row_pictures import heat_strips, image_strips
from fedspan.report.page import shell, write_page

Array = NDArray[Any]

MOST_IMAGES, MOST_STRIPS = 10, 6
LONGEST_VERDICT = 600
_FACTS = {
    "determined": "distances fix the row",
    "directions": "directions that landmarks span",
    "columns": "columns",
    "effective_directions": "directions that count",
    "cut": "directions damped below",
    "estimated_relative_error": "relative error, as the attacker knows it",
    "misfit": "misfit of the equations",
    "equations": "numbers received",
    "unknowns": "numbers that the rows have",
    "averaged_rows": "public rows averaged",
    "averaged_centres": "centres averaged",
    "rounds": "rounds",
    "alone_at_the_end": "rows alone in their cell in the last round",
    "followed": "of these for 10 rounds or more",
    "longest": "rounds that one was followed for",
}
_MEANING = (
    "Whoever runs the coordinator, or reads its files, can do what is shown here. Relative error is that of the "
    "rebuilt rows over the spread of the true ones: 0 is the row itself, 1 is no better than the mean row. "
    "Re-identified is the share of rebuilt rows whose nearest true row is the right one: a row need not be rebuilt "
    "well to be recognised. An attack that fails proves nothing, because a better one may not; one that works is a "
    "fact. This page and the pictures in it hold private rows: keep it as you keep them."
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
        The file to write; its folder must be there.
    card : LeakCard
    truth : array (n, m), optional
        The true rows, in the order and the units of the rebuilt ones.
    image_shape : (int, int), optional
        Where a row is an image.
    columns : sequence of str, optional
        Their names.
    """
    path = Path(path)
    write_page(path, render_leaks(card, truth, image_shape, columns))
    return path


def render_leaks(
    card: LeakCard, truth: Array | None, image_shape: tuple[int, int] | None, columns: Sequence[str] | None
) -> str:
    """Return the page as text."""
    title = f"What {card.what} gave away"
    said = worst(card.entries).verdict if card.entries else card.remarks[0]
    parts = [
        Html(f'<header><h1>{esc(title)}</h1><p class="result">{esc(said, LONGEST_VERDICT)}</p>{_tiles(card)}</header>')
    ]
    pictures = _pictures([entry for entry in card.entries if entry.rebuilt is not None], truth, image_shape, columns)
    if pictures:
        parts.append(pictures)
    if card.entries:
        parts.append(_card(card))
    remarks = join(note(remark, LONGEST_VERDICT) for remark in card.remarks)
    parts.append(section("means", "What it means", Html(f"<p>{esc(_MEANING, 2000)}</p>"), remarks))
    return shell(title, join(parts, "\n"))


def worst(entries: Sequence[LeakEntry]) -> LeakEntry:
    """Return the attack that recognises the most rows, and comes nearest to them: the first, where none is measured."""

    def near(entry: LeakEntry) -> tuple[float, float]:
        found = entry.measures
        return found.get("reidentified", -1.0), -found.get("relative_error", np.inf)

    return max(entries, key=near)


def _tiles(card: LeakCard) -> Html:
    """Return the worst of the measures in large print."""
    attacks = [entry.measures for entry in card.entries if entry.measures]
    tiles: list[tuple[str, str]] = []
    if attacks:
        errors = [found["relative_error"] for found in attacks if "relative_error" in found]
        if errors:
            tiles.append(("least relative error", number(min(errors), 2)))
        best = [found["psnr"] for found in attacks if "psnr" in found]
        if best:
            tiles.append(("best PSNR", "exact" if max(best) == np.inf else f"{max(best):.1f} dB"))
        named = [found["reidentified"] for found in attacks if "reidentified" in found]
        if named:
            tiles.append(("re-identified", f"{100 * max(named):.3g} %"))
        aucs = [found["auc"] for found in attacks if "auc" in found]
        if aucs:
            tiles.append(("membership AUC", f"{max(aucs):.3f}"))
    rows = next((entry.rebuilt for entry in card.entries if entry.rebuilt is not None), None)
    if rows is not None:
        tiles += [("rows", count(rows.shape[0])), ("columns", count(rows.shape[1]))]
    boxes = join(Html(f"<div><dt>{esc(name)}</dt><dd>{esc(value)}</dd></div>") for name, value in tiles)
    return Html(f'<dl class="tiles">{boxes}</dl>') if tiles else Html("")


def _card(card: LeakCard) -> Html:
    lines = card.lines()
    body = [table(lines[0], lines[1:])] if lines else []
    panels = []
    for entry in card.entries:
        facts = [(_FACTS.get(name, name), _shown(value)) for name, value in entry.facts.items()]
        said = Html(f'<p class="verdict">{esc(entry.verdict, LONGEST_VERDICT)}</p>')
        told = note(f"Attacked: {entry.target}. Known to the attacker: {entry.knows}.", LONGEST_VERDICT)
        panels.append(
            panel(entry.attack[:1].upper() + entry.attack[1:], said, told, *([pairs(facts)] if facts else []))
        )
    body.append(Html(f'<div class="panels entries">{join(panels)}</div>'))
    return section("card", "Leak card", *body, lead=f"{card.what}: what was found in {card.where}.")


def _shown(value: float | bool) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else number(float(value), 3)


def _pictures(
    entries: Sequence[LeakEntry],
    truth: Array | None,
    image_shape: tuple[int, int] | None,
    columns: Sequence[str] | None,
) -> Html | None:
    """Return some rows, true and as every attack rebuilt them."""
    shown: list[tuple[str, Array]] = [] if truth is None else [("true rows", np.asarray(truth))]
    shown += [(entry.attack, entry.rebuilt) for entry in entries if entry.rebuilt is not None]
    if not entries:
        return None
    n = len(shown[0][1])
    most = MOST_STRIPS if image_shape is None else MOST_IMAGES
    picked = np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))
    few = [(name, rows[picked]) for name, rows in shown]
    said = f"Rows {', '.join(str(i + 1) for i in picked)} of {count(n)}."
    if image_shape is not None:
        return section("rows", "Rebuilt rows", image_strips(few, image_shape), lead=said)
    rest = "" if columns is None or len(columns) <= 40 else f" The first 40 of {len(columns)} columns."
    strips = heat_strips(few, [f"row {i + 1}" for i in picked], columns, about=shown[0][1])
    told = f"{said}{rest} Blue is above the mean of its column, orange below it."
    return section("rows", "Rebuilt rows", strips, lead=told)

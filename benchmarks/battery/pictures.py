"""Draws how time and bytes grow: one SVG an axis, log by log, ours beside the bare loop.

Written as text, so that the same points give the same file everywhere. On paper of its own, for light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

Point = dict[str, Any]

LABELS = {"sites": "sites", "rows": "rows of each site", "columns": "columns"}
COLOURS = {"exact PCA": "#1f5fa8", "subspace median": "#b3541e", "FedPG": "#2e7d4f"}
INK, SOFT, GRID = "#1b2733", "#4a5a6a", "#dde3e9"
WIDTH, LEFT, RIGHT = 460, 62, 18  # narrow, so that it can be read on a phone
LEGEND, PANEL, GAP = 74, 190, 46


@dataclass(frozen=True)
class Scale:
    """A logarithmic scale from the numbers `low` to `high`, on the paper from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float) -> Scale:
        """Return the scale that holds `values` with a little room."""
        low, high = math.log10(min(values)), math.log10(max(values))
        room = 0.06 * (high - low) + 0.05
        return cls(10 ** (low - room), 10 ** (high + room), start, end)

    def __call__(self, value: float) -> float:
        """Return where a number lies."""
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + part * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Return the powers of ten that lie on it, or every second one where they are many."""
        powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
        return [10.0**power for power in powers[:: 1 if len(powers) < 7 else 2]]


def names(points: Sequence[Point]) -> dict[str, str]:
    """Return the file of each axis."""
    return {axis: f"scaling-{axis}.svg" for axis in dict.fromkeys(point["axis"] for point in points)}


def draw(points: Sequence[Point], folder: Path) -> None:
    """Draw the pictures of all axes into a folder."""
    for axis, name in names(points).items():
        (folder / name).write_text(picture(points, axis), encoding="utf-8")


def picture(points: Sequence[Point], axis: str) -> str:
    """Return the SVG of an axis: time a round above, bytes a round below."""
    chosen = [point for point in points if point["axis"] == axis]
    across = Scale.around([point[axis] for point in chosen], LEFT, WIDTH - RIGHT)
    height = LEGEND + 2 * PANEL + GAP + 52
    shapes = _legend()
    shapes += _panel(chosen, axis, across, LEGEND, "processor time a round", {"seconds": False, "loop": True}, _seconds)
    shapes += _panel(chosen, axis, across, LEGEND + PANEL + GAP, "bytes a round, both ways", {"bytes": False}, _bytes)
    shapes += [_text(across(tick), height - 32, f"{tick:,.0f}", "middle") for tick in across.ticks()]
    shapes.append(_text((LEFT + WIDTH - RIGHT) / 2, height - 12, LABELS[axis], "middle", INK))
    title = f"Time and bytes of a round by {LABELS[axis]}: exact PCA, subspace median, FedPG"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" font-family="system-ui, -apple-system, Segoe UI, sans-serif" font-size="12">\n'
        f'<title>{title}</title>\n<rect width="100%" height="100%" rx="10" fill="#ffffff"/>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def _panel(
    points: Sequence[Point],
    axis: str,
    across: Scale,
    top: float,
    title: str,
    measures: dict[str, bool],
    worded: Callable[[float], str],
) -> list[str]:
    """Return a frame at `top` with a curve of each measure and protocol; those that are True are dashed."""
    up = Scale.around([point[measure] for point in points for measure in measures], top + PANEL, top)
    shapes = [_text(LEFT, top - 8, title, colour=INK)]
    for tick in up.ticks():
        shapes.append(_line(LEFT, up(tick), WIDTH - RIGHT, up(tick)))
        shapes.append(_text(LEFT - 8, up(tick) + 4, worded(tick), "end"))
    shapes += [_line(across(tick), top, across(tick), top + PANEL) for tick in across.ticks()]
    for protocol, colour in COLOURS.items():
        for measure, dashed in measures.items():
            places = [(across(p[axis]), up(p[measure])) for p in points if p["protocol"] == protocol]
            shapes += _curve(places, colour, dashed)
    return shapes


def _legend() -> list[str]:
    shapes = []
    x = float(LEFT)
    for protocol, colour in COLOURS.items():
        shapes += [*_curve([(x, 20), (x + 24, 20)], colour, False), _text(x + 31, 24, protocol, colour=INK)]
        x += 56 + 6.6 * len(protocol)
    return [*shapes, *_curve([(LEFT, 40), (LEFT + 24, 40)], SOFT, True), _text(LEFT + 31, 44, "bare loop in numpy")]


def _curve(places: Sequence[tuple[float, float]], colour: str, dashed: bool) -> list[str]:
    style = f'fill="none" stroke="{colour}" stroke-width="{1.3 if dashed else 2}"' + ' stroke-dasharray="5 4"' * dashed
    line = " ".join(f"{x:g},{y:g}" for x, y in places)
    dots = [f'<circle cx="{x:g}" cy="{y:g}" r="{2 if dashed else 3}" fill="{colour}"/>' for x, y in places]
    return [f'<polyline points="{line}" {style}/>', *dots]


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path d="M{x:g} {y:g} L{to_x:g} {to_y:g}" stroke="{GRID}"/>'


def _text(x: float, y: float, words: str, anchor: str = "start", colour: str = SOFT) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= 0.99 * size:
            return f"{value / size:g} {unit}"
    return f"{value:g} s"


def _bytes(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= 0.99 * size:
            return f"{value / size:g} {unit}"
    return f"{value:g} B"

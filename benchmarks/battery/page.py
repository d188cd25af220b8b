"""Writes docs/benchmarks.md: the words of page.md beside this file, with tables made of the stored results."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.battery.check import described
from benchmarks.battery.pictures import LABELS, names
from benchmarks.battery.ratio import Ratio, duration, figure
from benchmarks.battery.results import FOLDER, Results

PAGE = FOLDER.parent / "docs" / "benchmarks.md"
WORDS = Path(__file__).with_name("page.md")
NOTICE = "<!-- Written by `make bench` of benchmarks/results.json and benchmarks/battery/page.md: edit that one. -->\n"


def written(results: Results) -> str:
    """Return the page."""

    def part(match: re.Match[str]) -> str:
        if match["what"] == "table":
            return table(results, match["name"])
        return {"about": about, "pictures": pictures}[match["what"]](results)

    words = WORDS.read_text(encoding="utf-8")
    return NOTICE + re.sub(r"^<<(?P<what>\w+)(?: (?P<name>\w+))?>>$", part, words, flags=re.MULTILINE)


def about(results: Results) -> str:
    """Return where this was measured, and with what."""
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    return f"Measured on: {described(results)}. Versions: {versions}."


def table(results: Results, module: str) -> str:
    """Return the table of a module, and what was left out of it."""
    lines = ["| against | theirs / ours | ours | theirs | |", "|---|---|---|---|---|"]
    what = ""
    for ratio in results.ratios.get(module, []):
        if ratio.what != what:
            what = ratio.what
            lines.append(f"| **{what}** | | | | |")
        lines.append(row(ratio))
    left_out = [f"\nLeft out: {why}." for why in results.left_out if why.startswith(f"{module}:")]
    return "\n".join((lines if what else []) + left_out)


def row(ratio: Ratio) -> str:
    """Return the row of one peer."""
    low, middle, high = (figure(value) for value in ratio.quartiles)
    measures = "; ".join(f"{name} {a:.3f}, theirs {b:.3f}" for name, (a, b) in ratio.quality.items())
    notes = "; ".join(part for part in (measures, ratio.accuracy) if part)
    times = f"{duration(ratio.ours)} | {duration(ratio.theirs)}"
    return f"| {ratio.peer} | {middle} [{low}, {high}] | {times} | {notes} |"


def pictures(results: Results) -> str:
    """Return the pictures."""
    return "\n\n".join(
        f"![Time and bytes of a round by {LABELS[axis]}](_static/{name})"
        for axis, name in names(results.scaling).items()
    )

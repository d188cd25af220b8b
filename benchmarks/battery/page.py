"""Writes docs/benchmarks.md: the words of page.md beside this file, with tables made of the stored results."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from benchmarks.battery.check import described
from benchmarks.battery.pictures import LABELS, names
from benchmarks.battery.ratio import Ratio, duration, figure
from benchmarks.battery.results import FOLDER, Results

PAGE = FOLDER.parent / "docs" / "benchmarks.md"
WORDS = Path(__file__).with_name("page.md")
REMARKED = 1.5  # times as long on the clock as on the processor, and as the peer's: then a row says so
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
    """Return the tables of a module, and what was left out of them.

    One table with a row for each thing that is done where all have the same peer, else one for each with a row a peer.
    """
    ratios = results.ratios.get(module, [])
    peers = {ratio.peer for ratio in ratios}
    if len(peers) == 1:
        parts = [_rows(f"against {peers.pop()}", [(ratio.what, ratio) for ratio in ratios])]
    else:
        parts = []
        for what, same in groupby(ratios, key=lambda ratio: ratio.what):
            parts += [f"**{what}**", _rows("against", [(ratio.peer, ratio) for ratio in same])]
    parts += [f"Left out: {left_out}." for left_out in results.left_out if left_out.module == module]
    return "\n\n".join(parts)


def _rows(first: str, ratios: list[tuple[str, Ratio]]) -> str:
    lines = [f"| {first} | theirs / ours | ours, theirs | |", "|---|---|---|---|"]
    return "\n".join(lines + [row(name, ratio) for name, ratio in ratios])


def row(name: str, ratio: Ratio) -> str:
    """Return a row, whose numbers are not broken into lines."""
    low, middle, high = (figure(value) for value in ratio.quartiles)
    measures = "; ".join(f"{name} {a:.3f}, theirs {b:.3f}" for name, (a, b) in ratio.quality.items())
    notes = "; ".join(part for part in (measures, ratio.accuracy, _waits(ratio)) if part)
    notes = re.sub(r"(?<=\de)-(?=\d)", "\u2011", notes)
    spread = f"{middle} [{low}, {high}]".replace(" ", "\u00a0")
    times = ", ".join(duration(seconds).replace(" ", "\u00a0") for seconds in (ratio.ours, ratio.theirs))
    return f"| {name} | {spread} | {times} | {notes} |"


def _waits(ratio: Ratio) -> str:
    if ratio.clock is None or ratio.clock[0] / ratio.ours < REMARKED * max(1.0, ratio.clock[1] / ratio.theirs):
        return ""
    return f"on the clock ours takes {duration(ratio.clock[0])}"


def pictures(results: Results) -> str:
    """Return the pictures."""
    return "\n\n".join(
        f"![Time and bytes of a round by {LABELS[axis]}](_static/{name})"
        for axis, name in names(results.scaling).items()
    )

"""Draws how time and bytes grow: one SVG an axis, log by log, ours beside the bare loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

LABELS = {"sites": "sites", "rows": "rows of each site", "columns": "columns"}
COLOURS = {"exact PCA": "#1f5fa8", "subspace median": "#b3541e", "FedPG": "#2e7d4f"}


def names(points: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the file of each axis."""
    return {axis: f"scaling-{axis}.svg" for axis in dict.fromkeys(point["axis"] for point in points)}


def draw(points: Sequence[dict[str, Any]], folder: Path) -> None:
    """Draw the pictures into a folder, the same ones for the same points and version of matplotlib."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    style = {"svg.fonttype": "none", "svg.hashsalt": "fedspan", "font.family": "sans-serif", "font.size": 9}
    for axis, name in names(points).items():
        with mpl.rc_context(style):
            figure, (times, sizes) = plt.subplots(2, 1, figsize=(5.2, 6.4), sharex=True, layout="constrained")
            for protocol, colour in COLOURS.items():
                chosen = [point for point in points if point["axis"] == axis and point["protocol"] == protocol]
                x = [point[axis] for point in chosen]
                times.loglog(x, [point["seconds"] for point in chosen], "o-", color=colour, label=protocol, ms=4)
                times.loglog(x, [point["loop"] for point in chosen], "s--", color=colour, ms=3, lw=1)
                sizes.loglog(x, [point["bytes"] for point in chosen], "o-", color=colour, label=protocol, ms=4)
            times.plot([], [], "s--", color="#555555", ms=3, lw=1, label="bare loop in numpy")
            times.set_ylabel("processor seconds a round")
            sizes.set_ylabel("bytes a round, both ways")
            sizes.set_xlabel(LABELS[axis])
            for panel in (times, sizes):
                panel.grid(True, which="major", color="#dddddd", lw=0.6)
            times.legend(frameon=False)
            figure.savefig(folder / name, metadata={"Date": None, "Creator": None})
            plt.close(figure)

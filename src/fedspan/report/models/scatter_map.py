"""The map of rows: points by site, label, cluster or density, packed into the page for the script that draws them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from fedspan.errors import InputError
from fedspan.report.charts.svg import charts
from fedspan.report.markup import Html, PageSection, count, esc, number, plural, script_json, section
from fedspan.report.models.picture import Picture

MOST_LABELS = 20  # more different real numbers than this are a quantity, shown in steps
STEPS = 8
FEWEST_FOR_DENSITY = 100
FLATTEST = 4.0  # a map whose sides differ by more than this factor gets a scale for each axis
#: The smoothing of a density, in cells, and the fewest and most cells in each direction.
REACH = 1.5
_CELLS = (12, 256)


@dataclass(frozen=True)
class Scatter:
    """Points in the plane with the site and the row that each belongs to.

    Parameters
    ----------
    points : array of shape (n, 2)
        What is not finite in single precision is not drawn, and the report states it.
    sites : array of shape (n,)
        Site names.
    rows : array of shape (n,)
        Row numbers within the site, from 0.
    labels : array of shape (n,), optional
        How to colour the points at first. More than 20 different real numbers are taken as a quantity and shown in 8
        steps with equal numbers of points.
    x_label, y_label : str
        Names of the axes. Both empty: a map, whose axes mean nothing and get no numbers.
    clusters : array of shape (n,), optional
        Another way to colour the points, and without labels the first.
    added : int, default=0
        The number of points, the last ones, that are new rows of no site.

    Examples
    --------
    >>> Scatter([[0.0, 1.0], [2.0, 3.0]], ["a", "b"], [0, 0]).points.shape
    (2, 2)
    """

    points: NDArray[np.floating[Any]]
    sites: NDArray[Any]
    rows: NDArray[np.integer[Any]]
    labels: NDArray[Any] | None = None
    x_label: str = "first component"
    y_label: str = "second component"
    clusters: NDArray[Any] | None = None
    added: int = 0

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """Whether each point is a new row of no site."""
        return np.arange(len(self.points)) >= len(self.points) - self.added

    def __post_init__(self) -> None:
        points = np.asarray(self.points)
        if points.ndim != 2 or points.shape[1] != 2 or points.dtype.kind not in "fiu":
            raise InputError(f"points has the shape {points.shape}, but must be real numbers of shape (n, 2)")
        object.__setattr__(self, "points", points)
        for name in ("sites", "rows", "labels", "clusters"):
            if getattr(self, name) is None:
                continue
            values = np.asarray(getattr(self, name))
            if values.shape != (len(points),):
                raise InputError(f"{name} has the shape {values.shape}, but there are {len(points)} points")
            object.__setattr__(self, name, values)
        if len(points) and (self.rows.dtype.kind not in "iu" or self.rows.min() < 0 or self.rows.max() >= 2**32):
            raise InputError("rows must be whole numbers from 0 to 4294967295: the place of each point within its site")


def scatter_section(scatter: Scatter, beside: Sequence[Picture] = (), remark: str = "") -> PageSection:
    """Return the map: the packed points, the frame that the script fills, and under it the pictures of its quality.

    A `remark` stands under its caption.
    """
    under = charts([one.figure() for one in beside]) if beside else Html("")
    with np.errstate(over="ignore", invalid="ignore"):
        points = np.asarray(scatter.points, dtype=np.float32)
    drawn = np.isfinite(points[:, 0]) & np.isfinite(points[:, 1])
    points, own = points[drawn], scatter.sites[drawn & ~scatter.is_new]
    if not len(points):
        return section("map", "Map", under, lead="There is no point to draw.")
    shown = [f"{plural(len(own), 'row')} of {plural(len(set(map(str, own))), 'site')}"] if len(own) else []
    shown += [plural(len(points) - len(own), "new row")] if len(own) < len(points) else []
    lead = " and ".join(shown) + "."
    if len(points) < len(drawn):
        lead += f" {count(int(np.count_nonzero(~drawn)))} not finite, not drawn."
    extent = np.ptp(points.astype(np.float64), axis=0)
    equal = bool(FLATTEST * extent.min() >= extent.max())
    unnamed = not (scatter.x_label or scatter.y_label)
    if unnamed:
        lead += " Near rows are alike; the axes mean nothing by themselves."
    else:
        lead += " Both axes have the same scale." if equal else " Each axis has its own scale."
    lead += f" {remark}" if remark else ""
    ways = {"label": _categories(scatter.labels[drawn])} if scatter.labels is not None else {}
    if scatter.clusters is not None:
        ways["cluster"] = _categories(scatter.clusters[drawn])
    ways["site"] = _categories(scatter.sites[drawn].astype(str))
    crowded = len(points) >= FEWEST_FOR_DENSITY
    if crowded:
        ways["density"] = _steps(local_density(points))
    data = {
        "points": packed(points.ravel()),
        "rows": packed(scatter.rows[drawn].astype(np.uint32)),
        "ways": ways,
        "axes": [scatter.x_label, scatter.y_label],
        "equal": equal,
    }
    options = "".join(f"<option>{way}</option>" for way in ways)
    choice = f'<label>Colour by <select id="map-colour">{options}</select></label>'
    what = "map" if unnamed else f"{scatter.y_label} against {scatter.x_label}"
    frame = _FRAME.format(
        choice=choice if len(ways) > 1 else "<span></span>",
        what=esc(f"{what}, {plural(len(points), 'point')}"),
        units=" Density is in units of its median over the rows." if crowded else "",
        data=script_json(data),
    )
    return section("map", "Map", Html(frame), under, lead=lead)


_FRAME = """\
<div class="map" id="map-box"><div class="tools">{choice}<span class="buttons">\
<button type="button" id="map-in" aria-label="Zoom in">+</button>\
<button type="button" id="map-out" aria-label="Zoom out">−</button>\
<button type="button" id="map-all">Show all</button></span></div>\
<div class="plot"><canvas id="map-canvas" tabindex="0" role="img" aria-label="{what}"></canvas>\
<div class="ring" id="map-ring" hidden></div><div class="tip" id="map-tip" hidden></div></div>\
<ul class="legend" id="map-legend" tabindex="0" aria-label="Legend: choose one to show it alone"></ul></div>\
<p class="note">Drag to move and turn the wheel to zoom, or use two fingers. Point at a dot to see its site and row. \
Choose a name in the legend to see it alone.{units}</p>\
<noscript><p>This map needs JavaScript, which is part of this file.</p></noscript>\
<script type="application/json" id="map-data">{data}</script>"""


def local_density(points: NDArray[Any]) -> NDArray[np.float64]:
    """Return the density (n,) around each of n points (n, 2), in units of its median.

    Points are counted in the cells of a grid, a few to a cell, and the counts are smoothed: O(n).
    """
    places = np.asarray(points, dtype=np.float64)
    low, wide = places.min(axis=0), np.ptp(places, axis=0)
    cells = int(np.clip(np.sqrt(len(places)) / 2, *_CELLS))
    where = (places - low) / np.where(wide > 0, wide, 1.0) * (cells - 1)
    counts = np.zeros((cells, cells))
    np.add.at(counts, tuple(np.rint(where).astype(np.intp).T), 1)
    density: NDArray[np.float64] = map_coordinates(gaussian_filter(counts, REACH, mode="constant"), where.T, order=1)
    return density / (np.median(density) or 1.0)


def packed(values: NDArray[Any]) -> dict[str, str]:
    """Return an array as base64 of its little-endian bytes, with its kind: f4, u1, u2 or u4."""
    kind = f"{values.dtype.kind}{values.dtype.itemsize}"
    return {"kind": kind, "data": base64.b64encode(values.astype(f"<{kind}").tobytes()).decode("ascii")}


def _categories(values: NDArray[Any]) -> dict[str, Any]:
    """Return names, codes in the smallest type that holds them, and whether the names have an order, as steps have."""
    if values.dtype.kind == "f" and len(np.unique(values)) > MOST_LABELS:
        return _steps(values)
    if values.dtype.kind == "O":
        values = values.astype(str)
    names, codes = np.unique(values, return_inverse=True)
    texts = [number(float(name)) if values.dtype.kind == "f" else str(name) for name in names]
    return _coded(texts, codes, ordered=False)


def _steps(values: NDArray[Any]) -> dict[str, Any]:
    """Cut a quantity into steps with equal numbers of points; what is not finite is a step of its own."""
    finite = np.isfinite(values)
    inside = values[finite].astype(np.float64)
    edges = np.unique(np.quantile(inside, np.linspace(0, 1, STEPS + 1))) if len(inside) else np.zeros(2)
    codes = np.full(len(values), len(edges) - 1)
    codes[finite] = np.clip(np.searchsorted(edges, inside, side="right") - 1, 0, len(edges) - 2)
    texts = [f"{number(a, 3)} to {number(b, 3)}" for a, b in pairwise(edges)]
    return _coded(texts if finite.all() else [*texts, "not finite"], codes, ordered=True)


def _coded(names: list[str], codes: NDArray[Any], *, ordered: bool) -> dict[str, Any]:
    kind = np.uint8 if len(names) <= 2**8 else np.uint16 if len(names) <= 2**16 else np.uint32
    return {"names": names, "codes": packed(codes.ravel().astype(kind)), "ordered": ordered}

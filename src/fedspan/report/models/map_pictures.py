"""Maps of rows: the points of the page's map, and the pictures beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix
from fedspan.errors import InputError
from fedspan.report.charts.line_charts import Line, line_chart, thinned
from fedspan.report.charts.still_map import density_map, still_map
from fedspan.report.markup import count, number, pairs, percent, plural
from fedspan.report.models.component_pictures import centres
from fedspan.report.models.picture import Names, Picture, image_shape, picture
from fedspan.report.models.scatter_map import Scatter

#: The most points of a map.
MOST_POINTS = 100_000
_SEARCHES = {"exact": "exact, in blocks", "descent": "NN-descent"}


def map_of(model: Any, labels: NDArray[Any] | None = None) -> Scatter | None:
    """Return the map that a fitted model has (``embedding_`` or landmark coordinates, and ``row_sites_``), or None.

    At most 100,000 rows are shown, every second, third or so of more. Rows that were clustered without a map are shown
    by the first two principal components of their landmark coordinates, or of their spectral embedding. `labels` (n,)
    are in the order of the model's rows.
    """
    row_sites = getattr(model, "row_sites_", None)
    positions, axes = _positions(model)
    if row_sites is None or positions is None:
        return None
    if labels is not None and len(labels) != len(positions):
        raise InputError(f"labels has {len(labels)} entries, but the map has {len(positions)} rows")
    shown = slice(None, None, -(-len(positions) // MOST_POINTS))
    clusters = getattr(model, "labels_", None)
    return Scatter(
        positions[shown],
        np.asarray(model.sites_, dtype=str)[row_sites][shown],
        numbers_within(row_sites)[shown],
        labels=None if labels is None else labels[shown],
        clusters=None if clusters is None else clusters[shown],
        x_label=axes[0],
        y_label=axes[1],
    )


def _positions(model: Any) -> tuple[NDArray[Any] | None, tuple[str, str]]:
    embedding, factor = getattr(model, "embedding_", None), getattr(model, "factor_", None)
    if embedding is not None:
        return (embedding[:, :2] if embedding.shape[1] >= 2 else None), ("", "")
    places, what = getattr(model, "spectral_embedding_", None), "spectral embedding"
    if factor is not None and getattr(model, "method", None) == "coordinates":
        places, what = factor, "landmark coordinates"
    if places is None or places.shape[1] < 2:
        return None, ("", "")
    D = places - places.mean(axis=0, dtype=np.float64)
    axes = np.linalg.eigh(D.T @ D)[1][:, :-3:-1]
    return D @ axes, (f"first component of the {what}", "second component")


def numbers_within(groups: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the number of each row within its group, from 0, in the order of the rows."""
    order = np.argsort(groups, kind="stable")
    counts = np.bincount(groups)
    numbers = np.empty(len(groups), dtype=np.int64)
    numbers[order] = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers


@picture(beside_map=True, landmarks_=2)
def landmark_mmd2(model: Any, names: Names, landmarks: Matrix) -> Picture | None:
    """Draw how MMD^2 between landmarks and rows falls (the metric ``mmd2``)."""
    record = getattr(model, "run_", None)
    logged = [] if record is None else record.metric("mmd2")  # the last one is of the time after all rounds
    positive = [(float(x), y) for x, y in enumerate(logged) if isinstance(y, float) and 0 < y < np.inf]
    if len(positive) < 2:
        return None
    x, y = (list(values) for values in zip(*positive, strict=True))
    line = Line("MMD²", *thinned(x, y))
    chart = line_chart([line], label="MMD squared by round", x_label="round", log=True)
    remark = (
        f"{number(y[-1], 2)} at the end, of {plural(len(landmarks), 'landmark')}: the difference between their "
        "distribution and that of all rows. Logarithmic axis."
    )
    return Picture("MMD² per round", chart, remark)


@picture(beside_map=True)
def neighbourhoods(model: Any, names: Names) -> Picture | None:
    """List how neighbours were searched and found, and how many of them the map keeps."""
    record = getattr(model, "run_", None)
    if record is None or not hasattr(model, "row_sites_"):
        return None
    logged = {name: value for entry in record.metrics for name, value in entry.values.items()}
    sample = f" ({plural(int(logged['search_sample']), 'row')})" if "search_sample" in logged else ""
    kept = ""
    if "preserved" in logged:
        nearest, of = int(logged["preserved_neighbors"]), plural(int(logged["preserved_sample"]), "row")
        kept = f"kept on the map, of the {nearest} nearest ({of})"
    names_and_texts: dict[str, tuple[str, Callable[[Any], str]]] = {
        "search": ("search", lambda way: _SEARCHES.get(str(way), str(way))),
        "neighbors": ("neighbours of a row", count),
        "search_recall": (f"of the nearest by landmark distances, found by the search{sample}", percent),
        "site_recall": (
            "of the ten true nearest within a site, nearest by landmark distances",
            lambda share: f"{percent(share)} of {count(int(logged['site_recall_of']))}",
        ),
        "preserved": (kept, percent),
        "kl_divergence": ("divergence of the layout", lambda value: number(float(value), 3)),
    }
    rows = [(name, show(logged[key])) for key, (name, show) in names_and_texts.items() if key in logged]
    if not rows:
        return None
    if getattr(model, "embedding_", np.zeros((0, 2))).shape[1] == 1:
        rows.append(("dimensions of the map", "1, so that it is not drawn"))
    remark = (
        "Neighbours on the map are compared with those by the posted distances to landmarks. Each site counts, among "
        "its own rows, what these distances lose."
    )
    return Picture("Neighbourhood quality", pairs(rows), remark)


@picture(beside_map=True, landmarks_=2)
def landmarks(model: Any, names: Names, points: Matrix) -> Picture | None:
    """Draw landmarks (m, d), rows that are distributed like all rows: as images, or by their principal components."""
    if not np.isfinite(points).all():
        return None
    m, d = points.shape
    if image_shape(names) is not None:
        return centres("Landmarks", points, np.ones(m), names, [""] * m)
    apart = points - points.mean(axis=0)
    _, sizes, axes = np.linalg.svd(apart, full_matrices=False)
    places = np.zeros((m, 2))
    places[:, : min(2, len(axes))] = apart @ axes[:2].T
    drawn = still_map(places, np.zeros(m, dtype=int), label="landmarks by their first two principal components")
    share = float((sizes[:2] ** 2).sum() / ((sizes**2).sum() or 1.0))
    remark = (
        f"{count(m)} rows of {count(d)} columns that no site has, by their first two principal components "
        f"({percent(share)} of their variance)."
    )
    return Picture("Landmarks", drawn, remark)


@picture(density_=2, center_positions_=2, density_extent_=1)
def map_density(model: Any, names: Names, density: Matrix, positions: Matrix, extent: Matrix) -> Picture | None:
    """Draw the density and the centres of a private map, which shows no row."""
    if len(density) < 2:
        return None
    left, right, bottom, top = extent.tolist()
    remark = (
        f"{count(round(float(density.sum())))} rows, which stay at their sites; dots: {count(len(positions))} centres. "
        f"The picture is {number(right - left, 3)} wide."
    )
    return Picture("Density of the map", density_map(density, (left, right, bottom, top), positions), remark)

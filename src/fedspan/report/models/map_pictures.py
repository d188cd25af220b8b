"""Maps and clusters of rows: what a fitted model has to show, chosen by what it has.

`map_of` gives the points of the page's map, the other functions are pictures beside it (see `models.PICTURES`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.charts.line_charts import Line, line_chart
from fedspan.report.charts.thinning import thinned
from fedspan.report.markup import count, number, pairs, plural
from fedspan.report.models.landmark_pictures import landmarks
from fedspan.report.models.picture import Names, Picture
from fedspan.report.models.scatter_map import Scatter
from fedspan.report.sections.metrics import read

#: Most points that a map shows.
MOST_POINTS = 100_000
MOST_SITES = 30
MOST_CLUSTERS = 10
_POINTS_OF_A_LINE = 200


def map_of(model: Any, labels: NDArray[Any] | None = None) -> Scatter | None:
    """Return the map that a fitted model has (``embedding_`` or landmark coordinates, and ``row_sites_``), or None.

    At most 100,000 rows are shown, every second, third or so of more. Rows that were clustered without a map are shown
    by the first two principal components of their landmark coordinates, or of their spectral embedding.

    Parameters
    ----------
    model : estimator
    labels : array (n,), optional
        In the order of the model's rows.
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
    """Return the number of each row within its group, from 0, in the order of the rows.

    Examples
    --------
    >>> numbers_within(np.array([1, 0, 1, 1, 0]))
    array([0, 0, 1, 2, 1])
    """
    order = np.argsort(groups, kind="stable")
    counts = np.bincount(groups)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    numbers = np.empty(len(groups), dtype=np.int64)
    numbers[order] = np.arange(len(groups)) - starts
    return numbers


def beside_the_map(model: Any, names: Names = None) -> list[Picture]:
    """Return the pictures that say how good a map is."""
    return [found for picture in BESIDE if (found := picture(model, names)) is not None]


def landmark_mmd2(model: Any, names: Names = None) -> Picture | None:
    """Draw how MMD^2 between landmarks and rows falls (the metric ``mmd2`` of a model with ``landmarks_``)."""
    record = getattr(model, "run_", None)
    logged = read(record, "", "mmd2") if hasattr(model, "landmarks_") and record is not None else None
    if logged is None:
        return None
    positive = [(float(x), y) for x, y in enumerate(logged.y) if y > 0]  # the last one is of the time after all rounds
    if len(positive) < 2:
        return None
    x, y = (list(values) for values in zip(*positive, strict=True))
    chart = line_chart(
        [Line("MMD²", *thinned(x, y, _POINTS_OF_A_LINE))], label="MMD squared by round", x_label="round", log=True
    )
    remark = (
        f"{number(y[-1], 2)} at the end, of {plural(len(model.landmarks_), 'landmark')}: how far they are distributed "
        "unlike all rows. Logarithmic axis."
    )
    return Picture("MMD² per round", chart, remark)


def neighbourhoods(model: Any, names: Names = None) -> Picture | None:
    """List how neighbours were searched and found, and how many of them the map keeps."""
    record = getattr(model, "run_", None)
    if record is None or not hasattr(model, "row_sites_"):
        return None
    logged = {name: value for entry in record.metrics for name, value in entry.values.items()}
    said: list[tuple[str, str]] = []
    if "search" in logged:
        ways = {"exact": "exact, in blocks", "descent": "NN-descent"}
        said.append(("search", ways.get(str(logged["search"]), str(logged["search"]))))
        said.append(("neighbours of a row", count(int(logged["neighbors"]))))
    if "search_recall" in logged:
        of = f" ({plural(int(logged['search_sample']), 'row')})" if "search_sample" in logged else ""
        said.append(
            (f"of the nearest by landmark distances, found by the search{of}", _percent(logged["search_recall"]))
        )
    if "site_recall" in logged:
        said.append(
            (
                "of the ten true nearest within a site, nearest by landmark distances",
                f"{_percent(logged['site_recall'])} of {count(int(logged['site_recall_of']))}",
            )
        )
    if "preserved" in logged:
        nearest, rows = int(logged["preserved_neighbors"]), plural(int(logged["preserved_sample"]), "row")
        said.append((f"kept on the map, of the {nearest} nearest ({rows})", _percent(logged["preserved"])))
    if "kl_divergence" in logged:
        said.append(("divergence of the layout", number(float(logged["kl_divergence"]), 3)))
    if not said:
        return None
    if getattr(model, "embedding_", np.zeros((0, 2))).shape[1] == 1:
        said.append(("dimensions of the map", "1, so that it is not drawn"))
    remark = (
        "Neighbours on the map are compared with those by the posted distances to landmarks. What these lose is "
        "counted at the sites, among each site's own rows."
    )
    return Picture("Neighbourhood quality", pairs(said), remark)


#: Pictures that stand in the map's own section, where there is one.
BESIDE = (landmark_mmd2, neighbourhoods, landmarks)


def _percent(share: float) -> str:
    return f"{number(100 * float(share), 3)} %"


def cluster_sizes(model: Any, names: Names = None) -> Picture | None:
    """Draw how many rows of each site are in each cluster (``labels_`` and ``row_sites_``)."""
    labels, row_sites = getattr(model, "labels_", None), getattr(model, "row_sites_", None)
    if labels is None or row_sites is None:
        return None
    sizes = np.zeros((len(model.sites_), int(labels.max()) + 1), dtype=np.int64)
    np.add.at(sizes, (row_sites, labels), 1)
    shown, key = _few_columns(sizes)
    rows = shown[:MOST_SITES].tolist()
    sites: Sequence[str] = model.sites_[:MOST_SITES]
    drawn = row_bars(
        sites, rows, label="rows by site and cluster", show=lambda value: count(int(value)), colours=range(len(key))
    )
    hidden = len(model.sites_) - len(sites)
    remark = f"{count(hidden)} more sites not shown." if hidden else ""
    totals = [f"{name} ({count(int(total))})" for name, total in zip(key, shown.sum(axis=0), strict=True)]
    return Picture("Clusters by site", drawn, remark, list(enumerate(totals)))


def _few_columns(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[str]]:
    """Return sizes of as many clusters as there are colours, the last one being the rest."""
    total = sizes.shape[1]
    if total <= MOST_CLUSTERS:
        return sizes, [f"cluster {j}" for j in range(total)]
    kept = MOST_CLUSTERS - 1
    rest = sizes[:, kept:].sum(axis=1, keepdims=True)
    return np.hstack([sizes[:, :kept], rest]), [*(f"cluster {j}" for j in range(kept)), f"{kept} to {total - 1}"]

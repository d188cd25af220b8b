"""Pictures of clusters: of rows (their centres and sizes) and of sites (their models and members)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix
from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.charts.line_charts import bar_chart
from fedspan.report.markup import MOST_SITES, Html, count, esc, few, note, number, percent, plural, table
from fedspan.report.models.component_pictures import centres, signed_vectors
from fedspan.report.models.picture import Names, Picture, array_of, more_sites, picture

MOST_CLUSTERS = 30
MOST_COLOURS = 10
MOST_NAMES = 12
# Of names in a cell: all of them, at the length to which each is cut.
_LONGEST = 1000
#: Below this probability the cluster of a site is a guess.
SURE = 0.95


@picture(cluster_centers_=2, cluster_sizes_=1)
def cluster_centres(model: Any, names: Names, found: Matrix, sizes: Matrix) -> Picture:
    """Draw the centres of clusters of rows."""
    return centres("Cluster centres", found, sizes, names, [str(j) for j in range(len(found))])


@picture(cluster_sizes_=1)
def rows_by_cluster(model: Any, names: Names, sizes: Matrix) -> Picture | None:
    """Draw the number of rows of each cluster, unless it is known by site."""
    if hasattr(model, "row_sites_"):
        return None
    shown = [[value] for value in sizes[:MOST_CLUSTERS].tolist()]
    clusters = [f"cluster {j}" for j in range(len(shown))]
    chart = row_bars(clusters, shown, label="rows by cluster", show=_whole)
    rest = f"; the first {len(shown)} clusters are shown" if len(shown) < len(sizes) else ""
    return Picture("Rows by cluster", chart, f"{_whole(float(sizes.sum()))} rows in all{rest}")


@picture(labels_=1, row_sites_=1)
def cluster_sizes(model: Any, names: Names, labels: Matrix, row_sites: Matrix) -> Picture:
    """Draw the rows of each site by cluster; clusters beyond the number of colours are added up."""
    sizes = np.zeros((len(model.sites_), int(labels.max()) + 1), dtype=np.int64)
    np.add.at(sizes, (row_sites.astype(int), labels.astype(int)), 1)
    total = sizes.shape[1]
    key = [f"cluster {j}" for j in range(total)]
    if total > MOST_COLOURS:
        kept = MOST_COLOURS - 1
        sizes = np.hstack([sizes[:, :kept], sizes[:, kept:].sum(axis=1, keepdims=True)])
        key = [*key[:kept], f"{kept} to {total - 1}"]
    shown = sizes[:MOST_SITES].tolist()
    chart = row_bars(
        model.sites_[:MOST_SITES], shown, label="rows by site and cluster", show=_whole, colours=range(len(key))
    )
    totals = [f"{name} ({count(int(rows))})" for name, rows in zip(key, sizes.sum(axis=0), strict=True)]
    return Picture("Clusters by site", chart, more_sites(model.sites_), list(enumerate(totals)))


@picture(eigenvalues_=1, labels_=1)
def eigenvalues(model: Any, names: Names, values: Matrix, labels: Matrix) -> Picture:
    """Draw the leading eigenvalues of the affinity of a spectral clustering."""
    shown = values[:MOST_CLUSTERS].tolist()
    numbers = [str(i + 1) for i in range(len(shown))]
    chart = bar_chart(shown, numbers, label="eigenvalues of the affinity", x_label="number")
    return Picture("Eigenvalues of the affinity", chart, "As many of them are near 1 as there are clear clusters.")


@picture(coef_=2, proba_=2)
def cluster_models(model: Any, names: Names, coef: Matrix, proba: Matrix) -> Picture:
    """Draw the linear models (k, d) of clusters of sites."""
    return signed_vectors("Model of each cluster", coef, names, [str(j) for j in range(len(coef))], "coefficients")


@picture(proba_=2, labels_=1)
def sites_by_cluster(model: Any, names: Names, proba: Matrix, labels: Matrix) -> Picture | None:
    """List the sites of each cluster, with its noise and rows (``sites_``, ``noise_``, ``cluster_rows_``)."""
    sites = getattr(model, "sites_", ())
    if len(labels) != len(sites):
        return None
    noise, rows = array_of(model, "noise_", 1), array_of(model, "cluster_rows_", 1)
    rows = rows if rows is not None and np.isfinite(rows).all() else None
    shared: list[object] = ["–"] * proba.shape[1] if rows is None else list(whole_numbers(rows))
    members = {j: [site for site, label in zip(sites, labels, strict=True) if label == j] for j in np.unique(labels)}
    lines: list[list[object]] = []
    for j in range(min(proba.shape[1], MOST_CLUSTERS)):
        inside = members.get(j, [])
        listed = esc(few(inside, MOST_NAMES), _LONGEST) if inside else Html("–")
        spread = "–" if noise is None or not np.isfinite(noise[j]) else number(float(noise[j]), 3)
        lines.append([Html(f"{j}: {listed}"), len(inside), shared[j], spread])
    body = table(["cluster", "sites", "rows", "noise"], lines)
    if -1 in members:
        body = Html(body + note(f"No valid reply in the end: {few(members[-1], MOST_NAMES)}.", _LONGEST))
    known = proba[labels >= 0]
    doubtful = int(np.count_nonzero(known.max(axis=1) < SURE)) if len(known) else 0
    remark = f"All above {percent(SURE)} probable."
    if doubtful:
        remark = f"{plural(doubtful, 'site')} of {count(len(sites))} with a probability below {percent(SURE)}."
    if rows is not None and np.any(np.abs(rows - np.rint(rows)) > 1e-6):
        remark += " Rows are shared out by these probabilities, and rounded."
    return Picture("Sites of each cluster", body, remark)


def whole_numbers(shares: NDArray[np.float64]) -> list[int]:
    """Return shares as whole numbers that add up to their rounded sum: those that lose the most are rounded up."""
    down = np.floor(shares)
    missing = max(0, round(float(shares.sum()) - float(down.sum())))
    down[np.argsort(down - shares, kind="stable")[:missing]] += 1
    return [int(number) for number in down]


def _whole(value: float) -> str:
    return count(round(value))

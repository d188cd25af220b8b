"""Pictures of clusters: of rows (their centres and sizes) and of sites (their models, and who is in which)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.charts.line_charts import bar_chart
from fedspan.report.markup import Html, count, esc, few, note, number, plural, table
from fedspan.report.models.model_attributes import array_of, percent, shown_names
from fedspan.report.models.picture import Names, Picture
from fedspan.report.models.vectors import centres, signed_vectors

MOST_CLUSTERS = 30
MOST_NAMES = 12
# Of names in a cell: as many as there are, at the length to which each of them is cut.
_LONGEST = 1000
#: Below this share of certainty the cluster of a site is a guess.
SURE = 0.95


def cluster_centres(model: Any, names: Names = None) -> Picture | None:
    """Draw the centres of clusters of rows (``cluster_centers_`` in the features, ``cluster_sizes_``)."""
    found, sizes = array_of(model, "cluster_centers_", 2), array_of(model, "cluster_sizes_", 1)
    if found is None or sizes is None:
        return None
    return centres("Cluster centres", found, sizes, names, [str(j) for j in range(len(found))])


def rows_by_cluster(model: Any, names: Names = None) -> Picture | None:
    """Draw how many rows each cluster has (``cluster_sizes_``), unless it is known by site."""
    sizes = array_of(model, "cluster_sizes_", 1)
    if sizes is None or hasattr(model, "row_sites_"):
        return None
    shown = sizes[:MOST_CLUSTERS]
    chart = row_bars(
        [f"cluster {j}" for j in range(len(shown))],
        [[value] for value in shown.tolist()],
        label="rows by cluster",
        show=lambda value: count(round(value)),
        colours=[0],
    )
    rest = f"; the first {len(shown)} clusters are shown" if len(shown) < len(sizes) else ""
    return Picture("Rows by cluster", chart, f"{count(round(float(sizes.sum())))} rows in all{rest}")


def eigenvalues(model: Any, names: Names = None) -> Picture | None:
    """Draw the leading eigenvalues of the affinity (``eigenvalues_``) of a spectral clustering."""
    values = array_of(model, "eigenvalues_", 1)
    if values is None or not hasattr(model, "labels_"):
        return None
    shown = values[:MOST_CLUSTERS]
    chart = bar_chart(
        shown.tolist(), [str(i + 1) for i in range(len(shown))], label="eigenvalues of the affinity", x_label="number"
    )
    return Picture("Eigenvalues of the affinity", chart, "As many of them are near 1 as there are clear clusters.")


def cluster_models(model: Any, names: Names = None) -> Picture | None:
    """Draw the linear models of clusters of sites (``coef_`` (k, d), ``labels_`` and ``proba_`` of sites)."""
    coef = array_of(model, "coef_", 2)
    if coef is None or array_of(model, "proba_", 2) is None:
        return None
    shown = shown_names(names, coef.shape[1])
    return signed_vectors("Model of each cluster", coef, shown, [str(j) for j in range(len(coef))], "coefficients")


def sites_by_cluster(model: Any, names: Names = None) -> Picture | None:
    """List which sites are in which cluster, with its noise and rows (``proba_`` (sites, k), ``sites_``)."""
    proba, labels = array_of(model, "proba_", 2), array_of(model, "labels_", 1)
    sites = getattr(model, "sites_", ())
    if proba is None or labels is None or len(labels) != len(sites):
        return None
    noise, rows = array_of(model, "noise_", 1), array_of(model, "cluster_rows_", 1)
    rows = rows if rows is not None and np.isfinite(rows).all() else None
    shared = [] if rows is None else whole_numbers(rows)
    lines: list[list[object]] = []
    for j in range(min(proba.shape[1], MOST_CLUSTERS)):
        inside = [site for site, label in zip(sites, labels, strict=True) if label == j]
        who = esc(few(inside, MOST_NAMES), _LONGEST) if inside else Html("–")
        line: list[object] = [Html(f"{j}: {who}"), len(inside)]
        line += ["–" if rows is None else shared[j]]
        line += ["–" if noise is None or not np.isfinite(noise[j]) else number(float(noise[j]), 3)]
        lines.append(line)
    lost = [site for site, label in zip(sites, labels, strict=True) if label < 0]
    listed = table(["cluster", "sites", "rows", "noise"], lines)
    body = Html(listed + (note(f"No valid answer in the end: {few(lost, MOST_NAMES)}.", _LONGEST) if lost else ""))
    known = proba[labels >= 0]
    doubtful = int(np.count_nonzero(known.max(axis=1) < SURE)) if len(known) else 0
    certain = f"{plural(doubtful, 'site')} of {count(len(sites))} with a probability below {percent(SURE)}"
    remark = certain if doubtful else f"All above {percent(SURE)} probable."
    if rows is not None and np.any(np.abs(rows - np.rint(rows)) > 1e-6):
        remark = f"{remark.rstrip('.')}. Rows are shared out by these probabilities, and rounded."
    return Picture("Who is in which cluster", body, remark)


def whole_numbers(shares: NDArray[np.float64]) -> list[int]:
    """Return shares as whole numbers that add up to their rounded sum: those that lose the most are rounded up.

    Examples
    --------
    >>> whole_numbers(np.array([204.4, 1795.6])), whole_numbers(np.array([0.3, 0.3, 1.4])), whole_numbers(np.zeros(2))
    ([204, 1796], [0, 0, 2], [0, 0])
    """
    down = np.floor(shares)
    missing = max(0, round(float(shares.sum()) - float(down.sum())))
    down[np.argsort(down - shares, kind="stable")[:missing]] += 1
    return [int(number) for number in down]

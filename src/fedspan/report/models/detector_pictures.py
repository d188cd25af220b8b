"""Pictures of detectors: what they call an outlier, how training rows score, how networks were trained."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.charts.histogram import histogram
from fedspan.report.charts.line_charts import Line, line_chart
from fedspan.report.charts.thinning import thinned
from fedspan.report.markup import count, number, pairs
from fedspan.report.models.model_attributes import array_of, percent
from fedspan.report.models.picture import Names, Picture

#: Scores beyond so many thresholds are not drawn.
FARTHEST = 8
MOST_SITES = 30
_POINTS = 200


def threshold(model: Any, names: Names = None) -> Picture | None:
    """List what a detector calls an outlier (``offset_``, ``quantile``)."""
    offset, quantile = getattr(model, "offset_", None), getattr(model, "quantile", None)
    if not isinstance(offset, float) or not isinstance(quantile, int | float):
        return None
    rows = [
        ("anomaly score above", number(-offset)),
        ("quantile of the training scores", number(float(quantile))),
        ("false alarms to expect among rows like those", percent(1.0 - quantile)),
    ]
    score = getattr(model, "score", None)
    rows = [("score", score), *rows] if isinstance(score, str) else rows
    return Picture("What is an outlier", pairs(rows))


def training_scores(model: Any, names: Names = None) -> Picture | None:
    """Draw the distribution of the training scores with the threshold (``score_levels_`` (m, 2), ``offset_``)."""
    levels, offset = array_of(model, "score_levels_", 2), getattr(model, "offset_", None)
    if levels is None or not isinstance(offset, float) or len(levels) < 2:
        return None
    edges, shares = levels.T
    cut = -offset
    far = edges <= FARTHEST * cut if cut > 0 else np.ones(len(edges), dtype=bool)
    if np.count_nonzero(far) < 2:
        return None
    drawn = histogram(
        edges[far],
        shares[far],
        label="distribution of the training scores",
        x_label="anomaly score",
        mark=cut,
        marked=f"threshold {number(cut, 3)}",
    )
    beyond = 1.0 - float(shares[far][-1])
    remark = "Counts of all sites together, as the search for the threshold asked for them; far from it in wide steps."
    remark += f" {percent(beyond)} of the rows score even higher." if beyond > 0 else ""
    return Picture("Scores of the training rows", drawn, remark)


def thresholds_by_site(model: Any, names: Names = None) -> Picture | None:
    """Draw the thresholds that sites found for themselves (``threshold_`` and ``n_components_``, one per site)."""
    found, ranks = array_of(model, "threshold_", 1), array_of(model, "n_components_", 1)
    sites = getattr(model, "sites_", ())
    if found is None or ranks is None or len(found) != len(sites) or not np.isfinite(found).all():
        return None
    shown = list(sites[:MOST_SITES])
    chart = row_bars(
        [f"{site} ({count(int(rank))} components)" for site, rank in zip(shown, ranks, strict=False)],
        [[value] for value in found[:MOST_SITES].tolist()],
        label="threshold of each site",
        show=lambda value: number(value, 3),
        colours=[0],
    )
    rest = f" {count(len(sites) - MOST_SITES)} more sites not shown." if len(sites) > MOST_SITES else ""
    return Picture("Threshold of each site", chart, f"Each site's own, in the units of its own score.{rest}")


def training_history(model: Any, names: Names = None) -> Picture | None:
    """Draw loss and error while a network was trained (``history_``: see `fedspan.anomaly.parts.fedavg.Trained`)."""
    history = array_of(model, "history_", 2)
    if history is None or history.shape[1] != 5:
        return None
    lines = []
    for column, colour, name in (
        (1, 0, "loss, training rows"),
        (2, 4, "loss, rows held back"),
        (3, 6, "error, held back"),
    ):
        known = np.isfinite(history[:, column])
        x, y = history[known, 0].tolist(), history[known, column].tolist()
        if x:
            lines.append(Line(name, *thinned(x, y, _POINTS), colour=colour))
    if not lines:
        return None
    widths = [getattr(model, "n_features_in_", 0), *np.atleast_1d(getattr(model, "hidden_", ())).tolist()]
    layers = " – ".join(count(int(width)) for width in [*widths, int(getattr(model, "latent_", 0))] if width)
    chart = line_chart(lines, label="loss and error by round", x_label="round", zero=True)
    key = [(line.colour, line.name) for line in lines]
    return Picture("Training", chart, f"Widths of the encoder: {layers}.", key)

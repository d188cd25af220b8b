"""Pictures of detectors: what counts as an outlier, how training rows score, how networks were trained."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.arrays import Matrix
from fedspan.report.charts.bars_and_cells import row_bars
from fedspan.report.charts.line_charts import Line, histogram, line_chart, thinned
from fedspan.report.markup import MOST_SITES, count, number, pairs, percent
from fedspan.report.models.picture import Names, Picture, more_sites, picture

#: Scores beyond this many thresholds are not drawn.
FARTHEST = 8


@picture(score_levels_=2, offset_=0)
def training_scores(model: Any, names: Names, levels: Matrix, offset: Matrix) -> Picture | None:
    """Draw the distribution of the training scores with the threshold (``score_levels_`` (m, 2))."""
    edges, shares = levels.T
    cut = -float(offset)
    near = edges <= FARTHEST * cut if cut > 0 else np.ones(len(edges), dtype=bool)
    if np.count_nonzero(near) < 2:
        return None
    drawn = histogram(
        edges[near],
        shares[near],
        label="distribution of the training scores",
        x_label="anomaly score",
        mark=cut,
        marked=f"threshold {number(cut, 3)}",
    )
    beyond = 1.0 - float(shares[near][-1])
    remark = "Counts of all sites together, from the search for the threshold; in wide steps far from it."
    remark += f" {percent(beyond)} of the rows score even higher." if beyond > 0 else ""
    return Picture("Scores of the training rows", drawn, remark)


@picture(offset_=0, quantile=0)
def threshold(model: Any, names: Names, offset: Matrix, quantile: Matrix) -> Picture:
    """List what a detector calls an outlier."""
    distance = getattr(model, "distance", None)
    rows = [
        *([("distance", distance)] if isinstance(distance, str) else []),
        ("anomaly score above", number(-float(offset))),
        ("quantile of the training scores", number(float(quantile))),
        ("false alarms to expect among rows like those", percent(1.0 - float(quantile))),
    ]
    return Picture("What is an outlier", pairs(rows))


@picture(threshold_=1, n_components_=1)
def thresholds_by_site(model: Any, names: Names, found: Matrix, ranks: Matrix) -> Picture | None:
    """Draw the thresholds that sites found for themselves."""
    sites = getattr(model, "sites_", ())
    if len(found) != len(sites) or not np.isfinite(found).all():
        return None
    chart = row_bars(
        [f"{site} ({count(int(rank))} components)" for site, rank in zip(sites[:MOST_SITES], ranks, strict=False)],
        [[value] for value in found[:MOST_SITES].tolist()],
        label="threshold of each site",
        show=lambda value: number(value, 3),
    )
    remark = f"Each site's own, in the units of its own score. {more_sites(sites)}"
    return Picture("Threshold of each site", chart, remark.strip())


@picture(history_=2)
def training_history(model: Any, names: Names, history: Matrix) -> Picture | None:
    """Draw loss and error while a network was trained (``history_``: see `fedspan.anomaly.parts.fedavg.Trained`)."""
    if history.shape[1] != 5:
        return None
    rounds, loss, held_back_loss, error, _ = history.T
    curves = {"loss, training rows": loss, "loss, rows held back": held_back_loss, "error, held back": error}
    lines = []
    for colour, (name, values) in zip((0, 4, 6), curves.items(), strict=True):
        known = np.isfinite(values)
        if known.any():
            lines.append(Line(name, *thinned(rounds[known].tolist(), values[known].tolist()), colour=colour))
    if not lines:
        return None
    widths = [getattr(model, "n_features_in_", 0), *np.atleast_1d(getattr(model, "hidden_", ())).tolist()]
    layers = " – ".join(count(int(width)) for width in [*widths, int(getattr(model, "latent_", 0))] if width)
    chart = line_chart(lines, label="loss and error by round", x_label="round", zero=True)
    key = [(line.colour, line.name) for line in lines]
    return Picture("Training", chart, f"Widths of the encoder: {layers}.", key)

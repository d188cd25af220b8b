"""Pictures of principal components: how much of the variance they have, and what they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.report.charts.line_charts import bar_chart
from fedspan.report.markup import plural
from fedspan.report.models.model_attributes import array_of, image_shape, percent
from fedspan.report.models.picture import Names, Picture
from fedspan.report.models.vectors import signed_vectors

MOST_BARS = 40
MOST_COMPONENTS = 6


def explained_variance(model: Any, names: Names = None) -> Picture | None:
    """Draw the share of variance of each component, and of all up to it (``explained_variance_ratio_``)."""
    ratio = array_of(model, "explained_variance_ratio_", 1)
    if ratio is None:
        return None
    shown = ratio[:MOST_BARS]
    so_far = np.cumsum(shown)
    chart = bar_chart(
        shown.tolist(),
        [str(i + 1) for i in range(len(shown))],
        label="share of variance by component",
        x_label="component",
        line=so_far.tolist(),
        show=percent,
    )
    bad = int(np.count_nonzero(~np.isfinite(ratio)))
    remark = f"{bad} not finite" if bad else f"{percent(float(ratio.sum()))} in {plural(len(ratio), 'component')}"
    if len(ratio) > len(shown):
        remark += f"; the first {len(shown)} are shown"
    return Picture("Explained variance", chart, remark, [(0, "each"), (6, "all so far")])


def loadings(model: Any, names: Names = None) -> Picture | None:
    """Draw the first components (``components_``, (components, features)): their largest loadings, or as images."""
    components = array_of(model, "components_", 2)
    if components is None:
        return None
    first = components if image_shape(names) else components[:MOST_COMPONENTS]
    numbers = [str(i + 1) for i in range(len(first))]
    return signed_vectors("Loadings of the first components", first, names, numbers, "loadings")

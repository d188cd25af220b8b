"""The picture of landmarks: made-up rows that are distributed like all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.report.charts.still_map import still_map
from fedspan.report.markup import count
from fedspan.report.models.model_attributes import array_of, image_shape, percent
from fedspan.report.models.picture import Names, Picture
from fedspan.report.models.vectors import centres


def landmarks(model: Any, names: Names = None) -> Picture | None:
    """Draw the landmarks (``landmarks_`` (m, d)): as images, or in the plane of their first principal components."""
    points = array_of(model, "landmarks_", 2)
    if points is None or not np.isfinite(points).all():
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
        f"{count(m)} rows of {count(d)} columns that nobody has, by their first two principal components "
        f"({percent(share)} of their variance)."
    )
    return Picture("Landmarks", drawn, remark)

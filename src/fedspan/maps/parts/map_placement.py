"""New rows on an existing map, at a site or at the coordinator: the same arrays, the same code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import transform
from fedspan.landmarks.landmark_distances import distances_to, drawn_in
from fedspan.linalg.kernels.landmark_form import LandmarkForm
from fedspan.linalg.kernels.neighbors import nearest
from fedspan.linalg.layout.map_graph import placed
from fedspan.sums.row_transforms import same_columns

Array = NDArray[Any]

#: Neighbours of a new row, and how many of them count: positions of few near ones say more than the mean of many.
NEIGHBORS = 15
PERPLEXITY = 5.0
_BLOCK_ROWS = 1024


@transform("maps.place_on_map")
def place_on_map(
    X: Array,
    landmarks: Array,
    centre: Array,
    scale: float,
    method: str,
    matrix: Array,
    signs: Array,
    squares: Array,
    residuals: bool,
    factor: Array,
    offset: Array,
    embedding: Array,
) -> Array:
    """Return the positions (n, q) of rows on a map whose rows have the low-rank form `factor`, `offset`."""
    same_columns(X, len(centre))
    form = LandmarkForm(method, matrix, signs, squares, residuals)
    known = form.form_of(factor, offset)
    k = min(NEIGHBORS, len(known))
    positions = np.empty((len(X), embedding.shape[1]))
    for start in range(0, len(X), _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        near = drawn_in(X[part], centre, scale)
        rows = form.of(distances_to(near, landmarks, centre, scale) / scale, np.float64)
        indices, _ = nearest(known, k, form.form_of(rows.factor.astype(factor.dtype), rows.offset.astype(factor.dtype)))
        # In double, so that a position does not depend on which rows are placed with it.
        inner = np.vecdot((rows.factor * rows.signs)[:, None], factor[indices].astype(np.float64))
        values = rows.offset[:, None] + offset[indices] + inner
        positions[part] = placed(embedding, indices, known.as_distances(values), PERPLEXITY)
    return positions

"""Counts of standardised columns, and of directions in which rows are white, between fixed edges.

A detector counts its training rows so when it is fitted, and later rows can be compared with them. The view in which
rows are counted stays that of the first fit: counts of batches of a stream add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import Aggregator
from fedspan.anomaly.parts.score_grid import score_counts
from fedspan.anomaly.scores import standardized
from fedspan.arrays import Array
from fedspan.federation import Federation, transform
from fedspan.federation.site.parameters import Matrix, Vector

View = dict[str, Any]

#: Edges of standardised columns and directions: dense where most rows are. Not at round numbers: half of the rows of a
#: column of two values may be at 1, and rounding must not carry them across an edge.
EDGES = 1.0137 * np.concatenate([[-4.0, -3.0, -2.5, -2.0], np.linspace(-1.5, 1.5, 13), [2.0, 2.5, 3.0, 4.0]])
#: Tables of more columns are compared by columns alone.
_MOST_DIRECTIONS = 200
#: Columns and directions that are counted, at most.
_MOST_COUNTED = 1000


@transform("anomaly.drift_view")
def drift_view(X: Array, mean: Vector, scale: Vector | None, root: Matrix | None) -> Matrix:
    """Return standardised rows (n, d), and with `root` beside them white ones (n, 2 d)."""
    Z = standardized(X, mean, scale)
    return Z if root is None else np.concatenate([Z, Z @ root], axis=1)


def view_of(model: Any) -> View:
    """Return the mean, scale and root by which a fitted detector sees its columns.

    A detector by trees alone has neither: there the range of the cuts of a column takes their place.
    """
    if getattr(model, "mean_", None) is not None:
        root = getattr(model, "whitening_", None)
        few = root is not None and len(root) <= _MOST_DIRECTIONS
        kept = np.asarray(root, dtype=np.float32).astype(np.float64) if few else None
        return {"mean": model.mean_, "scale": model.scale_, "root": kept}
    d = model.n_features_in_
    low, high = np.full(d, np.inf), np.full(d, -np.inf)
    np.minimum.at(low, model.features_.ravel(), model.cuts_.ravel())
    np.maximum.at(high, model.features_.ravel(), model.cuts_.ravel())
    cut = np.isfinite(low)
    low, high = np.where(cut, low, 0.0), np.where(cut, high, 0.0)
    return {"mean": (low + high) / 2.0, "scale": np.where(high > low, (high - low) / 6.0, 1.0), "root": None}


def fits_a_message(view: Mapping[str, Any], most: int) -> bool:
    """Return whether edges and view are few enough bytes: wide tables are compared by their scores alone."""
    edges = edges_of(view)
    parts = [np.asarray(value) for value in view.values() if value is not None]
    return len(edges) <= _MOST_COUNTED and 2 * edges.nbytes + sum(part.nbytes for part in parts) <= most


def edges_of(view: Mapping[str, Any]) -> Matrix:
    """Return the edges (m, q) of what a view shows."""
    width = len(view["mean"]) * (1 if view["root"] is None else 2)
    return np.tile(EDGES, (width, 1))


def seen_by(view: Mapping[str, Any], fed: Federation, names: tuple[str, ...] | None) -> Federation:
    """Return the federation whose sites see their rows through a model's `drift_view`."""
    return fed.apply(drift_view, columns=names, **{key: view[key] for key in ("mean", "scale", "root")})


def view_counts(
    view: Mapping[str, Any], fed: Federation, names: tuple[str, ...] | None, aggregator: Aggregator | None = None
) -> NDArray[np.float32]:
    """Return the number (m, q + 1) of rows between the edges of each column and direction."""
    return score_counts(seen_by(view, fed, names), edges_of(view), aggregator).astype(np.float32)

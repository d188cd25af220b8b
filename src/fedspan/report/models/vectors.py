"""Vectors over features, such as components, centres or models of clusters: as images, or as shaded cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.bars_and_cells import heat_map
from fedspan.report.markup import count
from fedspan.report.models.model_attributes import image_shape, shown_names
from fedspan.report.models.picture import Names, Picture
from fedspan.report.models.row_pictures import image_tiles

MOST_VECTORS = 8
MOST_IMAGES = 16
MOST_FEATURES = 12
SIGNS = [(0, "positive"), (6, "negative")]

Matrix = NDArray[np.float64]


def signed_vectors(title: str, vectors: Matrix, names: Names, columns: Sequence[str], what: str) -> Picture:
    """Draw vectors (k, d) whose signs matter: pixels as images, or the features where they are the largest.

    Parameters
    ----------
    columns : sequence of k names
    what : str
        What an entry is called, such as "loadings".

    Examples
    --------
    >>> signed_vectors("Loadings", np.eye(2), ["age", "dose"], ["1", "2"], "loadings").body.count("<rect")
    4
    """
    shape = image_shape(names)
    if shape is not None and shape[0] * shape[1] == vectors.shape[1]:
        return _images(title, vectors, columns, shape, signed=True)
    first = vectors[:MOST_VECTORS]
    sizes = np.where(np.isfinite(first), np.abs(first), 0.0)
    order = _telling(sizes)
    shown = shown_names(names, vectors.shape[1])
    chart = heat_map(
        first[:, order].T, [shown[j] for j in order], columns[: len(first)], label=f"largest {what} by feature"
    )
    return Picture(title, chart, _left_out(len(order), vectors.shape, f"with the largest {what}"), SIGNS)


def centres(title: str, vectors: Matrix, weights: NDArray[Any], names: Names, columns: Sequence[str]) -> Picture:
    """Draw centres (k, d) of so many rows each (k,): as images, or where they differ most from the mean of all.

    Cells are shaded by the difference from the mean of all rows, in units of the feature's spread between the centres,
    and have the centre's own value.
    """
    shape = image_shape(names)
    if shape is not None and shape[0] * shape[1] == vectors.shape[1]:
        return _images(title, vectors, columns, shape, signed=False)
    share = weights / weights.sum() if weights.sum() > 0 else np.full(len(vectors), 1 / len(vectors))
    apart = vectors - share @ vectors
    spread = np.sqrt(share @ apart**2)
    scaled = apart / np.where(spread > 0, spread, 1.0)
    # Which features tell the centres apart is a question of the spread between them, in the features' own units.
    order = np.argsort(-spread, kind="stable")[:MOST_FEATURES]
    shown = shown_names(names, vectors.shape[1])
    first = slice(None, MOST_VECTORS)
    chart = heat_map(
        scaled[first][:, order].T,
        [shown[j] for j in order],
        columns[first],
        label=f"{title} by feature",
        told=vectors[first][:, order].T,
    )
    return Picture(
        title,
        chart,
        _left_out(len(order), vectors.shape, "that differ most between them"),
        [(0, "above the mean of all rows"), (6, "below")],
    )


def _telling(sizes: Matrix) -> NDArray[np.intp]:
    """Return the features (by number) with the largest entries of sizes (k, d).

    Those of one vector stand together, the largest first, so that the blocks can be seen.
    """
    largest = np.argsort(-sizes.max(axis=0), kind="stable")[:MOST_FEATURES]
    return largest[np.lexsort((-sizes.max(axis=0)[largest], sizes.argmax(axis=0)[largest]))]


def _images(title: str, vectors: Matrix, columns: Sequence[str], shape: tuple[int, int], *, signed: bool) -> Picture:
    shown = vectors[:MOST_IMAGES]
    drawn = image_tiles(list(zip(columns, shown, strict=False)), shape, signed=signed, label=title)
    rest = f"The first {len(shown)} of {count(len(vectors))}." if len(shown) < len(vectors) else ""
    return Picture(title, drawn, rest, SIGNS if signed else ())


def _left_out(features: int, shape: tuple[int, ...], which: str) -> str:
    k, d = shape
    said = [f"The {features} of {count(d)} features {which}."] if features < d else []
    said += [f"The first {MOST_VECTORS} of {count(k)}."] if k > MOST_VECTORS else []
    return " ".join(said)

"""Pictures of principal components, and of vectors over features in general: as images, or as shaded cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Matrix
from fedspan.report.charts.bars_and_cells import heat_map, image_tiles
from fedspan.report.charts.line_charts import bar_chart
from fedspan.report.markup import count, percent, plural
from fedspan.report.models.picture import Names, Picture, image_shape, picture, shown_names

MOST_BARS = 40
MOST_COMPONENTS = 6
MOST_VECTORS = 8
MOST_IMAGES = 16
MOST_FEATURES = 12
SIGNS = [(0, "positive"), (6, "negative")]


@picture(explained_variance_ratio_=1)
def explained_variance(model: Any, names: Names, ratio: Matrix) -> Picture:
    """Draw the share of variance of each component, and of all up to it."""
    shown = ratio[:MOST_BARS]
    chart = bar_chart(
        shown.tolist(),
        [str(i + 1) for i in range(len(shown))],
        label="share of variance by component",
        x_label="component",
        over=np.cumsum(shown).tolist(),
        show=percent,
    )
    bad = int(np.count_nonzero(~np.isfinite(ratio)))
    remark = f"{bad} not finite" if bad else f"{percent(float(ratio.sum()))} in {plural(len(ratio), 'component')}"
    remark += f"; the first {len(shown)} are shown" if len(ratio) > len(shown) else ""
    return Picture("Explained variance", chart, remark, [(0, "each"), (6, "all so far")])


@picture(components_=2)
def loadings(model: Any, names: Names, components: Matrix) -> Picture:
    """Draw the first components (components, features): their largest loadings, or as images."""
    first = components if image_shape(names) else components[:MOST_COMPONENTS]
    numbers = [str(i + 1) for i in range(len(first))]
    return signed_vectors("Loadings of the first components", first, names, numbers, "loadings")


def signed_vectors(title: str, vectors: Matrix, names: Names, columns: Sequence[str], what: str) -> Picture:
    """Draw vectors (k, d) whose signs matter: pixels as images, or the features where they are the largest.

    `columns` are k names, and `what` is the name of an entry, such as "loadings".
    """
    images = _images(title, vectors, names, columns, signed=True)
    if images is not None:
        return images
    first = vectors[:MOST_VECTORS]
    sizes = np.where(np.isfinite(first), np.abs(first), 0.0)
    # The features of one vector stand together, the largest first, so that the blocks can be seen.
    largest = np.argsort(-sizes.max(axis=0), kind="stable")[:MOST_FEATURES]
    order = largest[np.lexsort((-sizes.max(axis=0)[largest], sizes.argmax(axis=0)[largest]))]
    shown = [shown_names(names, vectors.shape[1])[j] for j in order]
    chart = heat_map(first[:, order].T, shown, columns[: len(first)], label=f"largest {what} by feature")
    return Picture(title, chart, _left_out(vectors, f"with the largest {what}"), SIGNS)


def centres(title: str, vectors: Matrix, weights: NDArray[Any], names: Names, columns: Sequence[str]) -> Picture:
    """Draw centres (k, d) with their numbers of rows (k,): as images, or where they differ most from the mean of all.

    Cells are shaded by the difference from the mean of all rows, in units of the feature's spread between the centres.
    They hold the centre's own value.
    """
    images = _images(title, vectors, names, columns, signed=False)
    if images is not None:
        return images
    share = weights / weights.sum() if weights.sum() > 0 else np.full(len(vectors), 1 / len(vectors))
    apart = vectors - share @ vectors
    spread = np.sqrt(share @ apart**2)
    scaled = apart / np.where(spread > 0, spread, 1.0)
    order = np.argsort(-spread, kind="stable")[:MOST_FEATURES]
    shown = [shown_names(names, vectors.shape[1])[j] for j in order]
    first = slice(None, MOST_VECTORS)
    chart = heat_map(
        scaled[first][:, order].T, shown, columns[first], label=f"{title} by feature", values=vectors[first][:, order].T
    )
    key = [(0, "above the mean of all rows"), (6, "below")]
    return Picture(title, chart, _left_out(vectors, "that differ most between them"), key)


def _images(title: str, vectors: Matrix, names: Names, columns: Sequence[str], *, signed: bool) -> Picture | None:
    """Draw vectors over pixels; None where the features are not pixels."""
    shape = image_shape(names)
    if shape is None or shape[0] * shape[1] != vectors.shape[1]:
        return None
    shown = vectors[:MOST_IMAGES]
    drawn = image_tiles(list(zip(columns, shown, strict=False)), shape, signed=signed, label=title)
    rest = f"The first {len(shown)} of {count(len(vectors))}." if len(shown) < len(vectors) else ""
    return Picture(title, drawn, rest, SIGNS if signed else ())


def _left_out(vectors: Matrix, which: str) -> str:
    k, d = vectors.shape
    parts = [f"The {MOST_FEATURES} of {count(d)} features {which}."] if d > MOST_FEATURES else []
    parts += [f"The first {MOST_VECTORS} of {count(k)}."] if k > MOST_VECTORS else []
    return " ".join(parts)

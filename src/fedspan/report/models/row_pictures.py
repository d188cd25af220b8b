"""Rows as pictures: images in strips or tiles, and tables as shaded cells, the same rows under one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.svg import LETTER, WIDTH, pixels, rect
from fedspan.report.markup import Html, esc, join, number

Array = NDArray[Any]
Named = Sequence[tuple[str, Array]]

_SHADES = 16
MOST_COLUMNS = 40
_LONGEST_NAME = 16


def image_strips(strips: Named, shape: tuple[int, int]) -> Html:
    """Draw strips of images, each under its name; all in the shades of the first strip.

    Examples
    --------
    >>> image_strips([("true", np.eye(4)), ("rebuilt", np.eye(4))], (2, 2)).count("<text")
    2
    """
    height, width = shape
    low, high = float(strips[0][1].min()), float(strips[0][1].max())
    step, line = 64 * 1.08, 64 * height / width + 26
    body = []
    for i, (name, rows) in enumerate(strips):
        body.append(Html(f'<text class="name" x="0" y="{pixels(i * line + 14)}">{esc(name)}</text>'))
        for j, row in enumerate(rows):
            place = f"translate({pixels(j * step)} {pixels(i * line + 20)}) scale({64 / width:.4f})"
            body.append(Html(f'<g transform="{place}">{_image(row.reshape(shape), low, high)}</g>'))
    return _scrolled(join(body), step * len(strips[0][1]), line * len(strips), "Images, true and rebuilt")


def image_tiles(images: Named, shape: tuple[int, int], *, signed: bool, label: str) -> Html:
    """Draw images, four in a line, each under its name and in shades of its own.

    Parameters
    ----------
    images : sequence of (name, array (height * width,))
    signed : bool
        Whether zero is the middle, so that positive and negative pixels have a colour each; otherwise the least value.

    Examples
    --------
    >>> tiles = image_tiles([("1", np.array([1.0, -1.0, 0.0, 0.5]))], (2, 2), signed=True, label="components")
    >>> tiles.count('class="plus"'), tiles.count('class="minus"')
    (1, 1)
    """
    height, width = shape
    side = (WIDTH - 3 * 12) / 4
    head = 16 if any(name for name, _ in images) else 4
    line = side * height / width + head + 6
    body = []
    for i, (name, values) in enumerate(images):
        x, y = (i % 4) * (side + 12), (i // 4) * line
        body.append(Html(f'<text class="name" x="{pixels(x)}" y="{pixels(y + 11)}">{esc(name)}</text>' if name else ""))
        image = np.nan_to_num(np.asarray(values, dtype=np.float64).reshape(shape))
        far = float(np.abs(image).max()) or 1.0
        parts = [("plus", image, 0.0, far), ("minus", -image, 0.0, far)]
        drawn = [
            Html(f'<g class="{kind}">{_image(part, low, high)}</g>')
            for kind, part, low, high in (parts if signed else [("", image, float(image.min()), float(image.max()))])
        ]
        place = f"translate({pixels(x)} {pixels(y + head)}) scale({side / width:.4f})"
        body.append(Html(f'<g class="tile" transform="{place}">{join(drawn)}</g>'))
    tall = line * -(-len(images) // 4)
    return Html(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {pixels(tall)}" role="img" aria-label="{esc(label)}">'
        f"{join(body)}</svg>"
    )


def _scrolled(body: Html, width: float, height: float, label: str) -> Html:
    """Return a drawing that is wider than a phone."""
    return Html(
        f'<div class="scroll" tabindex="0"><svg class="chart pictures" viewBox="0 0 {pixels(width)} {pixels(height)}" '
        f'role="img" aria-label="{label}">{body}</svg></div>'
    )


def _image(image: Array, low: float, high: float) -> Html:
    """Draw an image in one path a shade: runs of pixels that have it."""
    height, width = image.shape
    levels = np.clip((image - low) / ((high - low) or 1.0), 0, 1)
    shades = np.rint(np.nan_to_num(levels) * _SHADES).astype(int)
    paths: dict[int, list[str]] = {}
    for y, line in enumerate(shades):
        edges = np.flatnonzero(np.diff(line)) + 1
        for start, stop in zip([0, *edges], [*edges, width], strict=True):
            if line[start]:
                paths.setdefault(int(line[start]), []).append(f"M{start} {y}h{stop - start}v1h{start - stop}z")
    frame = f'<rect class="frame" width="{width}" height="{height}"/>'
    drawn = (
        f'<path fill-opacity="{shade / _SHADES:.3g}" d="{"".join(runs)}"/>' for shade, runs in sorted(paths.items())
    )
    return Html(frame + "".join(drawn))


def heat_strips(strips: Named, rows: Sequence[str], columns: Sequence[str] | None, *, about: Array) -> Html:
    """Draw rows of a table as shaded cells, one line for each strip under the name of the row.

    Parameters
    ----------
    strips : sequence of (name, array (k, m))
    rows : sequence of str, length k
    columns : sequence of str, length m, optional
    about : array (n, m)
        All rows of the first strip: cells are shaded by deviations from its column means.

    Examples
    --------
    >>> heat_strips([("true", np.eye(2)), ("rebuilt", np.eye(2))], ["a", "b"], None, about=np.eye(2)).count("<rect")
    8
    """
    m = min(about.shape[1], MOST_COLUMNS)
    centre, scale = about.mean(axis=0)[:m], about.std(axis=0)[:m]
    names = [str(i + 1) for i in range(m)] if columns is None else list(columns[:m])
    left = LETTER * min(max(len(name) for name, _ in strips), 28) + 12
    across = max(2 * WIDTH, left + 14 * m)
    cell, line = (across - left) / m, 14
    head = 8 + 0.64 * LETTER * min(max(map(len, names)), _LONGEST_NAME)
    room = max(0.0, 0.77 * LETTER * min(len(names[-1]), _LONGEST_NAME) - 0.6 * cell)  # for the last name
    body, y = [], head
    for j, name in enumerate(names):
        place = f"translate({pixels(left + (j + 0.4) * cell)} {pixels(head + 12)}) rotate(-40)"
        body.append(Html(f'<text transform="{place}">{esc(name, _LONGEST_NAME)}<title>{esc(name)}</title></text>'))
    for k, row in enumerate(rows):
        body.append(Html(f'<text class="name" x="0" y="{pixels(y + 12)}">{esc(row)}</text>'))
        y += 18
        for name, values in strips:
            body.append(Html(f'<text class="end" x="{pixels(left - 8)}" y="{pixels(y + 10)}">{esc(name, 28)}</text>'))
            for j in range(m):
                apart = (values[k, j] - centre[j]) / (scale[j] or 1.0)
                shade = min(abs(float(apart)) / 2.5, 1.0)
                kind = "plus" if apart > 0 else "minus"
                told = f"{names[j]}: {number(float(values[k, j]))} ({name})"
                body.append(rect(left + j * cell, y, cell - 1, line - 2, kind, told, shade))
            y += line
        y += 6
    return _scrolled(join(body), across + room, y, "Rows, true and rebuilt")

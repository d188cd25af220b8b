"""Charts without axes: horizontal bars under their names, shaded cells, and images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.report.charts.axes import Scale, drawable
from fedspan.report.charts.svg import LETTER, WIDTH, pixels, rect, svg, text
from fedspan.report.markup import Html, number, number_with

_SHADES = 16
_LONGEST_NAME = 17


def row_bars(
    names: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    label: str,
    show: Callable[[float], str],
    colours: Sequence[int] = (0,),
) -> Html:
    """Draw a horizontal bar for each row of values (n, parts), which are not negative.

    Its parts, in these colours, are side by side; the name is above it and the total at the right.
    """
    totals = [sum(row) for row in values]
    across = Scale(0, max([*totals, 0]) or 1, 0, WIDTH)
    body = []
    for i, (name, row, total) in enumerate(zip(names, values, totals, strict=True)):
        top, shown = 36 * i, show(total)
        room = int(WIDTH / LETTER - len(shown) - 2)
        body += [text(0, top + 14, name, "name", most=room), text(WIDTH, top + 14, shown, "end")]
        x = 0.0
        for value, colour in zip(row, colours, strict=True):
            body.append(rect(x, top + 20, across(value), 8, f"s{colour}", f"{name}: {show(value)}"))
            x += across(value)
    return svg(body, label, height=36 * len(names))


def heat_map(
    shades: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    label: str,
    values: NDArray[np.float64] | None = None,
    deepest: float | None = None,
) -> Html:
    """Draw signed numbers (r, c) as shaded cells; the size `deepest` has the deepest shade. Default: the largest.

    What is not finite stays an empty cell. `values` (r, c) are the numbers in the cells. Default: `shades`.
    """
    values = shades if values is None else values
    left = max([LETTER * min(len(name), _LONGEST_NAME) for name in rows], default=0.0) + 12
    cell, line, head = (WIDTH - left) / max(1, len(columns)), 21, 20
    largest = deepest or float(np.max(np.abs(shades), where=np.isfinite(shades), initial=0.0)) or 1.0
    readable = cell >= 34 and 0.01 <= np.max(np.abs(values), where=np.isfinite(values), initial=0.0) < 100
    body = [text(left + (j + 0.5) * cell, 12, name, "mid") for j, name in enumerate(columns)]
    for i, name in enumerate(rows):
        y = head + i * line
        body.append(text(left - 8, y + 14, name, "end", most=_LONGEST_NAME))
        for j, (shade, value) in enumerate(zip(shades[i], values[i], strict=True)):
            if drawable(shade):
                x, kind = left + j * cell, "plus" if shade > 0 else "minus"
                title = f"{name}, {columns[j]}: {number(value)}"
                body.append(rect(x + 1, y, cell - 2, line - 2, kind, title, 0.75 * abs(shade) / largest))
                body += [text(x + cell / 2, y + 14, number_with(value, 2), "mid cell")] if readable else []
    return svg(body, label, height=head + line * len(rows) + 2)


def image_tiles(
    images: Sequence[tuple[str, NDArray[Any]]],
    shape: tuple[int, int],
    *,
    label: str,
    signed: bool = False,
    shades: tuple[float, float] | None = None,
    columns: int = 4,
) -> Html:
    """Draw images (height * width,) of shape (height, width), each under its name, some in a line.

    `signed` images have a colour for positive and one for negative pixels. `shades` are the values of the lightest and
    the darkest shade of the others. Default: those of each image.
    """
    gap = 48 / columns
    side = (WIDTH - (columns - 1) * gap) / columns
    head = 16 if any(name for name, _ in images) else 4
    line = side * shape[0] / shape[1] + head + 6
    body = []
    for i, (name, values) in enumerate(images):
        x, y = (i % columns) * (side + gap), (i // columns) * line
        body += [text(x, y + 11, name, "name")] if name else []
        image = np.nan_to_num(np.asarray(values, dtype=np.float64).reshape(shape))
        far = float(np.abs(image).max()) or 1.0
        low, high = shades or (float(image.min()), float(image.max()))
        parts = [("plus", image, 0.0, far), ("minus", -image, 0.0, far)] if signed else [("", image, low, high)]
        place = f"translate({pixels(x)} {pixels(y + head)}) scale({side / shape[1]:.4f})"
        drawn = "".join(f'<g class="{kind}">{_image(part, a, b)}</g>' for kind, part, a, b in parts)
        body.append(Html(f'<g class="tile" transform="{place}">{drawn}</g>'))
    return svg(body, label, height=line * -(-len(images) // columns))


def _image(image: NDArray[np.float64], low: float, high: float) -> str:
    """Draw an image with one path a shade: the runs of pixels that have it."""
    height, width = image.shape
    levels = np.clip((image - low) / ((high - low) or 1.0), 0, 1)
    shades = np.rint(levels * _SHADES).astype(int)
    paths: dict[int, list[str]] = {}
    for y, line in enumerate(shades):
        edges = np.flatnonzero(np.diff(line)) + 1
        for start, stop in zip([0, *edges], [*edges, width], strict=True):
            if line[start]:
                paths.setdefault(int(line[start]), []).append(f"M{start} {y}h{stop - start}v1h{start - stop}z")
    drawn = (
        f'<path fill-opacity="{shade / _SHADES:.3g}" d="{"".join(runs)}"/>' for shade, runs in sorted(paths.items())
    )
    return f'<rect class="frame" width="{width}" height="{height}"/>{"".join(drawn)}'

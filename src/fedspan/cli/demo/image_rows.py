"""Lines of 8 x 8 images, each under its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from fedspan.report.charts.bars_and_cells import image_tiles
from fedspan.report.markup import Html


def image_rows(names: Sequence[str], images: Sequence[NDArray[Any]], label: str) -> Html:
    """Draw a line of images (k, 64) under each name, all with the same shades."""
    columns = len(images[0])
    low, high = float(images[0].min()), float(images[0].max())
    tiles = [
        (name if i == 0 else "", image)
        for name, line in zip(names, images, strict=True)
        for i, image in enumerate(line)
    ]
    return image_tiles(tiles, (8, 8), label=label, shades=(low, high), columns=columns)

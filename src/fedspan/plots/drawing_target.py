"""Where a picture goes: an HTML page, an image file, or axes of matplotlib."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError, MissingPackageError
from fedspan.federation import RunRecord
from fedspan.report.markup import Html, esc, join
from fedspan.report.page import write_page

#: Ten colours that differ for most readers, also for those who see few of them (Okabe and Ito, and neighbours).
COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9"),
    *("#d55e00", "#f0e442", "#999999", "#332288", "#882255"),
)
IMAGES = (".png", ".svg", ".pdf", ".jpg")

Draw = Callable[[Any], None]
Page = Callable[[Path], None]


def drawn(draw: Draw, page: Page, path: str | os.PathLike[str] | None, ax: Any) -> Any:
    """Write the page to a path that ends in ``.html``, an image to another path, or draw on axes and return these."""
    if path is None:
        axes = new_axes(shown=True) if ax is None else ax
        draw(axes)
        return axes
    if ax is not None:
        raise InputError("path=... and ax=... exclude each other: a picture goes to a file, or to axes")
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"path={str(target)!r} can't be written: its folder does not exist")
    if target.suffix.lower() == ".html":
        page(target)
        return target
    if target.suffix.lower() not in IMAGES:
        raise InputError(f"path={str(target)!r} must end in .html for a page, or in {', '.join(IMAGES)} for an image")
    axes = new_axes()
    draw(axes)
    axes.figure.savefig(target, bbox_inches="tight")
    return target


def new_axes(*, shown: bool = False) -> Any:
    """Return new axes on a figure of its own, which a notebook shows at the end of its cell if `shown`."""
    try:
        from matplotlib import pyplot
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingPackageError(
            "pictures on axes need matplotlib: pip install '.[plots]' in a checkout, or a page: path='map.html'"
        ) from None
    make = pyplot.figure if shown else Figure
    return make(figsize=(7, 5), layout="constrained").subplots()


def write_plot(path: Path, title: str, *body: Html, script: str = "") -> None:
    """Write a page with a heading and the body."""
    write_page(path, title, Html(f"<h1>{esc(title)}</h1>{join(body)}"), script)


def caption(model: Any) -> str:
    """Return the remark that a model's sites were simulated, or an empty text."""
    record = getattr(model, "run_", None)
    return record.remark if isinstance(record, RunRecord) else ""


def categories(values: NDArray[Any]) -> list[tuple[str, NDArray[np.bool_]]]:
    """Return the distinct values as text, each with where it is."""
    texts = values.astype(str)
    return [(name, texts == name) for name in np.unique(texts)]

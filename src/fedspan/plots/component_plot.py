"""plot_components: the variance that principal components explain, and their largest loadings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from fedspan.errors import InputError
from fedspan.plots.drawing_target import caption, drawn, write_plot
from fedspan.report.charts.svg import charts
from fedspan.report.markup import note
from fedspan.report.models.component_pictures import MOST_COMPONENTS, MOST_FEATURES, explained_variance, loadings
from fedspan.report.models.picture import array_of, names_in, names_out, shown_names, steps_of


def plot_components(
    model: Any, *, path: str | os.PathLike[str] | None = None, ax: Any = None, title: str | None = None
) -> Any:
    """Draw the components of a fitted model, such as `FedPCA` or `FedPCADetector`.

    Parameters
    ----------
    model : estimator or pipeline
        Its last step has ``components_``.
    path, ax, title
        As of `plot_map`. A page also shows the variance that each component explains; pixels are drawn as images.

    Returns
    -------
    Path or matplotlib axes

    Examples
    --------
    >>> import fedspan as fs
    >>> rows = np.random.default_rng(0).normal(size=(40, 5))
    >>> len(fs.plot_components(fs.FedPCA(2).fit(rows)).get_yticks())
    5
    """
    names = None
    steps = steps_of(model)
    for step in steps[:-1]:
        names = names_out(step, names_in(step, names))
    last = steps[-1]
    names = names_in(last, names)
    components, ratio = array_of(last, "components_", 2), array_of(last, "explained_variance_ratio_", 1)
    if components is None:
        raise InputError(f"{type(last).__name__} has no components_ to draw: fit it, or use FedPCA")
    shown, remark = title or f"Components of {type(last).__name__}", caption(last)

    def draw(axes: Any) -> None:
        first = components[:MOST_COMPONENTS]
        largest = np.sort(np.argsort(-np.abs(first).max(axis=0), kind="stable")[:MOST_FEATURES])
        bound = float(np.abs(first).max()) or 1.0
        image = axes.imshow(first[:, largest].T, cmap="RdBu_r", vmin=-bound, vmax=bound, aspect="auto")
        features = shown_names(names, components.shape[1])
        shares = [""] * len(first) if ratio is None else [f"\n{share:.0%}" for share in ratio[: len(first)]]
        axes.set_xticks(range(len(first)), [f"{k + 1}{share}" for k, share in enumerate(shares)])
        axes.set_yticks(range(len(largest)), [features[j] for j in largest])
        axes.set_xlabel("component" + ("" if ratio is None else " and its share of the variance"))
        axes.set_title(f"{shown}\n{remark}" if remark else shown)
        axes.figure.colorbar(image, ax=axes, label="loading")

    def page(target: Path) -> None:
        pictures = [one for one in (explained_variance(last, names), loadings(last, names)) if one is not None]
        below = [note(remark)] if remark else []
        write_plot(target, shown, charts([one.figure() for one in pictures]), *below)

    return drawn(draw, page, path, ax)

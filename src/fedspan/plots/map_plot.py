"""plot_map: the rows of a map, or the first two coordinates of rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.plots.drawing_target import COLOURS, caption, categories, drawn, write_plot
from fedspan.report.models.map_pictures import MOST_POINTS, map_of
from fedspan.report.models.picture import names_in, pictures_of, steps_of
from fedspan.report.models.scatter_map import MOST_LABELS, Scatter, scatter_section
from fedspan.report.page import asset

NEW = "new"


def plot_map(
    model: Any,
    labels: Any = None,
    new: Any = None,
    *,
    path: str | os.PathLike[str] | None = None,
    ax: Any = None,
    title: str | None = None,
) -> Any:
    """Draw the map of a fitted model, such as `FedTSNE`, `FedUMAP` or `FedSpectralClustering`.

    Parameters
    ----------
    model : estimator or pipeline
        Its last step has a map of its rows, or computes coordinates, such as `FedPCA`: then `new` is drawn alone.
    labels : array, or dict of site to array, optional
        A label or a quantity for each row, by which the points are coloured. They are in the order of the model's rows,
        and those of `new` rows may follow. A model that was fitted on a table has its order. One that was fitted on a
        federation has the rows site by site: there, give the labels of each site,
        ``{name: labels[site == name] for name in fed.sites}``.
    new : table (m, d), optional
        More rows, which ``model.transform`` places on the map.
    path : path, optional
        ``"map.html"``: an interactive page that opens offline. ``.png``, ``.svg``, ``.pdf`` or ``.jpg``: an image.
    ax : matplotlib axes, optional
        Where to draw. Without `path` and `ax`, on new axes.
    title : str, optional

    Returns
    -------
    Path or matplotlib axes

    Examples
    --------
    >>> import fedspan as fs
    >>> rows = np.random.default_rng(0).normal(size=(40, 5))
    >>> axes = fs.plot_map(fs.FedPCA(2).fit(rows), new=rows)
    >>> axes.get_xlabel()
    'component 1'
    """
    steps = steps_of(model)
    scatter = _with_new(map_of(steps[-1]), model, new, labels)
    shown = title or f"Map by {type(steps[-1]).__name__}"
    remark = caption(steps[-1])

    def page(target: Path) -> None:
        beside = pictures_of(steps[-1], names_in(steps[-1], None), beside_map=True)
        write_plot(
            target, shown, scatter_section(scatter, beside, remark), script=asset("points.js") + asset("scatter.js")
        )

    return drawn(lambda axes: _draw(axes, scatter, shown, remark), page, path, ax)


def _with_new(found: Scatter | None, model: Any, new: Any, labels: Any) -> Scatter:
    """Return the points of a map and of new rows, with their labels."""
    placed = None if new is None else _placed(model, new)
    if found is None and placed is None:
        raise InputError(
            f"{type(steps_of(model)[-1]).__name__} keeps no map of its rows: give rows to draw with new=..., or use a "
            "model with a map, such as FedUMAP"
        )
    old = 0 if found is None else len(steps_of(model)[-1].row_sites_)
    if isinstance(labels, Mapping):
        labels = _by_site(labels, [] if found is None else _site_of_each(steps_of(model)[-1]))
    given = _labels(labels, old, 0 if placed is None else len(placed))
    if found is None:
        assert placed is not None
        part = _every(len(placed))
        rows, labels = np.arange(len(placed))[part], None if given is None else given[part]
        none = np.full(len(rows), NEW)
        return Scatter(placed[part], none, rows, labels, "component 1", "component 2", added=len(rows))
    old_labels = None if given is None else given[:old][_every(old)]
    if placed is None:
        return replace(found, labels=old_labels)
    part = _every(len(placed))
    added = len(placed[part])
    new_labels = None if given is None else given[old:][part] if len(given) > old else np.full(added, NEW)
    clusters = None
    if found.clusters is not None:
        clusters = np.concatenate([found.clusters.astype(str), np.full(added, NEW)])
    return replace(
        found,
        points=np.concatenate([found.points, placed[part]]),
        sites=np.concatenate([found.sites.astype(str), np.full(added, NEW)]),
        rows=np.concatenate([found.rows, np.arange(len(placed))[part]]),
        labels=None if old_labels is None or new_labels is None else _joined(old_labels, new_labels),
        clusters=clusters,
        added=added,
    )


def _joined(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Return labels one after the other: as numbers where both are, else as text."""
    numeric = all(values.dtype.kind in "fiu" for values in (old, new))
    return np.concatenate([old, new]) if numeric else np.concatenate([old.astype(str), new.astype(str)])


def _every(rows: int) -> slice:
    return slice(None, None, max(1, -(-rows // MOST_POINTS)))


def _site_of_each(model: Any) -> list[str]:
    return [model.sites_[place] for place in model.row_sites_]


def _by_site(labels: Mapping[Any, Any], row_sites: Sequence[str]) -> NDArray[Any]:
    """Return the labels of all rows from those of each site; sites that are not on the map may have some."""
    wanted = Counter(row_sites)
    own = {str(name): np.asarray(given) for name, given in labels.items() if str(name) in wanted}
    counts = {name: len(given) for name, given in own.items()}
    if counts != wanted:
        raise InputError(f"labels has rows by site {counts}, and the map has {dict(wanted)}: give those of each site")
    given = np.concatenate([own[name] for name in sorted(own)])
    found = np.empty_like(given)
    found[np.argsort(np.array(row_sites), kind="stable")] = given
    return found


def _labels(labels: Any, old: int, new: int) -> NDArray[Any] | None:
    if labels is None:
        return None
    given = np.asarray(labels)
    if given.dtype == object:
        given = given.astype(str)
    if given.shape not in ((old,), (old + new,)):
        more = f", or {old + new} with those of the new rows" if new and old else ""
        raise InputError(f"labels has the shape {given.shape}, and the map has {old or new} rows{more}")
    return given


def _placed(model: Any, new: Any) -> NDArray[Any]:
    """Return the positions of new rows."""
    if not hasattr(model, "transform"):
        raise InputError(f"{type(model).__name__} has no transform, and can't place new rows")
    places = np.asarray(model.transform(new), dtype=np.float64)
    if places.ndim != 2 or places.shape[1] < 2:
        raise InputError(f"the model has {places.shape[1]} coordinates of a row, and a picture needs two")
    return places[:, :2]


def _draw(axes: Any, scatter: Scatter, title: str, remark: str) -> None:
    points = np.asarray(scatter.points)
    values = scatter.labels if scatter.labels is not None else scatter.clusters
    values = scatter.sites if values is None else values
    size = float(np.clip(4000 / max(len(points), 1), 1.0, 20.0))
    if values.dtype.kind == "f" and len(np.unique(values)) > MOST_LABELS:
        drawn_at = axes.scatter(*points.T, c=values, s=size, cmap="viridis", linewidths=0)
        axes.figure.colorbar(drawn_at, ax=axes)
    else:
        for number, (name, own) in enumerate(categories(values)):
            axes.scatter(*points[own].T, s=size, color=COLOURS[number % len(COLOURS)], label=name, linewidths=0)
        if len(axes.collections) <= MOST_LABELS:
            axes.legend(markerscale=2, frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    if 0 < scatter.added < len(points):
        axes.scatter(*points[scatter.is_new].T, s=30, marker="+", color="black", linewidths=0.8)
    if scatter.x_label or scatter.y_label:
        axes.set(xlabel=scatter.x_label, ylabel=scatter.y_label)
    else:
        axes.set(xticks=[], yticks=[])
    axes.set_title(f"{title}\n{remark}" if remark else title)

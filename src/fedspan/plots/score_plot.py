"""plot_scores: how a detector scores training rows and new rows, and where its threshold is."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.plots.drawing_target import COLOURS, caption, categories, drawn, write_plot
from fedspan.report.charts.line_charts import histogram
from fedspan.report.charts.svg import charts
from fedspan.report.markup import note, number, percent, plural
from fedspan.report.models.detector_pictures import FARTHEST, training_scores
from fedspan.report.models.labelled_rows import Judged, is_detector, roc
from fedspan.report.models.picture import Picture, steps_of

_PARTS = 40


def plot_scores(
    model: Any,
    new: Any = None,
    labels: Any = None,
    *,
    path: str | os.PathLike[str] | None = None,
    ax: Any = None,
    title: str | None = None,
) -> Any:
    """Draw the anomaly scores of a fitted detector: of its training rows by their counts, and of new rows.

    Parameters
    ----------
    model : detector or pipeline
        Higher anomaly scores, minus ``score_samples``, are less normal.
    new : table (m, d), optional
        Rows to be scored.
    labels : array (m,), optional
        A label for each new row. Of two, a page also shows the ROC curve if they are 0 and 1 (or False and True).
    path, ax, title
        As of `plot_map`.

    Returns
    -------
    Path or matplotlib axes

    Examples
    --------
    >>> import fedspan as fs
    >>> rows = np.random.default_rng(0).normal(size=(40, 5))
    >>> fs.plot_scores(fs.FedPCADetector(2).fit(rows), rows).get_xlabel()
    'anomaly score'
    """
    last = steps_of(model)[-1]
    if not is_detector(last):
        raise InputError(f"{type(last).__name__} is not a fitted detector: it has no threshold to draw")
    if labels is not None and new is None:
        raise InputError("labels=... are those of new rows: give these with new=...")
    scores = None if new is None else -np.asarray(model.score_samples(new), dtype=np.float64)
    groups = _groups(scores, labels)
    cut = -float(last.offset_)
    shown, remark = title or f"Scores by {type(last).__name__}", caption(last)

    def draw(axes: Any) -> None:
        levels = np.asarray(last.score_levels_, dtype=np.float64)
        far = _far(cut, levels[:, 0])
        edges, shares = levels[(levels[:, 0] <= far) & (np.diff(levels[:, 0], prepend=-np.inf) > 0)].T
        if len(edges) > 1:
            axes.stairs(np.diff(shares) / np.diff(edges), edges, fill=True, color="#bbbbbb", label="training rows")
        parts = np.linspace(0.0 if scores is None else min(0.0, float(scores.min(initial=0.0))), far, _PARTS)
        for k, (name, values) in enumerate(groups):
            axes.hist(
                np.minimum(values, far),
                parts,
                density=True,
                histtype="step",
                color=COLOURS[k % len(COLOURS)],
                label=name,
            )
        axes.axvline(cut, color="black", linestyle="--", label=f"threshold {cut:.3g}")
        axes.set(xlabel="anomaly score", yticks=[], title=f"{shown}\n{remark}" if remark else shown)
        axes.legend(frameon=False, fontsize="small")

    def page(target: Path) -> None:
        found = [training_scores(last), *(_histogram(name, values, cut) for name, values in groups)]
        flags = None if labels is None else np.asarray(labels)
        if flags is not None and flags.dtype.kind in "buif" and set(np.unique(flags)) == {0, 1}:
            scored = SimpleNamespace(score_samples=model.score_samples, offset_=-cut)  # also for a pipeline
            found.insert(0, roc(scored, Judged(new, flags)))
        below = [note(remark)] if remark else []
        write_plot(target, shown, charts([one.figure() for one in found if one is not None]), *below)

    return drawn(draw, page, path, ax)


def _groups(scores: NDArray[np.float64] | None, labels: Any) -> list[tuple[str, NDArray[np.float64]]]:
    """Return the new rows' scores by label."""
    if scores is None:
        return []
    if not np.isfinite(scores).all():
        raise InputError(f"{int(np.sum(~np.isfinite(scores)))} new rows have no finite score: leave them out")
    if labels is None:
        return [("new rows", scores)]
    given = np.asarray(labels)
    if given.shape != scores.shape:
        raise InputError(f"labels has the shape {given.shape}, and there are {len(scores)} new rows")
    return [(f"new rows, {name}", scores[own]) for name, own in categories(given)]


def _far(cut: float, edges: NDArray[np.float64]) -> float:
    return FARTHEST * cut if cut > 0 else float(edges.max(initial=1.0))


def _histogram(name: str, values: NDArray[np.float64], cut: float) -> Picture | None:
    """Draw the scores of some new rows; those far beyond the threshold are counted only."""
    near = np.sort(values[values <= _far(cut, values)])
    flagged = f"{percent(float(np.mean(values > cut)))} of {plural(len(values), 'row')} above the threshold."
    if len(np.unique(near)) < 2:
        return None
    edges = np.linspace(near[0], near[-1], _PARTS)
    shares = np.searchsorted(near, edges, side="right") / len(values)
    drawn_scores = histogram(
        edges,
        np.concatenate([[0.0], shares[1:]]),
        label=f"distribution of the scores of {name}",
        x_label="anomaly score",
        mark=cut,
        marked=f"threshold {number(cut, 3)}",
    )
    beyond = len(values) - len(near)
    return Picture(f"Scores of {name}", drawn_scores, flagged + (f" {beyond} far beyond, not drawn." if beyond else ""))

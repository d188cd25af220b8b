"""Labelled rows that were held back to evaluate a detector, and its ROC curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score, roc_curve

from fedspan.errors import InputError
from fedspan.report.charts.line_charts import Line, line_chart, thinned
from fedspan.report.markup import number, percent, plural
from fedspan.report.models.picture import Picture


@dataclass(frozen=True, eq=False)
class Judged:
    """Labelled rows to evaluate a detector, which had no part in its training.

    Parameters
    ----------
    X : table (n, d)
        With the columns that the first of the models takes.
    outlier : array of bool (n,)
        Which of the rows are outliers. There must be some of both kinds.

    Examples
    --------
    >>> Judged([[0.0], [9.0]], [False, True]).outlier
    array([False,  True])
    """

    X: Any
    outlier: NDArray[np.bool_]

    def __post_init__(self) -> None:
        outlier = np.asarray(self.outlier)
        rows = np.shape(self.X)[0] if np.ndim(self.X) == 2 else -1
        if outlier.shape != (rows,) or not np.isin(outlier, (0, 1)).all():
            raise InputError(
                f"outlier has the shape {outlier.shape}, and must be True or False for each of the rows of X, which "
                f"has the shape {np.shape(self.X)}"
            )
        object.__setattr__(self, "outlier", outlier.astype(bool))
        if self.outlier.all() or not self.outlier.any():
            raise InputError("outlier must have both kinds of rows, normal ones and outliers, to evaluate a detector")


def is_detector(model: Any) -> bool:
    """Return whether a model scores rows and has a threshold of its own."""
    return callable(getattr(model, "score_samples", None)) and isinstance(getattr(model, "offset_", None), float)


def roc(model: Any, judged: Judged) -> Picture:
    """Draw the ROC curve of a detector, with the point of the threshold that it learned without these labels."""
    scores = -np.asarray(model.score_samples(judged.X), dtype=np.float64)
    if not np.isfinite(scores).all():
        raise InputError(f"{int(np.sum(~np.isfinite(scores)))} labelled rows have no finite score: leave them out")
    alarm = scores > -model.offset_
    false, true = float(alarm[~judged.outlier].mean()), float(alarm[judged.outlier].mean())
    x, y, _ = roc_curve(judged.outlier, scores)
    lines = [
        Line("by chance", [0.0, 1.0], [0.0, 1.0], 3),
        Line("every threshold", *thinned(x.tolist(), y.tolist()), colour=0),
        Line("the learned threshold", [false], [true], 6),
    ]
    chart = line_chart(
        lines, label="ROC curve", x_label="share of normal rows flagged; up: of outliers found", zero=True, large=2
    )
    outliers = int(judged.outlier.sum())
    remark = (
        f"The learned threshold finds {percent(true)} of {plural(outliers, 'outlier')} and flags {percent(false)} of "
        f"{plural(len(alarm) - outliers, 'normal row')}. Area under the curve: "
        f"{number(float(roc_auc_score(judged.outlier, scores)), 4)}. The labels were not used to choose it."
    )
    return Picture("ROC at the learned threshold", chart, remark, [(0, "every threshold"), (6, "the learned one")])

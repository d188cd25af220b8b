"""Pictures of regressions: coefficients with their intervals, and residuals."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.arrays import Matrix
from fedspan.report.charts.count_bars import count_bars
from fedspan.report.charts.forest_chart import forest_chart
from fedspan.report.markup import number, percent
from fedspan.report.models.picture import Names, Picture, picture, shown_names

MOST_ROWS = 30


@picture(conf_int_=2)
def coefficients(model: Any, names: Names, ends: Matrix) -> Picture | None:
    """Draw the coefficients of features with their intervals, without the intercept."""
    coef = np.ravel(np.asarray(getattr(model, "coef_", ()), dtype=np.float64))
    if not len(coef) or len(ends) < len(coef):
        return None
    own = _features(model, names, len(coef))
    rows = [(float(b), float(pair[0]), float(pair[1])) for b, pair in zip(coef, ends[-len(coef) :], strict=True)]
    return _picture(model, "Coefficients", own, rows)


@picture(conf_int_=3)
def coefficients_by_class(model: Any, names: Names, ends: Matrix) -> Picture | None:
    """Draw the coefficients of each class relative to the first."""
    coef = np.asarray(model.coef_, dtype=np.float64)
    classes: Any = getattr(model, "classes_", ())
    if coef.ndim != 2 or len(classes) != len(coef) + 1:
        return None
    features = _features(model, names, coef.shape[1])
    own = [f"{name}: {label}" for label in classes[1:] for name in features]
    pairs = ends[:, -coef.shape[1] :].reshape(-1, 2)
    rows = [(float(b), float(pair[0]), float(pair[1])) for b, pair in zip(coef.ravel(), pairs, strict=True)]
    return _picture(model, f"Coefficients relative to {classes[0]}", own, rows)


@picture(residual_edges_=1, residual_counts_=1)
def residuals(model: Any, names: Names, edges: Matrix, counts: Matrix) -> Picture:
    """Draw the numbers of residuals between edges."""
    ends = (float(counts[0]), float(counts[-1]))
    chart = count_bars(edges, counts[1:-1], ends, label="numbers of residuals", x_label="residual, in deviations")
    remark = "Pearson's residuals. Grey bars are those beyond the edges, orange dashes are suppressed counts."
    return Picture("Residuals", chart, remark)


@picture(residual_means_=2)
def residuals_along(model: Any, names: Names, means: Matrix) -> Picture | None:
    """Draw the mean residual by bin of the linear predictor, with twice its standard error."""
    known = means[np.isfinite(means).all(axis=1)]
    if not len(known):
        return None
    rows = [(float(m), float(m - 2 * e), float(m + 2 * e)) for _, m, e in known]
    places = [number(float(at), 3) for at in known[:, 0]]
    chart = forest_chart(places, rows, label="mean residuals along the linear predictor", at=0.0)
    remark = "Means, with twice their standard errors, by bin of the linear predictor. Right models have them around 0."
    return Picture("Residuals along the predictor", chart, remark)


def _picture(model: Any, title: str, names: list[str], rows: list[tuple[float, float, float]]) -> Picture:
    shown = rows[:MOST_ROWS]
    chart = forest_chart(names[:MOST_ROWS], shown, label="coefficients with their intervals", at=0.0)
    share = percent(float(getattr(model, "confidence", 0.95)))
    remark = f"Estimates with intervals of {share}, in the units of the columns."
    remark += f" The first {MOST_ROWS} of {len(rows)} are shown." if len(rows) > MOST_ROWS else ""
    return Picture(title, chart, remark)


def _features(model: Any, names: Names, count: int) -> list[str]:
    """Return the names of the features with coefficients: all but the offset."""
    if names is None or not hasattr(model, "coefficient_names"):
        return list(shown_names(names, count))
    offset = getattr(model, "offset", None)
    own = str(names[offset]) if isinstance(offset, int) else offset
    return list(shown_names([name for name in model.coefficient_names(names) if name != own], count))

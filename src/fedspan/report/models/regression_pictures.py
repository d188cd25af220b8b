"""Pictures of regressions: coefficients with their intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.report.charts.forest_chart import forest_chart
from fedspan.report.markup import percent
from fedspan.report.models.picture import Matrix, Names, Picture, picture, shown_names

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

"""Pictures of what prepares tables: a scaler's means and scales, an encoder's columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.report.markup import count, few, number, table
from fedspan.report.models.picture import Names, Picture, array_of, names_out, picture, shown_names

MOST_FEATURES = 12
MOST_COLUMNS = 40
MOST_NAMES = 8


@picture()
def centre_and_scale(model: Any, names: Names) -> Picture | None:
    """List the mean and scale of the first features of a scaler (``mean_`` and ``scale_``, either may be None)."""
    if not (hasattr(model, "mean_") and hasattr(model, "scale_")) or hasattr(model, "components_"):
        return None
    columns = {name: array_of(model, f"{name}_", 1) for name in ("mean", "scale")}
    given = {name: values for name, values in columns.items() if values is not None}
    if not given:
        return None
    total = min(map(len, given.values()))
    shown = shown_names(names if total == getattr(model, "n_features_in_", total) else names_out(model, names), total)
    rows = [[shown[j], *(number(float(v[j])) for v in given.values())] for j in range(min(total, MOST_FEATURES))]
    remark = f"The first {MOST_FEATURES} of {count(total)} features." if total > MOST_FEATURES else ""
    return Picture("Centre and scale", table(["feature", *given], rows), remark)


@picture()
def encoded_columns(model: Any, names: Names) -> Picture | None:
    """List how an encoder treats each column of a table (``categories_``, ``log_``, ``missing_``)."""
    categories, log, missing = (getattr(model, name, None) for name in ("categories_", "log_", "missing_"))
    if not isinstance(categories, dict) or log is None or missing is None:
        return None
    columns = names if names is not None and len(names) == len(log) else [f"x{j}" for j in range(len(log))]
    rows = []
    for j, column in enumerate(columns[:MOST_COLUMNS]):
        kept = categories.get(column)
        how = "number, its logarithm" if log[j] else "number"
        if kept is not None:
            how = f"text: {few((name or '(missing)' for name in kept), MOST_NAMES)}"
        rows.append([column, f"{how}; a column marks missing cells" if missing[j] else how])
    remark = f"{count(len(log))} columns become {count(len(np.atleast_1d(getattr(model, 'mean_', ()))))}."
    remark += f" The first {MOST_COLUMNS} are shown." if len(log) > MOST_COLUMNS else ""
    return Picture("Columns", table(["column", "how it is encoded"], rows, texts=2), remark)

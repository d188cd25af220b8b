"""The picture of an encoder: what becomes of each column of a mixed table."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.report.markup import count, table
from fedspan.report.models.picture import Names, Picture

MOST_COLUMNS = 40
MOST_NAMES = 8


def encoded_columns(model: Any, names: Names = None) -> Picture | None:
    """List how each column of a table is encoded (``categories_``, ``log_``, ``missing_``)."""
    categories, log, missing = (getattr(model, name, None) for name in ("categories_", "log_", "missing_"))
    if not isinstance(categories, dict) or log is None or missing is None:
        return None
    columns = names if names is not None and len(names) == len(log) else [f"x{j}" for j in range(len(log))]
    rows = []
    for j, column in enumerate(columns[:MOST_COLUMNS]):
        kept = categories.get(column)
        if kept is None:
            how = "number, its logarithm" if log[j] else "number"
        else:
            more = f" and {count(len(kept) - MOST_NAMES)} more" if len(kept) > MOST_NAMES else ""
            how = f"text: {', '.join(name or '(missing)' for name in kept[:MOST_NAMES])}{more}"
        rows.append([column, f"{how}; a column tells missing cells" if missing[j] else how])
    made = len(np.atleast_1d(getattr(model, "mean_", ())))
    remark = f"{count(len(log))} columns become {count(made)}."
    if len(log) > MOST_COLUMNS:
        remark += f" The first {MOST_COLUMNS} are shown."
    return Picture("Columns", table(["column", "how it is encoded"], rows, texts=2), remark)

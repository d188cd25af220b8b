"""Pictures of regressions of many tasks: what they share, and how well each fits."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.arrays import Matrix
from fedspan.report.charts.line_charts import bar_chart
from fedspan.report.markup import count, number, pairs, plural
from fedspan.report.models.component_pictures import signed_vectors
from fedspan.report.models.picture import Names, Picture, picture

MOST_TASKS = 40


@picture(representation_=2)
def representation(model: Any, names: Names, basis: Matrix) -> Picture:
    """Draw the representation (n, r) that all tasks share."""
    directions = [str(i + 1) for i in range(basis.shape[1])]
    return signed_vectors("Representation that all tasks share", basis.T, names, directions, "entries")


@picture(task_errors_=1)
def task_errors(model: Any, names: Names, errors: Matrix) -> Picture | None:
    """Draw the root mean squared residual of each task (``tasks_``), the worst first."""
    tasks = getattr(model, "tasks_", None)
    known = np.flatnonzero(np.isfinite(errors))
    if tasks is None or not len(known):
        return None
    worst = known[np.argsort(-errors[known], kind="stable")]
    shown = worst[:MOST_TASKS]
    chart = bar_chart(
        errors[shown].tolist(),
        [str(tasks[k]) for k in shown],
        label="root mean squared residual by task",
        x_label="task, the worst first",
    )
    remark = f"Residuals of the tasks' own rows, per degree of freedom; the median of {plural(len(known), 'task')} is "
    remark += number(float(np.median(errors[known])), 3)
    remark += f"; {len(shown)} are shown" if len(shown) < len(worst) else ""
    missing = len(errors) - len(known)
    remark += f"; {count(missing)} had no row to spare." if missing else "."
    return Picture("Error of each task", chart, remark)


@picture(representation_=2, noise_variance_=0, representation_error_=0)
def for_a_new_task(model: Any, names: Names, basis: Matrix, noise: Matrix, left: Matrix) -> Picture:
    """List what is known before a row of a new task is seen."""
    tasks = getattr(model, "tasks_", None)
    rows = [
        ("tasks", "their coefficients stayed at their sites" if tasks is None else count(len(tasks))),
        ("features, of which a task uses", f"{count(basis.shape[0])}, {count(basis.shape[1])} directions"),
        ("rows that a new task should have", count(2 * basis.shape[1])),
        ("deviation of the noise", number(float(noise) ** 0.5, 3)),
        ("squared error that the representation leaves in a task", number(float(left), 3)),
    ]
    return Picture("For a new task", pairs(rows))

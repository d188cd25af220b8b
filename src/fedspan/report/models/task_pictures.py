"""Pictures of regressions of many tasks: what they share, and how well each fits."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.report.charts.line_charts import bar_chart
from fedspan.report.markup import count, number, pairs, plural
from fedspan.report.models.model_attributes import array_of
from fedspan.report.models.picture import Names, Picture
from fedspan.report.models.vectors import signed_vectors

MOST_TASKS = 40


def representation(model: Any, names: Names = None) -> Picture | None:
    """Draw the representation that all tasks share (``representation_`` (n, r))."""
    basis = array_of(model, "representation_", 2)
    if basis is None:
        return None
    directions = [str(i + 1) for i in range(basis.shape[1])]
    return signed_vectors("Representation that all tasks share", basis.T, names, directions, "entries")


def task_errors(model: Any, names: Names = None) -> Picture | None:
    """Draw the root mean squared residual of each task (``task_errors_``, ``tasks_``), the worst first."""
    errors, tasks = array_of(model, "task_errors_", 1), getattr(model, "tasks_", None)
    if errors is None or tasks is None:
        return None
    known = np.flatnonzero(np.isfinite(errors))
    if not len(known):
        return None
    worst = known[np.argsort(-errors[known], kind="stable")]
    shown = worst[:MOST_TASKS]
    chart = bar_chart(
        errors[shown].tolist(),
        [str(tasks[k]) for k in shown],
        label="root mean squared residual by task",
        x_label="task, the worst first",
    )
    said = f"Residuals of the tasks' own rows, per degree of freedom; {number(float(np.median(errors[known])), 3)} in "
    said += f"the middle of {plural(len(known), 'task')}"
    said += f", of which {len(shown)} are shown" if len(shown) < len(worst) else ""
    missing = len(errors) - len(known)
    return Picture("Error of each task", chart, said + (f"; {count(missing)} had no row to spare." if missing else "."))


def of_a_new_task(model: Any, names: Names = None) -> Picture | None:
    """List what is known before a row of a new task is seen (``noise_variance_``, ``representation_error_``)."""
    basis = array_of(model, "representation_", 2)
    values = [getattr(model, name, None) for name in ("noise_variance_", "representation_error_")]
    if basis is None or not all(isinstance(value, float) for value in values):
        return None
    noise, off = (float(value) for value in values if value is not None)
    tasks = getattr(model, "tasks_", None)
    said = [
        ("tasks", "their coefficients stayed at their sites" if tasks is None else count(len(tasks))),
        ("features, of which a task uses", f"{count(basis.shape[0])}, {count(basis.shape[1])} directions"),
        ("rows that a new task needs, advisably", count(2 * basis.shape[1])),
        ("deviation of the noise", number(noise**0.5, 3)),
        ("squared error that the representation leaves in a task", number(off, 3)),
    ]
    return Picture("For a new task", pairs(said))

"""Pictures of survival models: curves, and the baseline of Cox regression."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.arrays import Matrix
from fedspan.report.charts.line_charts import Line, line_chart, thinned
from fedspan.report.markup import count, number, percent
from fedspan.report.models.picture import Names, Picture, picture

MOST_CURVES = 8


@picture(times_=1, survival_function_=1)
def curve(model: Any, names: Names, times: Matrix, survival: Matrix) -> Picture:
    """Draw one survival curve with its band."""
    bands = np.asarray(model.confidence_interval_, dtype=np.float64)
    lines = [_steps("survival", times, survival, 0), _steps("lower end", times, bands[:, 0], 1)]
    lines.append(_steps("upper end", times, bands[:, 1], 1))
    share = percent(float(getattr(model, "confidence", 0.95)))
    remark = f"{count(int(model.n_obs_))} rows, {count(int(np.sum(model.events_)))} events; "
    remark += _median(float(model.median_survival_time_))
    return Picture("Survival", _chart(lines), remark, ((0, "survival"), (1, f"band of {share}")))


@picture(times_=1, survival_function_=2)
def curves(model: Any, names: Names, times: Matrix, survival: Matrix) -> Picture:
    """Draw the survival curves of groups."""
    groups = [str(name) for name in model.groups_]
    shown = list(zip(groups, survival, strict=True))[:MOST_CURVES]
    lines = [_steps(name, times, values, k) for k, (name, values) in enumerate(shown)]
    medians = np.asarray(model.median_survival_time_, dtype=np.float64)
    remark = "; ".join(
        f"{name}: {_median(float(m))}" for name, m in list(zip(groups, medians, strict=True))[:MOST_CURVES]
    )
    p = float(getattr(model, "log_rank_p_value_", np.nan))
    remark += f" Log-rank test: p = {number(p, 3)}." if np.isfinite(p) else ""
    remark += f" The first {MOST_CURVES} of {len(groups)} groups are shown." if len(groups) > MOST_CURVES else ""
    return Picture("Survival by group", _chart(lines), remark, [(k, name) for k, (name, _) in enumerate(shown)])


@picture(times_=1, baseline_survival_=1)
def baseline(model: Any, names: Names, times: Matrix, survival: Matrix) -> Picture:
    """Draw the survival of a row at the means of the columns."""
    remark = "Of a row at the means of all columns; its hazard is multiplied by the hazard ratios of other rows."
    return Picture("Baseline survival", _chart([_steps("survival", times, survival, 0)]), remark)


def _steps(name: str, times: Matrix, values: Matrix, colour: int) -> Line:
    """Return a curve that falls in steps and begins at 1."""
    first = min(0.0, float(times[0]))
    x = np.concatenate([[first], np.repeat(times, 2)])
    y = np.concatenate([[1.0], np.column_stack([np.concatenate([[1.0], values[:-1]]), values]).ravel()])
    return Line(name, *thinned(x.tolist(), y.tolist()), colour)


def _chart(lines: list[Line]) -> Any:
    return line_chart(lines, label="share of rows without event, by time", x_label="time", zero=True, show=percent)


def _median(value: float) -> str:
    return f"median {number(value)}." if np.isfinite(value) else "more than half have no event."

"""Checks and warnings of FedFewShotRegressor, before it learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d

from fedspan.aggregation.safe_arithmetic import lower_median
from fedspan.base import check_aggregator
from fedspan.checks import as_table, held, one_of, real_number, true_or_false, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.few_shot.new_task import checked_ridge
from fedspan.few_shot.parts.task_rows import EXTREME, Labels, is_extreme, positions, task_labels
from fedspan.few_shot.parts.tasks import Tasks, listed, warn

#: The parameters of the resilient protocol alone.
RESILIENT = ("init", "groups", "output", "threshold")
#: Parameters without effect under a choice: (parameter, value) and the parameters that must keep their defaults.
_UNUSED: tuple[tuple[str, object, tuple[str, ...]], ...] = (
    ("aggregator", None, RESILIENT),
    ("init", "subspace_median", ("groups", "power_iterations")),
    ("init", "random", ("groups", "power_iterations", "output", "truncation")),
    ("share_coefs", False, ("ridge",)),
)
#: A share of y's square in the means of the tasks beyond which an intercept is missing.
_MUCH_OFFSET = 0.5
#: A direction with this many times the mean second moment makes gradient descent slow in all others.
_VERY_UNEVEN = 20.0
#: A task whose targets have this many times the mean square of a typical one's is in other units.
_OTHER_UNITS = 100.0


def check_parameters(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse parameters that are out of range or have no effect, before the first call."""
    check_aggregator(given["aggregator"])
    for name in ("fit_intercept", "share_coefs", "sample_split"):
        true_or_false(name, given[name])
    checked_ridge(given["ridge"])
    for name, least in {"iterations": 0, "power_iterations": 1, "max_rank": 1}.items():
        whole_number(name, given[name], least)
    if given["groups"] is not None:
        whole_number("groups", given["groups"], 1)
    if not isinstance(given["rank"], str) or given["rank"] != "auto":
        whole_number("rank", given["rank"], 1, why=" or 'auto'")
    real_number("step_size", given["step_size"], above=0)
    real_number("truncation", given["truncation"], above=0)
    real_number("tol", given["tol"], least=0)
    if given["threshold"] is not None:
        real_number("threshold", given["threshold"], least=1, why=", in units of the median norm")
    one_of("init", given["init"], ("auto", "subspace_median", "median_of_means", "random"))
    one_of("output", given["output"], ("eigenspace", "node", "trimmed"))
    if given["init"] == "random" and given["rank"] == "auto":
        raise InputError("rank='auto' needs a spectral start, which init='random' is not: give a rank")
    _refuse_unused(given, defaults)


def _refuse_unused(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse parameters that were set and have no effect."""
    rank = [("rank", given["rank"], ("max_rank",))] if given["rank"] != "auto" else []
    for choice, value, names in (*_UNUSED, *rank):
        for name in names:
            if given[choice] == value and given[name] != defaults[name]:
                raise InputError(f"{name}={given[name]!r} does nothing with {choice}={value!r}: leave it out")


def checked_columns(X: Any, y: Any, task: Any, who: str) -> tuple[NDArray[Any], Labels | None]:
    """Return the targets and tasks of a table's rows as the sites get them, or refuse them without printing values."""
    if y is None:
        raise InputError(f"This {who} requires y to be passed, but the target y is None.")
    y = held("y", y)
    if np.asarray(y).dtype.kind == "c":  # scikit-learn's check would print it
        raise InputError("Complex data not supported: y must hold a real number for each row")
    target = column_or_1d(y, warn=True)
    if target.dtype.kind not in "biuf":
        refusal = InputError(f"y is of type {target.dtype}, and must hold a real number for each row")
        if any(isinstance(value, complex | np.complexfloating) for value in target.ravel()):
            raise refusal
        try:
            target = target.astype(np.float64)
        except (TypeError, ValueError):
            raise refusal from None
    assert_all_finite(target, input_name="y")
    check_consistent_length(as_table(X), target, *[] if task is None else [task])
    return target, None if task is None else task_labels(task, "task")


def task_numbers(task: Any, tasks: Labels, rows: int) -> NDArray[np.intp]:
    """Return the number of the task of each row (rows,), among the `tasks` of a model."""
    if task is None:
        if len(tasks) != 1:
            raise InputError(f"task=... is needed: this model has {len(tasks)} tasks")
        return np.zeros(rows, dtype=np.intp)
    one = np.ndim(task) == 0
    labels = task_labels([task] if one else task, "task")
    if not one and len(labels) != rows:
        raise InputError(f"task has {len(labels)} labels, and must have one for each of the {rows} rows")
    at, known = positions(labels, tasks)
    if not known.all():
        missing = labels[~known][0]
        raise InputError(f"task {missing!s} is not among the {len(tasks)} tasks of this model: adapt learns new ones")
    return np.broadcast_to(at, (rows,)) if one else at


@step("few_shot.bad_targets", reveals="sums", moments=True)
def local_bad_targets(site: Site) -> dict[str, Any]:
    """Leaves the site: how many of its targets are not finite, and whether it has none or only extreme ones."""
    if site.y is None or site.y.dtype.kind not in "biuf":
        return {"bad": 0, "without": 1, "extreme": 0}
    y = np.asarray(site.y, dtype=np.float64)
    return {"bad": int(np.sum(~np.isfinite(y))), "without": 0, "extreme": int(is_extreme(y[np.isfinite(y)]))}


def refuse_bad_targets(fed: Federation) -> None:
    """Refuse targets that are missing, not finite or extreme: one round of sums."""
    total = fed.sum(local_bad_targets)
    of = f"of {len(total.sites)} sites have"
    if total["without"]:
        raise InputError(f"{total['without']} {of} no targets: y must hold a number for each row")
    if total["bad"]:
        raise InputError(f"y contains NaN or infinity: {total['bad']} values at the sites; drop these rows first")
    if total["extreme"]:
        bounds = f"beyond {EXTREME:g}, or all of them below {1 / EXTREME:g}"
        raise InputError(f"{total['extreme']} {of} targets {bounds}: rescale y")


def warn_of_data(tasks: Tasks, intercept: bool, resilient: bool) -> None:
    """Warn where the data of a typical site do not suit the model, or, with sums alone, the targets of any site."""
    middle = lower_median(np.array(list(tasks.middle.values())))
    largest = np.array(list(tasks.largest.values()))
    times = (lower_median(largest) if resilient else float(largest.max())) / middle if middle > 0.0 else 1.0
    if times > _OTHER_UNITS:
        warn(
            f"the targets' mean square is {times:.0e} times as large in the largest task as in a typical one, and "
            "other tasks hardly count: scale the targets of each task, where they differ in units"
        )
    offset, uneven = (float(np.median(list(values.values()))) for values in (tasks.offset, tasks.uneven))
    if not intercept and offset > _MUCH_OFFSET:
        warn(f"{offset:.0%} of the targets' square lies in the means of the tasks: set fit_intercept, or centre them")
    if uneven > _VERY_UNEVEN:
        warn(
            f"the features are far from white: one direction has {uneven:.0f} times the mean square, which slows "
            "learning in the others; put FedPCA and FedStandardScaler before this"
        )


def warn_of_few_rows(tasks: Tasks, unknowns: int, ridge: float, *, pooled: bool, chosen: bool) -> None:
    """Warn of tasks with so few rows that least squares amplifies the noise."""
    rows = np.zeros(len(tasks.labels), dtype=np.int64)
    for at, counts in tasks.held.values():
        (np.add if pooled else np.maximum).at(rows, at, counts)
    few = [str(label) for label in tasks.labels[rows < 2 * unknowns]]
    if not few or (chosen and ridge > 0.0):
        return
    shrunk = f"they are shrunk by a ridge of {ridge:.2g} (ridge='auto')"
    amplified = "noise is amplified in them: take ridge='auto'"
    warn(
        f"{len(few)} of {len(rows)} tasks have fewer than {2 * unknowns} rows{'' if pooled else ' at any site'} for "
        f"{unknowns} unknowns: {shrunk if ridge > 0.0 else amplified}; these are {listed(few)}"
    )

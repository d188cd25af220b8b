"""What FedFewShotRegressor refuses and warns of before it learns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d

from fedspan.aggregation.safe_arithmetic import lower_median
from fedspan.base import check_aggregator
from fedspan.checks import one_of, real_number, true_or_false, whole_number
from fedspan.errors import InputError
from fedspan.few_shot.new_task import checked_ridge
from fedspan.few_shot.parts.task_names import Labels, positions, task_labels
from fedspan.few_shot.parts.task_rows import refuse_extreme
from fedspan.few_shot.parts.tasks import Tasks, listed

#: What only the resilient protocol knows, and its default values.
RESILIENT = {"init": "auto", "groups": None, "output": "eigenspace", "threshold": 10.0}
#: What some choices have no use for: (parameter, value) and the parameters that do nothing then, with their defaults.
UNUSED: tuple[tuple[str, object, dict[str, object]], ...] = (
    ("init", "subspace_median", {"groups": None, "power_iterations": 10}),
    ("init", "random", {"groups": None, "power_iterations": 10, "output": "eigenspace", "truncation": 9.0}),
    ("share_coefs", False, {"ridge": "auto"}),
)
#: More of y's square than this in the means of the tasks, and an intercept is missing.
_MUCH_OFFSET = 0.5
#: A direction with so many times the mean second moment makes gradient descent slow in all others.
_VERY_UNEVEN = 20.0
#: A task whose targets have so many times the mean square of a typical one's is in other units.
_OTHER_UNITS = 100.0


def check_parameters(given: Mapping[str, Any]) -> None:
    """Refuse parameters that cannot be meant, before any site is asked."""
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
        raise InputError("rank='auto' needs a spectral start, and init='random' is none: give a rank")
    if given["aggregator"] is None:
        for name, default in RESILIENT.items():
            if given[name] != default:
                raise InputError(f"{name}={given[name]!r} goes with an aggregator: sums need none of it")
    for choice, value, unused in UNUSED:
        for name, usual in unused.items():
            if given[choice] == value and given[name] != usual:
                raise InputError(f"{name}={given[name]!r} does nothing with {choice}={value!r}: leave it out")
    if given["rank"] != "auto" and given["max_rank"] != 16:
        raise InputError(f"max_rank={given['max_rank']!r} goes with rank='auto', and rank={given['rank']!r} is given")


def warn_of_data(tasks: Tasks, intercept: bool, resilient: bool) -> None:
    """Say where the data of a typical site do not suit the model, and what to do."""
    _warn_of_units(tasks, resilient)
    offset, uneven = (float(np.median(list(values.values()))) for values in (tasks.offset, tasks.uneven))
    if not intercept and offset > _MUCH_OFFSET:
        warnings.warn(
            f"{offset:.0%} of the targets' square lies in the means of the tasks: set fit_intercept=True, or centre "
            "them",
            stacklevel=4,
        )
    if uneven > _VERY_UNEVEN:
        warnings.warn(
            f"the features are far from white: one direction has {uneven:.0f} times the mean square of all, and the "
            "others are learned slowly; put FedPCA and FedStandardScaler before this",
            stacklevel=4,
        )


def _warn_of_units(tasks: Tasks, resilient: bool) -> None:
    """Say where targets of some tasks are so much larger than others' that the representation is theirs.

    By sums a single site with such tasks is enough; by medians it is outvoted.
    """
    middle = lower_median(np.array(list(tasks.middle.values())))
    largest = np.array(list(tasks.largest.values()))
    times = (lower_median(largest) if resilient else float(largest.max())) / middle if middle > 0.0 else 1.0
    if times > _OTHER_UNITS:
        warnings.warn(
            f"the targets' mean square is {times:.0e} times as large in the largest task as in a typical one, and all "
            "others hardly count for the representation: scale the targets of each task, where they differ in units",
            stacklevel=5,
        )


def checked_columns(X: Any, y: Any, task: Any, who: str) -> tuple[NDArray[Any], Labels | None]:
    """Return the targets and tasks of a table's rows as they go to the sites."""
    if y is None:
        raise InputError(f"This {who} requires y to be passed, but the target y is None.")
    if np.asarray(y).dtype.kind == "c":  # whoever checks it next would print it
        raise InputError("Complex data not supported: y must hold a real number for each row")
    target = column_or_1d(y, warn=True)
    if target.dtype.kind not in "biuf":
        target = _as_numbers(target)
    assert_all_finite(target, input_name="y")
    check_consistent_length(X, target, *[] if task is None else [task])
    return target, None if task is None else task_labels(task, "task")


def _as_numbers(target: NDArray[Any]) -> NDArray[np.float64]:
    """Return targets of another type as numbers, or refuse them without telling any."""
    refusal = InputError(f"y is of type {target.dtype}, and must hold a real number for each row")
    if any(isinstance(value, complex | np.complexfloating) for value in target.ravel()):
        raise refusal
    try:
        return target.astype(np.float64)
    except (TypeError, ValueError):
        raise refusal from None


def refuse_extremes(X: NDArray[Any], y: NDArray[Any]) -> None:
    """Refuse rows of a new task whose squares would be lost, as `fit` does."""
    refuse_extreme(X, "X", "features")
    refuse_extreme(y, "y", "targets")


def task_numbers(task: Any, tasks: Labels, rows: int) -> NDArray[np.intp]:
    """Return the number of the task of each of so many rows, among the `tasks` of a model."""
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


def warn_of_few_rows(tasks: Tasks, unknowns: int, ridge: float, *, pooled: bool, chosen: bool) -> None:
    """Say how many tasks have so few rows that least squares amplifies the noise, and what became of them."""
    rows = np.zeros(len(tasks.labels), dtype=np.int64)
    for at, counts in tasks.held.values():
        (np.add if pooled else np.maximum).at(rows, at, counts)
    few = [str(label) for label in tasks.labels[rows < 2 * unknowns]]
    if not few or (chosen and ridge > 0.0):
        return
    what = (
        f"they are shrunk by a ridge of {ridge:.2g} (ridge='auto')"
        if ridge > 0.0
        else "noise is amplified in them, without bound up to one more row than unknowns; take ridge='auto'"
    )
    warnings.warn(
        f"{len(few)} of {len(rows)} tasks have fewer than {2 * unknowns} rows{'' if pooled else ' at any site'} for "
        f"{unknowns} unknowns, and uncertain coefficients: {what}; these are {listed(few)}",
        stacklevel=4,
    )

"""What FedFewShotRegressor refuses and warns of before it learns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedspan.errors import InputError
from fedspan.estimators.base import check_aggregator
from fedspan.protocols.tasks import Tasks

#: What only the resilient protocol knows, and its default values.
RESILIENT = {"init": "auto", "groups": None, "output": "eigenspace", "threshold": 10.0}
#: More of y's square than this in the means of the tasks, and an intercept is missing.
_MUCH_OFFSET = 0.5
#: A direction with so many times the mean second moment makes gradient descent slow in all others.
_VERY_UNEVEN = 20.0


def check_parameters(given: Mapping[str, Any]) -> None:
    """Refuse parameters that cannot be meant, before any site is asked."""
    check_aggregator(given["aggregator"])
    whole = {"iterations": 0, "power_iterations": 1, "max_rank": 1, "rank": 1, "groups": 1}
    for name, least in whole.items():
        value = given[name]
        if (name == "rank" and isinstance(value, str) and value == "auto") or (name == "groups" and value is None):
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            extra = " or 'auto'" if name == "rank" else ""
            raise InputError(f"{name}={value!r} must be a whole number of at least {least}{extra}")
    for name in ("step_size", "truncation", "threshold", "tol"):
        value = given[name]
        if name == "threshold" and value is None:
            continue
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not (0 <= value < np.inf if name == "tol" else 0 < value < np.inf):
            raise InputError(
                f"{name}={value!r} must be a finite number {'of at least' if name == 'tol' else 'above'} 0"
            )
    if given["threshold"] is not None and given["threshold"] < 1:
        raise InputError(f"threshold={given['threshold']!r} must be at least 1, in units of the median norm")
    if given["init"] not in ("auto", "subspace_median", "median_of_means", "random"):
        raise InputError(f"init={given['init']!r} must be 'auto', 'subspace_median', 'median_of_means' or 'random'")
    if given["output"] not in ("eigenspace", "node", "trimmed"):
        raise InputError(f"output={given['output']!r} must be 'eigenspace', 'node' or 'trimmed'")
    if given["init"] == "random" and given["rank"] == "auto":
        raise InputError("rank='auto' needs a spectral start, and init='random' is none: give a rank")
    if given["aggregator"] is None:
        for name, default in RESILIENT.items():
            if given[name] != default:
                raise InputError(f"{name}={given[name]!r} goes with an aggregator: sums need none of it")


def warn_of_data(tasks: Tasks, intercept: bool) -> None:
    """Say where the data of a typical site do not suit the model, and what to do."""
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

"""What `FedMixedRegressor` refuses before any site is asked."""

from __future__ import annotations

from inspect import signature
from typing import Any

from fedspan.base import check_aggregator
from fedspan.checks import one_of, real_number, whole_number
from fedspan.errors import InputError
from fedspan.mixed_regression.fedx import UPDATES
from fedspan.mixed_regression.parts.feature_scaling import SCALINGS
from fedspan.mixed_regression.parts.mixed_fit import STARTS
from fedspan.mixed_regression.parts.refinement import ASSIGNMENTS, WEIGHTS
from fedspan.mixed_regression.random_start import LOSSES

_CHOICES = {
    "start": STARTS,
    "update": UPDATES,
    "weights": WEIGHTS,
    "assignment": ASSIGNMENTS,
    "scaling": SCALINGS,
    "loss": LOSSES,
}
_LEAST = {
    "local_steps": 1,
    "max_rounds": 1,
    "degree": 1,
    "n_starts": 1,
    "max_clusters": 1,
    "acceleration": 0,
    "n_clusters": 1,
}
_OR_AUTO = ("acceleration", "n_clusters")


def check_parameters(model: Any) -> None:
    """Refuse values that are out of range, and options that would have no effect."""
    for name, allowed in _CHOICES.items():
        one_of(name, getattr(model, name), allowed)
    check_aggregator(model.aggregator)
    for name, least in _LEAST.items():
        value = getattr(model, name)
        if name not in _OR_AUTO:
            whole_number(name, value, least)
        elif not isinstance(value, str) or value != "auto":
            whole_number(name, value, least, why=", or 'auto'")
    for name in ("tol", "perturbation"):
        real_number(name, getattr(model, name), least=0)
    if model.step_size is not None:
        real_number("step_size", model.step_size, above=0)
    if model.p_min is not None:
        most = 1.0 if isinstance(model.n_clusters, str) else 1.0 / model.n_clusters
        real_number("p_min", model.p_min, above=0, most=most * (1.0 + 1e-9), why=", the smallest cluster's share")
    _check_combinations(model)


def _check_without_effect(model: Any) -> None:
    """Refuse options that were set and would do nothing."""
    by_number = not isinstance(model.n_clusters, str)
    named = isinstance(model.features, str) and model.features != "linear"
    for name, idle, why in (
        ("local_steps", model.update != "fedavg", f"has no effect with update={model.update!r}"),
        ("step_size", model.update == "exact", "has no effect with update='exact'"),
        ("degree", not named, "is for features='polynomial' or 'interactions'"),
        ("max_clusters", by_number, f"is for n_clusters='auto', not for {model.n_clusters!r}"),
    ):
        default = signature(type(model)).parameters[name].default
        if idle and getattr(model, name) != default:
            raise InputError(f"{name}={getattr(model, name)!r} {why}: leave it at {default!r}")


def _check_combinations(model: Any) -> None:
    _check_without_effect(model)
    if isinstance(model.n_clusters, str) and model.aggregator is not None:
        raise InputError("n_clusters='auto' believes all sites: give a number where an aggregator is needed")
    if model.n_starts > 1 and model.start != "random":
        raise InputError(f"n_starts={model.n_starts} goes with start='random', not with {model.start!r}")
    if model.loss == "logistic" and model.update != "fedavg":
        raise InputError(f"loss='logistic' goes with update='fedavg', not with {model.update!r}")
    for name, used in (("perturbation", model.perturbation), ("p_min", model.p_min is not None)):
        if used and (model.start != "moment_descent" or model.loss == "logistic"):
            raise InputError(f"{name}=... is for the anchors of start='moment_descent' and squared losses")

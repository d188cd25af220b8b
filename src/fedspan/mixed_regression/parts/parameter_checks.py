"""Checks of the parameters of `FedMixedRegressor`, before any request to a site."""

from __future__ import annotations

from inspect import signature
from typing import Any

from fedspan.base import check_aggregator
from fedspan.checks import one_of, real_number, whole_number
from fedspan.errors import InputError
from fedspan.mixed_regression.fedx import UPDATES
from fedspan.mixed_regression.moment_descent import check_share
from fedspan.mixed_regression.parts.cluster_repair import STARTS
from fedspan.mixed_regression.parts.feature_preparation import MOST_DEGREE, SCALINGS
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
_AT_LEAST_ONE = ("local_steps", "max_rounds", "n_starts", "max_clusters")
_OR_AUTO = {"acceleration": 0, "n_clusters": 1}


def check_parameters(model: Any) -> None:
    """Refuse values that are out of range, and options that would have no effect."""
    for name, allowed in _CHOICES.items():
        one_of(name, getattr(model, name), allowed)
    check_aggregator(model.aggregator)
    for name in _AT_LEAST_ONE:
        whole_number(name, getattr(model, name), 1)
    whole_number("degree", model.degree, 1, MOST_DEGREE)
    for name, least in _OR_AUTO.items():
        value = getattr(model, name)
        if not isinstance(value, str) or value != "auto":
            whole_number(name, value, least, why=", or 'auto'")
    for name in ("tol", "perturbation"):
        real_number(name, getattr(model, name), least=0)
    if model.step_size is not None:
        real_number("step_size", model.step_size, above=0)
    automatic = model.n_clusters == "auto"
    check_share(model.p_min, 1 if automatic else model.n_clusters)
    if automatic and model.aggregator is not None:
        raise InputError("n_clusters='auto' trusts all sites: give a number where an aggregator is needed")
    if model.loss == "logistic" and model.update != "fedavg":
        raise InputError(f"loss='logistic' goes with update='fedavg', not with {model.update!r}")
    _check_without_effect(model, automatic)


def _check_without_effect(model: Any, automatic: bool) -> None:
    """Refuse options that were set and would do nothing."""
    anchors = model.start == "moment_descent" and model.loss == "squared"
    mapped = isinstance(model.features, str) and model.features != "linear"
    for name, idle, why in (
        ("local_steps", model.update != "fedavg", f"has no effect with update={model.update!r}"),
        ("step_size", model.update == "exact", "has no effect with update='exact'"),
        ("degree", not mapped, "is for features='polynomial' or 'interactions'"),
        ("max_clusters", not automatic, f"is for n_clusters='auto', not for {model.n_clusters!r}"),
        ("n_starts", model.start != "random", f"goes with start='random', not with {model.start!r}"),
        ("perturbation", not anchors, "is for the anchors of start='moment_descent' and squared losses"),
        ("p_min", not anchors, "is for the anchors of start='moment_descent' and squared losses"),
    ):
        value, default = getattr(model, name), signature(type(model)).parameters[name].default
        if idle and value != default:
            raise InputError(f"{name}={value!r} {why}: leave it at {default!r}")

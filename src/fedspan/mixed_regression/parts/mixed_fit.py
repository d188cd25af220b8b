"""The two phases of `FedMixedRegressor.fit`: where it starts, and how it refines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.federation import Federation
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.logistic_fedx import logistic_fedx
from fedspan.mixed_regression.moment_descent import moment_descent
from fedspan.mixed_regression.parts.cluster_start import Start, ask_losses
from fedspan.mixed_regression.parts.refinement import Refinement
from fedspan.mixed_regression.random_start import best_random_start, random_start
from fedspan.mixed_regression.spectral_start import spectral_start

Matrix = NDArray[np.float64]

STARTS = ("moment_descent", "spectral", "random")


def started(federation: Federation, k: int, theta0: Matrix, scale: float, options: Mapping[str, Any]) -> Start:
    """Run the start that was asked for, about the model `theta0` (d,)."""
    common: dict[str, Any] = {"n_clusters": k, "n_columns": len(theta0), "start": theta0}
    aggregator = options["aggregator"]
    # Anchors solve least squares: models of classes begin with the spectral start instead.
    chosen = "spectral" if options["loss"] == "logistic" and options["start"] != "random" else options["start"]
    if chosen == "moment_descent":
        found = moment_descent(
            federation, **common, aggregator=aggregator, p_min=options["p_min"], perturbation=options["perturbation"]
        )
        return found if found.covered or aggregator is not None else _or_spectral(federation, found, common)
    if chosen == "spectral":
        return spectral_start(federation, **common, aggregator=aggregator)
    if options["n_starts"] > 1:
        loss, starts = options["loss"], options["n_starts"]
        return best_random_start(federation, **common, scale=scale, starts=starts, loss=loss, aggregator=aggregator)
    return random_start(federation, **common, scale=scale)


def refined(federation: Federation, models: Matrix, options: Mapping[str, Any]) -> Refinement:
    """Run the refinement that was asked for."""
    names = ("local_steps", "weights", "assignment", "max_rounds", "tol", "aggregator")
    settings = {name: options[name] for name in names}
    settings |= {"rate": options["step_size"], "acceleration": options["acceleration"]}
    if options["loss"] == "logistic":
        return logistic_fedx(federation, models=models, **settings)
    return fedx(federation, models=models, update=options["update"], origin=options["origin"], **settings)


def _or_spectral(fed: Federation, found: Start, common: Mapping[str, Any]) -> Start:
    """Return what fits the sites better: a start whose anchors may have missed a cluster, or a spectral one."""
    other = spectral_start(fed, **common)
    k = len(found.models)
    _, losses, counts = ask_losses(fed, models=np.vstack([found.models, other.models]))
    ours, theirs = (float(counts @ losses[:, part].min(axis=1)) for part in (slice(k), slice(k, None)))
    fed.log(loss_anchors=ours, loss_spectral=theirs)
    return replace(found, models=other.models) if theirs < ours else found

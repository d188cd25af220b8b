"""The phases of `FedMixedRegressor.fit`: where it starts, how it refines, and what it does about a missing cluster."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Federation
from fedspan.protocols.cluster_assignment import ClusterAssignment, cluster_assignment
from fedspan.protocols.fedx import fedx
from fedspan.protocols.logistic_fedx import logistic_fedx
from fedspan.protocols.moment_descent import moment_descent
from fedspan.protocols.random_start import best_random_start, random_start
from fedspan.protocols.refinement import Refinement
from fedspan.protocols.spectral_start import spectral_start
from fedspan.protocols.start import Start

Matrix = NDArray[np.float64]

STARTS = ("moment_descent", "spectral", "random")
_SAME = 3.0  # squared distance of two models, in units of what noise alone makes of it
_NOISY = 2.0  # times the smallest noise: such a cluster may hold two


def started(fed: Federation, k: int, theta0: Matrix, scale: float, options: Mapping[str, Any]) -> Start:
    """Run the start that was asked for, about the model `theta0` (d,)."""
    common: dict[str, Any] = {"n_clusters": k, "n_columns": len(theta0), "start": theta0}
    aggregator = options["aggregator"]
    if options["start"] == "moment_descent":
        return moment_descent(
            fed, **common, aggregator=aggregator, p_min=options["p_min"], perturbation=options["perturbation"]
        )
    if options["start"] == "spectral":
        return spectral_start(fed, **common, aggregator=aggregator)
    if options["n_starts"] > 1:
        loss, starts = options["loss"], options["n_starts"]
        return best_random_start(fed, **common, scale=scale, starts=starts, loss=loss, aggregator=aggregator)
    return random_start(fed, **common, scale=scale)


def refined(fed: Federation, models: Matrix, options: Mapping[str, Any]) -> Refinement:
    """Run the refinement that was asked for."""
    names = ("local_steps", "weights", "assignment", "max_rounds", "tol", "aggregator")
    settings = {name: options[name] for name in names}
    settings |= {"rate": options["step_size"], "acceleration": options["acceleration"]}
    if options["loss"] == "logistic":
        return logistic_fedx(fed, models=models, **settings)
    return fedx(fed, models=models, update=options["update"], **settings)


def settled(
    fed: Federation, found: Refinement, options: Mapping[str, Any], grow_to: int = 0
) -> tuple[Refinement, ClusterAssignment]:
    """Return the refined models and the sites' clusters when nothing is left to mend, and tell where it seems to be.

    A model that no site needs, beside a cluster that seems to hold two, is put to use there: the latter is split by a
    spectral start among its sites, and what comes of that is kept if it fits better. With `grow_to`, clusters are split
    up to so many while the Bayesian information criterion is the better for it.
    """
    who = _assignment(fed, found.models, options)
    if options["loss"] != "squared":
        _tell(int(np.argmin(who.rows)) if (who.rows < 0.5).any() else None, who)
        return found, who
    spare = _spare(fed, found.models, who, options)
    for _ in range(len(found.models) - 1):
        noisy = _noisiest(who)
        if spare is None or spare == noisy or who.noise[noisy] <= _NOISY * who.noise[who.rows > 0.5].min():
            break
        split = _split(fed, found.models, who, noisy, options)
        if split is None:
            break
        models = found.models.copy()
        models[noisy], models[spare] = split
        again = refined(fed, models, options)
        fed.log(mended=int(again.loss < found.loss), loss_before=found.loss, loss_after=again.loss)
        if not again.loss < found.loss:
            break
        found, who = again, _assignment(fed, again.models, options)
        spare = _spare(fed, found.models, who, options)
    while len(found.models) < grow_to:
        noisy = _noisiest(who)
        split = _split(fed, found.models, who, noisy, options)
        if split is None:
            break
        again = refined(fed, np.vstack([found.models[np.arange(len(found.models)) != noisy], split]), options)
        then = _assignment(fed, again.models, options)
        before, after = (_criterion(*pair) for pair in ((found.models, who), (again.models, then)))
        fed.log(clusters=len(again.models), criterion_before=before, criterion_after=after)
        if not after < before:
            break
        found, who, spare = again, then, None
    _tell(spare, who)
    return found, who


def _tell(spare: int | None, who: ClusterAssignment) -> None:
    """Warn of a cluster that no site needs."""
    if spare is not None:
        what = "has no sites" if who.rows[spare] < 0.5 else "has the same model as another one, up to noise"
        warnings.warn(
            f"cluster {spare} {what}: n_clusters={len(who.rows)} may be too many, or a cluster was missed "
            "(try start='spectral', or more random starts)",
            stacklevel=5,
        )


def _assignment(fed: Federation, models: Matrix, options: Mapping[str, Any]) -> ClusterAssignment:
    return cluster_assignment(fed, models=models, loss=options["loss"], aggregator=options["aggregator"])


def _noisiest(who: ClusterAssignment) -> int:
    return int(np.argmax(np.where(who.rows > 0.5, who.noise, 0.0)))


def _split(
    fed: Federation, models: Matrix, who: ClusterAssignment, cluster: int, options: Mapping[str, Any]
) -> Matrix | None:
    """Return two models (2, d) for the sites of a cluster, or ``None`` if there are too few of them."""
    sites = [name for name, label in zip(who.sites, who.labels, strict=True) if label == cluster]
    if len(sites) < 4:
        return None
    d, aggregator = models.shape[1], options["aggregator"]
    try:
        return spectral_start(
            fed.subset(sites), n_clusters=2, n_columns=d, start=models[cluster], aggregator=aggregator
        ).models
    except InputError:  # none of them has two rows
        return None


def _criterion(models: Matrix, who: ClusterAssignment) -> float:
    """Return the Bayesian information criterion: the smaller the better."""
    k, d = models.shape
    return float(-2.0 * who.log_likelihood + (k * (d + 1) + k - 1) * np.log(max(float(who.rows.sum()), 2.0)))


def _spare(fed: Federation, models: Matrix, who: ClusterAssignment, options: Mapping[str, Any]) -> int | None:
    """Return a cluster without sites, or the smaller of the two nearest ones, if one model for both is as good.

    That is: by the Bayesian information criterion, or because they differ by less than the noise of their estimates.
    """
    k, d = models.shape
    empty = np.flatnonzero(who.rows < 0.5)
    if empty.size:
        return int(empty[0])
    if k == 1:
        return None
    noise = who.noise**2 / who.rows
    ratios = np.array(
        [[np.sum((models[i] - models[j]) ** 2) / (d * (noise[i] + noise[j])) for j in range(k)] for i in range(k)]
    )
    ratios[np.diag_indices(k)] = np.inf
    i, j = (int(index) for index in np.unravel_index(int(ratios.argmin()), (k, k)))
    small, large = sorted((i, j), key=lambda cluster: float(who.rows[cluster]))
    if ratios[i, j] <= _SAME or options["aggregator"] is not None:  # of lies a likelihood says nothing
        return small if ratios[i, j] <= _SAME else None
    fewer = models.copy()
    fewer[large] = (who.rows[i] * models[i] + who.rows[j] * models[j]) / (who.rows[i] + who.rows[j])
    fewer = np.delete(fewer, small, axis=0)
    return small if _criterion(fewer, _assignment(fed, fewer, options)) < _criterion(models, who) else None

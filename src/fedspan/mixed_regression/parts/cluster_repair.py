"""The phases of `FedMixedRegressor.fit`: a start, a refinement, and the repair of models that fit no cluster well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedspan.aggregation.fewer_values import within_a_group
from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.logistic_fedx import logistic_fedx
from fedspan.mixed_regression.moment_descent import moment_descent
from fedspan.mixed_regression.parts.cluster_assignment import ClusterAssignment
from fedspan.mixed_regression.parts.cluster_checks import (
    assignment_of,
    criterion,
    crowded_cluster,
    fits_better,
    spare_cluster,
    warn_of_clusters,
    warn_of_rule,
    widest,
)
from fedspan.mixed_regression.parts.cluster_start import Start, ask_losses
from fedspan.mixed_regression.parts.refinement import Refinement
from fedspan.mixed_regression.random_start import best_random_start, random_start
from fedspan.mixed_regression.spectral_start import spectral_start

STARTS = ("moment_descent", "spectral", "random")
_REFITS = 5

Fit = tuple[Refinement, ClusterAssignment]


def started(federation: Federation, k: int, theta0: Vector, scale: float, options: Mapping[str, Any]) -> Start:
    """Run the chosen start, about the model `theta0` (d,)."""
    common: dict[str, Any] = {"n_clusters": k, "n_columns": len(theta0), "start": theta0}
    loss, start, aggregator = options["loss"], options["start"], options["aggregator"]
    if start == "random" and options["n_starts"] > 1:
        starts = options["n_starts"]
        return best_random_start(federation, **common, scale=scale, starts=starts, loss=loss, aggregator=aggregator)
    if start == "random":
        return random_start(federation, **common, scale=scale)
    if start == "spectral" or loss == "logistic":  # anchors solve least squares, and can't start models of classes
        return spectral_start(federation, **common, aggregator=aggregator)
    own = {name: options[name] for name in ("aggregator", "p_min", "perturbation")}
    found = moment_descent(federation, **common, **own)
    if found.covered or aggregator is not None:
        return found
    # The anchors may have missed a cluster: take the models that fit the sites better, theirs or spectral ones.
    other = spectral_start(federation, **common)
    _, losses, counts = ask_losses(federation, models=np.vstack([found.models, other.models]))
    ours, theirs = (float(counts @ losses[:, part].min(axis=1)) for part in (slice(k), slice(k, None)))
    federation.log(loss_anchors=ours, loss_spectral=theirs)
    return replace(found, models=other.models) if theirs < ours else found


def refined(federation: Federation, models: Matrix, options: Mapping[str, Any]) -> Refinement:
    """Run the chosen refinement."""
    names = ("local_steps", "weights", "assignment", "max_rounds", "tol", "aggregator", "acceleration")
    settings = {name: options[name] for name in names} | {"rate": options["step_size"]}
    if options["loss"] == "logistic":
        return logistic_fedx(federation, models=models, **settings)
    return fedx(federation, models=models, update=options["update"], origin=options["origin"], **settings)


def settled(federation: Federation, found: Refinement, options: Mapping[str, Any], *, grow_to: int = 0) -> Fit:
    """Return the refined models and the sites' clusters after all repairs, and warn of remaining faults.

    A model that no site needs replaces one half of a cluster that seems to hold two. With `grow_to`, clusters are split
    up to that number while the Bayesian information criterion improves.
    """
    who, limit = assignment_of(federation, found.models, options), 0
    if options["loss"] == "squared":
        found, who = _agreed(federation, found, who, options)
        found, who, spare = _spare_used(federation, found, who, options)
        while grow_to and len(found.models) < len(federation.sites):
            grown = _grown(federation, found, who, options)
            if grown is None:
                break
            if len(found.models) >= grow_to:  # one too many, to learn whether the limit is enough
                limit = grow_to
                break
            (found, who), spare = grown, None
    else:
        spare = int(np.argmin(who.rows)) if (who.rows < 0.5).any() else None
    warn_of_clusters(federation, found.models, who, spare, options, limit)
    warn_of_rule(who, found.refused, options)
    return found, who


def _fitted(federation: Federation, models: Matrix, options: Mapping[str, Any]) -> Fit:
    """Return refined models, and the clusters of the sites, that agree."""
    found = refined(federation, models, options)
    return _agreed(federation, found, assignment_of(federation, found.models, options), options)


def _agreed(federation: Federation, found: Refinement, who: ClusterAssignment, options: Mapping[str, Any]) -> Fit:
    """Refit models to the sites that most probably belong to them, while that changes clusters and is likelier.

    A refinement assigns a site to the model of smallest loss. Where clusters differ in noise, or a model serves none of
    its sites well, another one is likelier. With an aggregator, more sites must fit.
    """
    if options["assignment"] == "soft":
        return found, who
    few = 0 if options["aggregator"] is None else max(2, len(federation.sites) // 20)
    fitted = who.nearest
    for _ in range(_REFITS):
        apart = (who.labels != fitted) & (who.labels >= 0)
        if apart.sum() <= few:
            break
        models = found.models.copy()
        try:
            for j in np.union1d(who.labels[apart], fitted[apart]):
                sites = who.sites_of(j)
                if sites:
                    group, own = federation.subset(sites), {**options, "aggregator": _rule(sites, federation, options)}
                    models[j] = refined(group, models[[j]], own).models[0]
            then = assignment_of(federation, models, options)
        except QuorumError:  # most sites of a small cluster do not reply just now
            break
        except InputError:  # or too few for the aggregator
            if options["aggregator"] is None:
                raise
            break
        federation.log(refitted=int(apart.sum()), gained=then.log_likelihood - who.log_likelihood)
        if not fits_better(then, who, options):
            break
        found, who, fitted = replace(found, models=models), then, who.labels
    return found, who


def _spare_used(
    federation: Federation, found: Refinement, who: ClusterAssignment, options: Mapping[str, Any]
) -> tuple[Refinement, ClusterAssignment, int | None]:
    """Put models that no site needs to use in crowded clusters, while that fits better; also return a spare one."""
    spare = spare_cluster(federation, found.models, who, options)
    for _ in range(len(found.models) - 1):
        crowded = crowded_cluster(who, options)
        if spare is None or crowded is None:
            break
        models = _with_spare_model(federation, found.models, who, spare, crowded, options)
        if models is None:
            break
        again, then = _fitted(federation, models, options)
        better = fits_better(then, who, options)
        federation.log(repaired=int(better), loss_before=found.loss, loss_after=again.loss)
        if not better:
            break
        found, who = again, then
        spare = spare_cluster(federation, found.models, who, options)
    return found, who, spare


def _grown(federation: Federation, found: Refinement, who: ClusterAssignment, options: Mapping[str, Any]) -> Fit | None:
    """Return a fit with the noisiest cluster split, if it improves the Bayesian information criterion."""
    cluster = widest(who)
    split = _split(federation, found.models, who, cluster, options)
    if split is None:
        return None
    models = np.vstack([np.delete(found.models, cluster, axis=0), split])
    again, then = _fitted(federation, models, options)
    before, after = criterion(found.models, who), criterion(again.models, then)
    federation.log(clusters=len(again.models), criterion_before=before, criterion_after=after)
    return (again, then) if after < before else None


def _with_spare_model(
    federation: Federation, models: Matrix, who: ClusterAssignment, spare: int, noisy: int, options: Mapping[str, Any]
) -> Matrix | None:
    """Return models with the spare one for half of the noisy cluster, or all from a new start; ``None``: neither."""
    if spare != noisy:
        split = _split(federation, models, who, noisy, options)
        if split is None:
            return None
        new = models.copy()
        new[noisy], new[spare] = split
        return new
    k, d = models.shape
    centre = who.shares @ models
    return spectral_start(federation, n_clusters=k, n_columns=d, start=centre, aggregator=options["aggregator"]).models


def _split(
    federation: Federation, models: Matrix, who: ClusterAssignment, cluster: int, options: Mapping[str, Any]
) -> Matrix | None:
    """Return two models (2, d) for the sites of a cluster, or ``None`` if these are too few."""
    sites = who.sites_of(cluster)
    if len(sites) < 4:
        return None
    own = {"n_columns": models.shape[1], "start": models[cluster], "aggregator": _rule(sites, federation, options)}
    try:
        return spectral_start(federation.subset(sites), n_clusters=2, **own).models
    except InputError:  # none of them has two rows
        return None


def _rule(sites: list[str], federation: Federation, options: Mapping[str, Any]) -> Any:
    """Return the aggregator for some sites alone: a rule that their number allows."""
    rule = options["aggregator"]
    return rule and within_a_group(rule, len(sites), len(federation.sites))

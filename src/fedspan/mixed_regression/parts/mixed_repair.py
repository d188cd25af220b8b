"""What `FedMixedRegressor` does when models are refined: clusters and models must agree, and none may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedspan.aggregation.fewer_values import within_a_group
from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation
from fedspan.mixed_regression.parts.cluster_assignment import ClusterAssignment
from fedspan.mixed_regression.parts.mixed_doubts import (
    assignment_of,
    criterion,
    crowded_cluster,
    fits_better,
    spare_cluster,
    tell,
    tell_of_rule,
    widest,
)
from fedspan.mixed_regression.parts.mixed_fit import Matrix, refined
from fedspan.mixed_regression.parts.refinement import Refinement
from fedspan.mixed_regression.spectral_start import spectral_start

_REFITS = 5


def settled(
    federation: Federation, found: Refinement, options: Mapping[str, Any], *, grow_to: int = 0
) -> tuple[Refinement, ClusterAssignment]:
    """Return the refined models and the sites' clusters when nothing is left to mend, and tell where it seems to be.

    A model that no site needs, beside a cluster that seems to hold two, is put to use there: the latter is split by a
    spectral start among its sites, and what comes of that is kept if it fits better. With `grow_to`, clusters are split
    up to so many while the Bayesian information criterion is the better for it.
    """
    who = assignment_of(federation, found.models, options)
    if options["loss"] != "squared":
        spare = int(np.argmin(who.rows)) if (who.rows < 0.5).any() else None
        tell(federation, found.models, who, spare, options, 0)
        tell_of_rule(who, found.refused, options)
        return found, who
    found, who = _agreed(federation, found, who, options)
    spare = spare_cluster(federation, found.models, who, options)
    for _ in range(len(found.models) - 1):
        crowded = crowded_cluster(who, options)
        if spare is None or crowded is None:
            break
        models = _put_to_use(federation, found.models, who, spare, crowded, options)
        if models is None:
            break
        again = refined(federation, models, options)
        again, then = _agreed(federation, again, assignment_of(federation, again.models, options), options)
        better = fits_better(then, who, options)
        federation.log(mended=int(better), loss_before=found.loss, loss_after=again.loss)
        if not better:
            break
        found, who = again, then
        spare = spare_cluster(federation, found.models, who, options)
    limit = 0
    while grow_to and len(found.models) < len(federation.sites):
        split = _split(federation, found.models, who, widest(who), options)
        if split is None:
            break
        others = np.arange(len(found.models)) != widest(who)
        again = refined(federation, np.vstack([found.models[others], split]), options)
        again, then = _agreed(federation, again, assignment_of(federation, again.models, options), options)
        before, after = (criterion(*pair) for pair in ((found.models, who), (again.models, then)))
        federation.log(clusters=len(again.models), criterion_before=before, criterion_after=after)
        if not after < before:
            break
        if len(found.models) >= grow_to:  # one too many, tried to know whether so many are enough
            limit = grow_to
            break
        found, who, spare = again, then, None
    tell(federation, found.models, who, spare, options, limit)
    tell_of_rule(who, found.refused, options)
    return found, who


def _agreed(
    fed: Federation, found: Refinement, who: ClusterAssignment, options: Mapping[str, Any]
) -> tuple[Refinement, ClusterAssignment]:
    """Refit models to the sites that most probably belong to them, while those are others and it is likelier so.

    A refinement gives a site to the model of smallest loss. Where clusters differ in noise, or a model serves none of
    its sites well, another one is the likelier. Where some sites may lie, more of them must fit.
    """
    if options["assignment"] == "soft":
        return found, who
    few = 0 if options["aggregator"] is None else max(2, len(fed.sites) // 20)
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
                    models[j] = refined(fed.subset(sites), models[[j]], _among(sites, fed, options)).models[0]
            then = assignment_of(fed, models, options)
        except QuorumError:  # most sites of a small cluster are silent just now
            break
        except InputError:  # or too few for the aggregator
            if options["aggregator"] is None:
                raise
            break
        fed.log(refitted=int(apart.sum()), gained=then.log_likelihood - who.log_likelihood)
        if not fits_better(then, who, options):
            break
        found, who, fitted = replace(found, models=models), then, who.labels
    return found, who


def _put_to_use(
    fed: Federation, models: Matrix, who: ClusterAssignment, spare: int, noisy: int, options: Mapping[str, Any]
) -> Matrix | None:
    """Return models with the spare one where it may be needed, or ``None``: half of the noisy cluster, or all anew."""
    if spare != noisy:
        split = _split(fed, models, who, noisy, options)
        if split is None:
            return None
        new = models.copy()
        new[noisy], new[spare] = split
        return new
    k, d = models.shape
    centre = who.shares @ models
    return spectral_start(fed, n_clusters=k, n_columns=d, start=centre, aggregator=options["aggregator"]).models


def _split(
    fed: Federation, models: Matrix, who: ClusterAssignment, cluster: int, options: Mapping[str, Any]
) -> Matrix | None:
    """Return two models (2, d) for the sites of a cluster, or ``None`` if there are too few of them."""
    sites = who.sites_of(cluster)
    if len(sites) < 4:
        return None
    d, aggregator = models.shape[1], _among(sites, fed, options)["aggregator"]
    try:
        return spectral_start(
            fed.subset(sites), n_clusters=2, n_columns=d, start=models[cluster], aggregator=aggregator
        ).models
    except InputError:  # none of them has two rows
        return None


def _among(sites: list[str], fed: Federation, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for some sites alone: with a rule that so few values allow."""
    rule = options["aggregator"]
    return {**options, "aggregator": rule and within_a_group(rule, len(sites), len(fed.sites))}

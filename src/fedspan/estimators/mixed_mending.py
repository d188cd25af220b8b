"""What `FedMixedRegressor` does when models are refined: clusters and models must agree, and none may be missing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedspan.errors import InputError, QuorumError
from fedspan.estimators.mixed_fit import Matrix, refined
from fedspan.federation import Federation
from fedspan.protocols.cluster_assignment import ClusterAssignment, cluster_assignment
from fedspan.protocols.refinement import Refinement
from fedspan.protocols.spectral_start import spectral_start

_SAME = 3.0  # squared distance of two models, in units of what noise alone makes of it
_NOISY = 2.0  # times the smallest noise: such a cluster may hold two
_REFITS = 5


def settled(
    fed: Federation, found: Refinement, options: Mapping[str, Any], *, grow_to: int = 0, covered: bool = True
) -> tuple[Refinement, ClusterAssignment]:
    """Return the refined models and the sites' clusters when nothing is left to mend, and tell where it seems to be.

    A model that no site needs, beside a cluster that seems to hold two, is put to use there: the latter is split by a
    spectral start among its sites, and what comes of that is kept if it fits better. With `grow_to`, clusters are split
    up to so many while the Bayesian information criterion is the better for it. `covered`: see `Start`.
    """
    who = _assignment(fed, found.models, options)
    if options["loss"] != "squared":
        _tell(int(np.argmin(who.rows)) if (who.rows < 0.5).any() else None, None, who)
        return found, who
    found, who = _agreed(fed, found, who, options)
    spare = _spare(fed, found.models, who, options)
    for _ in range(len(found.models) - 1):
        noisy = _noisiest(who)
        if spare is None or noisy is None:
            break
        models = _put_to_use(fed, found.models, who, spare, noisy, options)
        if models is None:
            break
        again = refined(fed, models, options)
        again, then = _agreed(fed, again, _assignment(fed, again.models, options), options)
        better = _fits_better(again, then, found, who, options)
        fed.log(mended=int(better), loss_before=found.loss, loss_after=again.loss)
        if not better:
            break
        found, who = again, then
        spare = _spare(fed, found.models, who, options)
    while len(found.models) < grow_to:
        widest = _widest(who)
        split = _split(fed, found.models, who, widest, options)
        if split is None:
            break
        again = refined(fed, np.vstack([found.models[np.arange(len(found.models)) != widest], split]), options)
        again, then = _agreed(fed, again, _assignment(fed, again.models, options), options)
        before, after = (_criterion(*pair) for pair in ((found.models, who), (again.models, then)))
        fed.log(clusters=len(again.models), criterion_before=before, criterion_after=after)
        if not after < before:
            break
        found, who, spare = again, then, None
    _tell(spare, None if covered and spare is None else _noisiest(who), who)
    return found, who


def _tell(spare: int | None, noisy: int | None, who: ClusterAssignment) -> None:
    """Warn of a cluster that no site needs, and of one that may hold two."""
    what = "" if spare is None else f"cluster {spare} has no sites"
    if spare is not None and who.rows[spare] >= 0.5:
        what = f"cluster {spare} has the same model as another one, up to noise"
    if noisy is not None:
        times = who.noise[noisy] / who.noise[who.rows > 0.5].min()
        what += f"{' and ' * bool(what)}cluster {noisy} has {times:.1f} times the noise of another one"
        advice = "a cluster may be missing (try start='spectral', another random_state, or another n_clusters)"
    else:
        advice = f"n_clusters={len(who.rows)} may be too many, or a cluster was missed (try start='spectral', or more "
        advice += "random starts)"
    if what:
        warnings.warn(f"{what}: {advice}", stacklevel=5)


def _agreed(
    fed: Federation, found: Refinement, who: ClusterAssignment, options: Mapping[str, Any]
) -> tuple[Refinement, ClusterAssignment]:
    """Refit models to the sites that most probably belong to them, while those are others and it is likelier so.

    A refinement gives a site to the model of smallest loss. Where clusters differ in noise, or a model serves none of
    its sites well, another one is the likelier.
    """
    if options["assignment"] == "soft" or options["aggregator"] is not None:
        return found, who
    fitted = who.nearest
    for _ in range(_REFITS):
        apart = (who.labels != fitted) & (who.labels >= 0)
        if not apart.any():
            break
        models = found.models.copy()
        try:
            for j in np.union1d(who.labels[apart], fitted[apart]):
                sites = _sites(who, j)
                if sites:
                    models[j] = refined(fed.subset(sites), models[[j]], options).models[0]
            then = _assignment(fed, models, options)
        except QuorumError:  # most sites of a small cluster are silent just now
            break
        fed.log(refitted=int(apart.sum()), gained=then.log_likelihood - who.log_likelihood)
        if not then.log_likelihood > who.log_likelihood:
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


def _fits_better(
    new: Refinement, then: ClusterAssignment, old: Refinement, who: ClusterAssignment, options: Mapping[str, Any]
) -> bool:
    if options["aggregator"] is not None:  # of lies a likelihood says nothing
        return new.loss < old.loss
    return then.log_likelihood > who.log_likelihood


def _sites(who: ClusterAssignment, cluster: int) -> list[str]:
    return [name for name, label in zip(who.sites, who.labels, strict=True) if label == cluster]


def _assignment(fed: Federation, models: Matrix, options: Mapping[str, Any]) -> ClusterAssignment:
    return cluster_assignment(fed, models=models, loss=options["loss"], aggregator=options["aggregator"])


def _widest(who: ClusterAssignment) -> int:
    return int(np.argmax(np.where(who.rows > 0.5, who.noise, 0.0)))


def _noisiest(who: ClusterAssignment) -> int | None:
    """Return the cluster of most noise, if that is so much that it may hold two."""
    widest = _widest(who)
    return widest if who.noise[widest] > _NOISY * who.noise[who.rows > 0.5].min() else None


def _split(
    fed: Federation, models: Matrix, who: ClusterAssignment, cluster: int, options: Mapping[str, Any]
) -> Matrix | None:
    """Return two models (2, d) for the sites of a cluster, or ``None`` if there are too few of them."""
    sites = _sites(who, cluster)
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

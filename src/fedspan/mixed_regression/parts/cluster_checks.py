"""Possible faults of a fitted mixture of regressions: a model that no site needs, or a cluster that holds two.

With an aggregator, where sites may be malicious, every site has one vote: medians over sites, and the number that fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from fedspan.aggregation import Aggregator
from fedspan.aggregation.copied_values import first_of_copies
from fedspan.aggregation.fewer_values import within_a_group
from fedspan.errors import QuorumError
from fedspan.federation import Federation
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.mixed_regression.parts.cluster_assignment import ClusterAssignment
from fedspan.mixed_regression.parts.moment_products import spread_over_noise

_SAME = 3.0  # squared distance of two models, in units of the noise of their estimates
_GAIN = 3.0  # in units of the noise: two halves of one cluster save their median site about 1 by chance
_NOISY = 2.0  # times the smallest noise: such a cluster may hold two
_UNLIKE = 1.5  # times noise alone: sites of one model differ by less
_UNFIT = 0.999  # quantile of an honest site's loss
_MANY_UNFIT = 0.05  # of the sites


def criterion(models: Matrix, who: ClusterAssignment) -> float:
    """Return the Bayesian information criterion: the smaller the better."""
    k, d = models.shape
    return float(-2.0 * who.log_likelihood + (k * (d + 1) + k - 1) * np.log(max(float(who.rows.sum()), 2.0)))


def spare_cluster(
    models: Matrix, who: ClusterAssignment, assign: Callable[[Matrix], ClusterAssignment], *, robust: bool
) -> int | None:
    """Return a cluster without sites, or the smaller of the two nearest ones, if one model for both is as good.

    That is: they differ by less than the noise of their estimates, or the Bayesian information criterion prefers one.
    Instead of the latter, if `robust`: their median site gains no more by two models than by chance. `assign` finds the
    clusters of all sites under other models.
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
    if ratios[i, j] <= _SAME:
        return small
    fewer = models.copy()
    fewer[large] = (who.rows[i] * models[i] + who.rows[j] * models[j]) / (who.rows[i] + who.rows[j])
    one = fewer[large]
    fewer = np.delete(fewer, small, axis=0)
    then = assign(fewer)
    if not robust:
        return small if criterion(fewer, then) < criterion(models, who) else None
    column = int(np.flatnonzero((fewer == one).all(axis=1))[0])
    there = np.isin(who.nearest, (i, j)) & (then.labels >= 0)
    gains = (then.losses[there, column] - who.losses[there].min(axis=1)) / min(who.noise[i], who.noise[j]) ** 2
    return small if there.any() and float(np.median(gains)) < _GAIN else None


def widest(who: ClusterAssignment) -> int:
    """Return the cluster of most noise."""
    return int(np.argmax(np.where(who.rows > 0.5, who.noise, 0.0)))


def crowded_cluster(who: ClusterAssignment, *, robust: bool) -> int | None:
    """Return a cluster that may hold two: a noisy one or, if `robust`, the one of most misfits."""
    noisy = _noisy_cluster(who)
    if noisy is not None or not robust:
        return noisy
    unfit = _misfits(who, who.noise)
    if unfit.mean() < _MANY_UNFIT:
        return None
    return int(np.bincount(who.nearest[unfit], minlength=len(who.rows)).argmax())


def fits_better(new: ClusterAssignment, old: ClusterAssignment, *, robust: bool) -> bool:
    """Return whether new models are likelier; if `robust`, whether clearly more sites fit one of them.

    Malicious sites decide a likelihood. Clearly more, because some misfits are chance, or attacks that vary.
    """
    if not robust:
        return new.log_likelihood > old.log_likelihood
    noise = np.full(len(new.noise), min(_least_noise(new), _least_noise(old)))
    before, after = (int(_misfits(who, noise).sum()) for who in (old, new))
    return before - after >= max(3.0, before / 4.0)


def _noisy_cluster(who: ClusterAssignment) -> int | None:
    """Return the cluster of most noise, if it is so noisy that it may hold two."""
    j = widest(who)
    return j if who.noise[j] > _NOISY * _least_noise(who) else None


def _least_noise(who: ClusterAssignment) -> float:
    """Return the smallest noise of a cluster that is not so small that its model fits by chance."""
    return float(who.noise[who.shares >= 1.0 / (4.0 * len(who.shares))].min())


def _misfits(who: ClusterAssignment, noise: Vector) -> NDArray[np.bool_]:
    """Return the sites (M,) whose losses under every model are too large for its noise (k,)."""
    limits = np.asarray(noise) ** 2 * np.maximum(chi2.ppf(_UNFIT, who.counts), 2.0 * who.counts)[:, None]
    return np.asarray((who.labels >= 0) & (who.losses > limits).all(axis=1))


def warn_of_clusters(
    federation: Federation,
    models: Matrix,
    who: ClusterAssignment,
    spare: int | None,
    options: Mapping[str, Any],
    limit: int,
) -> None:
    """Warn of a `spare` cluster, a cluster that may hold two, and a reached `limit` of clusters (0: none)."""
    what = [] if spare is None else [f"cluster {spare} has no sites"]
    if spare is not None and who.rows[spare] >= 0.5:
        what = [f"cluster {spare} has the same model as another one, up to noise"]
    advice = f"n_clusters={len(who.rows)} may be too many, or a cluster was missed (try start='spectral', or more "
    advice += "random starts)"
    more = [] if options["loss"] != "squared" else _too_few(federation, models, who, options, limit)
    if more:
        advice = "a cluster may be missing (try start='spectral', another random_state, or more clusters)"
    if what or more:
        warnings.warn(f"{' and '.join(what + more)}: {advice}", stacklevel=5)


def _too_few(
    federation: Federation, models: Matrix, who: ClusterAssignment, options: Mapping[str, Any], limit: int
) -> list[str]:
    """Return the evidence for more clusters."""
    if limit:
        return [f"max_clusters={limit} was reached, and one cluster more would fit better"]
    robust = options["aggregator"] is not None

    def spread(cluster: int) -> float:
        try:
            return spread_over_noise(federation.subset(who.sites_of(cluster)), start=models[cluster], robust=robust)
        except QuorumError:  # its sites have not replied in this round
            return 0.0

    noisy = _noisy_cluster(who)
    # Clusters may differ in noise: only sites that differ in their models too are two clusters in one.
    if noisy is not None and spread(noisy) > 1.0:
        times = who.noise[noisy] / _least_noise(who)
        return [f"cluster {noisy} has {times:.1f} times the noise of another one"]
    if len(models) == 1 and options["n_clusters"] == 1:
        times = spread(0)
        if times > _UNLIKE:
            return [f"sites differ from the one model by {times:.1f} times what noise alone makes"]
    unfit = int(_misfits(who, who.noise).sum()) if robust else 0
    if unfit >= max(3, _MANY_UNFIT * len(who.sites)):
        return [f"{unfit} of {len(who.sites)} sites fit no model (they are malicious, or follow other models)"]
    return []


def warn_of_rule(who: ClusterAssignment, refused: tuple[int, ...], rule: Aggregator | None) -> None:
    """Warn of clusters too small for the aggregator, or for its number of malicious sites, and of sites that copy."""
    if rule is None:
        return
    answered = np.flatnonzero((who.labels >= 0) & (who.counts > 0))
    first = first_of_copies(who.losses[answered]) if len(answered) > 1 else np.ones(len(answered), dtype=bool)
    copies = [who.sites[place] for place in answered[~first]]
    if copies:
        warnings.warn(
            f"{len(copies)} of {len(who.sites)} sites repeat the losses of another site ({', '.join(copies[:5])}"
            f"{', ...' if len(copies) > 5 else ''}): those of own rows are never equal, and copies have one vote",
            stacklevel=5,
        )
    sizes = {j: len(who.sites_of(j)) for j in range(len(who.rows)) if j not in refused}
    weak = {j: within_a_group(rule, size, len(who.sites)) for j, size in sizes.items() if size}
    fewer = [f"{other!r} in cluster {j} ({sizes[j]} sites)" for j, other in weak.items() if other != rule]
    if fewer:
        warnings.warn(
            f"{rule!r} is for more malicious sites than single clusters tolerate, and was replaced by "
            f"{', '.join(fewer)}: a cluster tolerates fewer than half of its own sites",
            stacklevel=5,
        )
    if refused:
        names = ", ".join(map(str, refused))
        warnings.warn(
            f"{rule!r} refused cluster {names}, which had too few sites and kept its model: use another rule, or fewer "
            "clusters",
            stacklevel=5,
        )

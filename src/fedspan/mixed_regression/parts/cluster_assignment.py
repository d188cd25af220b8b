"""Which cluster each site belongs to, how surely, and what noise the clusters have: one call, k + 1 numbers up a site.

Single replies are needed: labels of sites are what is wanted. Sites that do not answer are asked twice more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from scipy.stats import chi2

from fedspan.aggregation import Aggregator
from fedspan.errors import InputError, QuorumError
from fedspan.federation import Federation
from fedspan.mixed_regression.logistic_fedx import local_logistic_losses
from fedspan.mixed_regression.parts.cluster_start import checked_losses, local_losses
from fedspan.mixed_regression.parts.refinement import Matrix, Vector
from fedspan.mixed_regression.random_start import LOSSES

_TINY = np.finfo(np.float64).tiny
_ROUNDS = 20
_LARGEST = 1e100  # losses beyond are lies, and must not overflow


@dataclass(frozen=True)
class ClusterAssignment:
    """The sites' clusters.

    Attributes
    ----------
    sites : tuple of str
    labels : array (M,)
        The most probable cluster of each site; -1 for sites that did not answer.
    nearest : array (M,)
        The cluster of smallest loss, to which a refinement gives each site; -1 as above.
    proba : array (M, k)
        Probability of each cluster; for silent sites, the clusters' shares.
    shares : array (k,)
        Of the sites: the mean probability.
    rows : array (k,)
        Number of rows in each cluster.
    noise : array (k,)
        Standard deviation of the noise in each cluster.
    log_likelihood : float
        Of all rows of the sites that answered, with the clusters' shares as prior.
    losses : array (M, k), counts : array (M,)
        Every site's loss under each model, and its number of rows, as it says; 0 and 1 for silent sites.
    """

    sites: tuple[str, ...]
    labels: NDArray[np.intp]
    nearest: NDArray[np.intp]
    proba: Matrix
    shares: Vector
    rows: Vector
    noise: Vector
    log_likelihood: float
    losses: Matrix
    counts: Vector

    def sites_of(self, cluster: int) -> list[str]:
        """Return the sites of a cluster."""
        return [name for name, label in zip(self.sites, self.labels, strict=True) if label == cluster]


def cluster_assignment(
    fed: Federation, *, models: Matrix, loss: str = "squared", aggregator: Aggregator | None = None
) -> ClusterAssignment:
    """Return the posterior clusters of all sites, with shares and noise found along the way.

    Parameters
    ----------
    models : array (k, d)
    loss : "squared" or "logistic"
        Gaussian noise of unknown deviation in each cluster, or the likelihood of classes, which has no noise (NaN).
    aggregator : Aggregator, optional
        Where some sites may lie the noise is a median over the sites, and reported numbers of rows are not believed.
    """
    if loss not in LOSSES:
        raise InputError(f"loss={loss!r} must be one of {', '.join(LOSSES)}")
    losses, counts, silent = _answers(fed, models, local_losses if loss == "squared" else local_logistic_losses)
    known = np.ones(len(fed.sites), dtype=bool)
    known[silent] = False
    robust = aggregator is not None
    parameters = models.shape[1] if loss == "squared" else None
    proba, shares, rows, noise = _posterior(losses[known], counts[known], parameters, robust=robust)
    everybody = np.tile(shares, (len(fed.sites), 1))
    everybody[known] = proba
    labels = everybody.argmax(axis=1)
    nearest = losses.argmin(axis=1)
    labels[silent] = nearest[silent] = -1
    score = _scores(losses[known], counts[known] * (parameters is not None), shares, _deviation(noise))
    likelihood = float(logsumexp(score, axis=1).sum())
    if parameters is not None:
        likelihood -= 0.5 * float(np.log(2.0 * np.pi)) * float(counts[known].sum())
    return ClusterAssignment(fed.sites, labels, nearest, everybody, shares, rows, noise, likelihood, losses, counts)


def _scores(losses: Matrix, counts: Vector, shares: Vector, noise: Vector) -> Matrix:
    """Return the log-likelihoods (L, k) of squared errors of `counts` rows, plus those of the clusters themselves."""
    variance = np.maximum(noise, np.sqrt(_TINY)) ** 2
    prior = np.log(np.maximum(shares, _TINY))
    return np.asarray(prior - losses / (2.0 * variance) - counts[:, None] / 2.0 * np.log(variance))


def _deviation(noise: Vector) -> Vector:
    """Return the noise, or the deviation with which losses are minus log-likelihoods already."""
    return np.where(np.isnan(noise), np.sqrt(0.5), noise)


def _answers(fed: Federation, models: Matrix, local: Any) -> tuple[Matrix, Vector, NDArray[np.intp]]:
    found: dict[str, tuple[Vector, int]] = {}
    for attempt in range(3):
        missing = [name for name in fed.sites if name not in found]
        if not missing:
            break
        try:
            replies = fed.ask(local, missing, models=models)
            replies = fed.accept(replies, lambda reply: checked_losses(reply, len(models)))
        except QuorumError:  # few are left, and they do not answer
            if attempt == 0:
                raise
            continue
        found |= {name: (reply["losses"], reply["n"]) for name, reply in replies.ok.items()}
    losses, counts = np.zeros((len(fed.sites), len(models))), np.ones(len(fed.sites))
    for i, name in enumerate(fed.sites):
        if name in found:
            losses[i], counts[i] = np.minimum(found[name][0], _LARGEST), max(1, found[name][1])
    return losses, counts, np.array([i for i, name in enumerate(fed.sites) if name not in found], dtype=np.intp)


def _posterior(
    losses: Matrix, counts: Vector, parameters: int | None, *, robust: bool
) -> tuple[Matrix, Vector, Vector, Vector]:
    """Alternate between probabilities, and shares and noise, beginning with the cluster of smallest loss.

    Without `parameters` losses are minus log-likelihoods, and there is no noise to find.
    """
    k = losses.shape[1]
    size = np.full(len(counts), float(np.median(counts))) if robust else counts
    proba = np.zeros(losses.shape)
    proba[np.arange(len(losses)), losses.argmin(axis=1)] = 1.0
    # Without any noise a rounding error would decide: some is always there, small beside what tells clusters apart.
    least = 1e-7 * float(np.sqrt(np.median((losses / counts[:, None]).max(axis=1))))
    noise = np.full(k, np.nan)
    for _ in range(_ROUNDS):
        shares, rows = proba.mean(axis=0), size @ proba
        if parameters is None:
            new = softmax(_scores(losses, np.zeros(len(counts)), shares, _deviation(noise)), axis=1)
        else:
            common = _noise(losses, counts, proba, parameters * k, robust)
            own = [_noise(losses[:, [j]], counts, proba[:, [j]], parameters, robust) for j in range(k)]
            # A cluster of hardly more rows than parameters says little about its noise.
            noise = np.maximum(np.where(rows > 2.0 * parameters + 2.0, own, common), least)
            new = softmax(_scores(losses, counts, shares, noise), axis=1)
        moved, proba = np.abs(new - proba).max(), new
        if moved < 1e-6:
            break
    return proba, proba.mean(axis=0), size @ proba, noise


def _noise(losses: Matrix, counts: Vector, proba: Matrix, parameters: int, robust: bool) -> float:
    """Return the standard deviation of the noise behind squared errors (L, c) with probabilities (L, c)."""
    there = proba.sum(axis=1) > 0.5
    if robust and there.any():
        # The median of a chi-square distribution of n degrees of freedom stands for n rows.
        per_row = float(np.median((losses * proba).sum(axis=1)[there] / chi2.median(counts[there])))
        rows = float(np.median(counts[there])) * int(there.sum())
    else:
        rows = float((counts[:, None] * proba).sum())
        per_row = float((losses * proba).sum()) / max(rows, _TINY)
    free = rows - parameters
    return float(np.sqrt(per_row * (rows / free if free > 0.1 * rows else 1.0)))

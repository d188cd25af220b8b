"""The probable cluster of every site, and of a new client from a few of its rows; the noise of the clusters.

For all sites: one call, k + 1 numbers up a site. Single replies are needed, because the result is one label per site.
Sites that do not reply get the request twice more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from scipy.stats import chi2

from fedspan.aggregation import Aggregator
from fedspan.checks import one_of
from fedspan.errors import QuorumError
from fedspan.federation import Federation
from fedspan.federation.site.parameters import Matrix, Vector
from fedspan.linalg import compressed
from fedspan.mixed_regression.logistic_fedx import local_logistic_losses
from fedspan.mixed_regression.parts.cluster_start import checked_losses, local_losses
from fedspan.mixed_regression.random_start import LOSSES

_TINY = np.finfo(np.float64).tiny
_ROUNDS = 20
_LARGEST = 1e100  # larger losses are false reports, and must not overflow


@dataclass(frozen=True)
class ClusterAssignment:
    """The sites' clusters.

    Attributes
    ----------
    sites : tuple of str
    labels : array (M,)
        The most probable cluster of each site; -1 for sites that did not reply.
    nearest : array (M,)
        The cluster of smallest loss, to which a refinement assigns each site; -1 as above.
    proba : array (M, k)
        Probability of each cluster; for silent sites, the clusters' shares.
    shares : array (k,)
        Of the sites: the mean probability.
    rows, noise : array (k,)
        Number of rows, and standard deviation of the noise, in each cluster.
    log_likelihood : float
        Of all rows of the sites that replied, with the clusters' shares as prior.
    losses : array (M, k), counts : array (M,)
        Every site's reported loss under each model, and number of rows; 0 and 1 for silent sites.
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
    """Return the posterior clusters of all sites under `models` (k, d), with their shares and noise.

    The `loss` is "squared", with Gaussian noise of unknown deviation in each cluster, or "logistic", the likelihood of
    classes, which has no noise (NaN). With an `aggregator`, the noise is a median over the sites, and reported numbers
    of rows are not trusted.
    """
    one_of("loss", loss, LOSSES)
    losses, counts, silent = _replies(fed, models, local_losses if loss == "squared" else local_logistic_losses)
    known = ~silent
    parameters = models.shape[1] if loss == "squared" else None
    proba = np.empty(losses.shape)
    proba[known], shares, rows, noise = _posterior(
        losses[known], counts[known], parameters, robust=aggregator is not None
    )
    proba[silent] = shares
    labels, nearest = proba.argmax(axis=1), losses.argmin(axis=1)
    labels[silent] = nearest[silent] = -1
    score = _scores(losses[known], counts[known] * (parameters is not None), shares, _deviation(noise))
    likelihood = float(logsumexp(score, axis=1).sum())
    if parameters is not None:
        likelihood -= 0.5 * float(np.log(2.0 * np.pi)) * float(counts[known].sum())
    return ClusterAssignment(fed.sites, labels, nearest, proba, shares, rows, noise, likelihood, losses, counts)


def _scores(losses: Matrix, counts: Vector, shares: Vector, noise: Vector) -> Matrix:
    """Return the log-likelihoods (L, k) of squared errors of `counts` rows, plus those of the clusters themselves."""
    variance = np.maximum(noise, np.sqrt(_TINY)) ** 2
    prior = np.log(np.maximum(shares, _TINY))
    return np.asarray(prior - losses / (2.0 * variance) - counts[:, None] / 2.0 * np.log(variance))


def _deviation(noise: Vector) -> Vector:
    """Return the noise, or the deviation with which losses are minus log-likelihoods already."""
    return np.where(np.isnan(noise), np.sqrt(0.5), noise)


def _replies(federation: Federation, models: Matrix, local: Any) -> tuple[Matrix, Vector, NDArray[np.bool_]]:
    """Return losses (M, k) and numbers of rows (M,) of all sites, and which of them did not reply."""
    place = {name: i for i, name in enumerate(federation.sites)}
    losses, counts = np.zeros((len(place), len(models))), np.ones(len(place))
    silent = np.ones(len(place), dtype=bool)
    for attempt in range(3):
        missing = [name for name, i in place.items() if silent[i]]
        if not missing:
            break
        try:
            replies = federation.ask(local, missing, models=models)
            replies = federation.accept(replies, lambda reply: checked_losses(reply, len(models)))
        except QuorumError:  # the few sites that are left do not reply
            if attempt == 0:
                raise
            continue
        for name, reply in replies.ok.items():
            i = place[name]
            losses[i], counts[i], silent[i] = np.minimum(reply["losses"], _LARGEST), max(1, reply["n"]), False
    return losses, counts, silent


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
    # Without noise a rounding error would decide: assume some, small beside the differences of clusters.
    least = 1e-7 * float(np.sqrt(np.median((losses / counts[:, None]).max(axis=1))))
    noise = np.full(k, np.nan)
    for _ in range(_ROUNDS):
        shares, rows = proba.mean(axis=0), size @ proba
        if parameters is None:
            new = softmax(_scores(losses, np.zeros(len(counts)), shares, _deviation(noise)), axis=1)
        else:
            common = _noise(losses, counts, proba, parameters * k, robust)
            own = [_noise(losses[:, [j]], counts, proba[:, [j]], parameters, robust) for j in range(k)]
            # A cluster of hardly more rows than parameters does not determine its noise.
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


@dataclass(frozen=True, eq=False)
class Assignment:
    """The cluster of a new client: the most probable `label`, the `proba` (k,) of all, and its `confidence`."""

    label: int
    proba: Vector
    confidence: float


def assigned(shares: Vector, likelihood: Vector) -> Assignment:
    """Return the most probable cluster by the clusters' shares (k,) and the log-likelihoods (k,) of the rows."""
    score = np.log(np.maximum(shares, _TINY)) + likelihood
    proba = np.exp(score - score.max())
    proba /= proba.sum()
    label = int(proba.argmax())
    return Assignment(label, proba, float(proba[label]))


def gaussian_likelihood(phi: Matrix, residuals: Matrix, noise: Vector, rows: Vector) -> Vector:
    """Return the log-likelihood (k,) of m rows under each cluster, allowing for the error of its model.

    The features `phi` (m, d) are scaled to about the unit matrix as covariance. A model learned from N of the `rows`
    (k,) then has about the covariance ``noise^2 / (N - d - 1)``. `residuals` are (m, k).
    """
    m, d = phi.shape
    found = np.zeros(len(noise))
    for j in range(len(noise)):
        free = max(float(rows[j]) - d - 1.0, 1.0)
        R, c, rest = compressed([(phi, residuals[:, j])], d)
        L = np.linalg.cholesky(np.eye(len(R)) + R @ R.T / free)
        square = float(np.sum(np.linalg.solve(L, c) ** 2)) + rest
        log_det = 2.0 * float(np.sum(np.log(np.diagonal(L)))) + 2.0 * m * np.log(noise[j])
        found[j] = -0.5 * (square / noise[j] ** 2 + log_det)
    return found

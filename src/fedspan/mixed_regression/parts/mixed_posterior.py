"""The probable cluster of a client, from a few rows of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedspan.linalg import compressed

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Assignment:
    """The cluster of a new client.

    Attributes
    ----------
    label : int
        The most probable cluster.
    proba : array (k,)
    confidence : float
        The probability of `label`.
    """

    label: int
    proba: Vector
    confidence: float


def assigned(shares: Vector, likelihood: Vector) -> Assignment:
    """Return the cluster that is most probable by the shares (k,) before, and the log-likelihoods (k,) of the rows."""
    score = np.log(np.maximum(shares, _TINY)) + likelihood
    proba = np.exp(score - score.max())
    proba /= proba.sum()
    label = int(proba.argmax())
    return Assignment(label, proba, float(proba[label]))


def gaussian_likelihood(phi: Matrix, residuals: Matrix, noise: Vector, rows: Vector) -> Vector:
    """Return the log-likelihood (k,) of m rows under each cluster, which allows for what is unknown of its model.

    Parameters
    ----------
    phi : array (m, d)
        Scaled features, in which the rows that models were learned from have about the unit matrix as covariance. A
        model from N rows then has about the covariance ``noise^2 / (N - d - 1)``.
    residuals : array (m, k)
    noise, rows : array (k,)
        Standard deviation of the noise, and number of rows that each model was learned from.
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

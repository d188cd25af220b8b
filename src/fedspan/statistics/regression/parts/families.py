"""Families of generalised linear models with their canonical links, as functions of single rows.

McCullagh and Nelder, "Generalized linear models" (1989), chapter 2. With a canonical link the observed information is
the expected one, so that Newton's method is Fisher scoring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaln, xlogy

from fedspan.arrays import Vector


@dataclass(frozen=True)
class Family:
    """A family with its canonical link.

    Attributes
    ----------
    name, shown : str
        As in requests, and as in tables.
    mean, variance : callable
        The mean of a row with this linear predictor, and the variance of a row with this mean, up to the scale.
    loglik, deviance : callable
        Of rows with targets y: of the linear predictor, and of the mean.
    start : callable
        A mean near the target, given the mean of all targets: the start of the iteration.
    link : callable
    """

    name: str
    shown: str
    mean: Callable[[Vector], Vector]
    variance: Callable[[Vector], Vector]
    loglik: Callable[[Vector, Vector], Vector]
    deviance: Callable[[Vector, Vector], Vector]
    start: Callable[[Vector, float], Vector]
    link: Callable[[Vector], Vector]


def _binomial_deviance(y: Vector, mu: Vector) -> Vector:
    return np.asarray(-2 * (xlogy(y, mu) + xlogy(1 - y, 1 - mu)))


def _poisson_mean(eta: Vector) -> Vector:
    return np.exp(np.clip(eta, -700.0, 300.0))


BINOMIAL = Family(
    "binomial",
    "Logit",
    mean=expit,
    variance=lambda mu: mu * (1 - mu),
    loglik=lambda y, eta: y * eta - np.logaddexp(0.0, eta),
    deviance=_binomial_deviance,
    start=lambda y, level: (y + 0.5) / 2,
    link=lambda mu: np.log(mu / (1 - mu)),
)
POISSON = Family(
    "poisson",
    "Poisson",
    mean=_poisson_mean,
    variance=lambda mu: mu,
    loglik=lambda y, eta: y * eta - _poisson_mean(eta) - gammaln(y + 1.0),
    deviance=lambda y, mu: 2 * (xlogy(y, np.where(y > 0, y / mu, 1.0)) - (y - mu)),
    start=lambda y, level: (y + level) / 2,
    link=np.log,
)
FAMILIES = {family.name: family for family in (BINOMIAL, POISSON)}

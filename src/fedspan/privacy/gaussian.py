"""The exact Gaussian mechanism: the noise for an epsilon and delta of any size, and back.

A reply moves by at most Delta (in the Euclidean norm) when one row is replaced. With normal noise of deviation sigma it
is mu-Gaussian-private, ``mu = Delta / sigma``. That is (epsilon, delta)-private exactly where

    delta >= Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu)

(Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018). The familiar
``sigma = sqrt(2 ln(1.25 / delta)) / epsilon`` holds only for epsilon below 1, and is not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr

from fedspan.checks import real_number

_ROOT_2 = math.sqrt(2.0)


def check_budget(epsilon: object, delta: object) -> tuple[float, float]:
    """Return epsilon (1e-6 to 1e7) and delta (1e-100 to 0.5) as numbers, or refuse them."""
    return (
        real_number("epsilon", epsilon, least=1e-6, most=1e7),
        real_number("delta", delta, least=1e-100, most=0.5, why=", well below one over the number of rows"),
    )


def log_delta(epsilon: float, mu: float) -> float:
    """Return the logarithm of the smallest delta for which mu-Gaussian privacy is (epsilon, delta)-privacy.

    ``e^epsilon`` times the second density is the first. So delta is one density times a difference of Mills ratios,
    which neither overflows nor loses digits that matter.

    Examples
    --------
    >>> round(math.exp(log_delta(0.0, 1.0)), 6)  # the total variation between N(0, 1) and N(1, 1)
    0.382925
    """
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    second = math.sqrt(math.pi / 2) * float(erfcx(far / _ROOT_2))
    if near > -5:
        apart = math.sqrt(math.pi / 2) * float(erfcx(near / _ROOT_2)) - second
        density = -near * near / 2 - math.log(2 * math.pi) / 2
        return density + math.log(apart) if apart > 0 else -math.inf
    # Phi is nearly 1, so subtract the second term from it in logarithms.
    first = float(log_ndtr(-near))
    return first + math.log1p(-second * math.exp(-near * near / 2 - first) / math.sqrt(2 * math.pi))


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu that is (epsilon, delta)-private.

    Examples
    --------
    >>> round(mu_of(1.0, 1e-5), 4)  # one reply needs 3.73 times its sensitivity as noise
    0.2681
    """
    epsilon, delta = check_budget(epsilon, delta)
    target = math.log(delta)
    low, high = 1e-9, 1.0
    while log_delta(epsilon, high) < target:
        low, high = high, 2 * high
    return math.exp(_root(lambda t: log_delta(epsilon, math.exp(t)) - target, math.log(low), math.log(high)))


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest epsilon for which mu-Gaussian privacy is (epsilon, delta)-private; 0 where delta suffices.

    Examples
    --------
    >>> round(epsilon_of(mu_of(8.0, 1e-5), 1e-5), 9)
    8.0
    """
    delta = check_budget(1.0, delta)[1]
    if not mu > 0:
        return 0.0
    if not math.isfinite(mu):
        return math.inf
    target = math.log(delta)
    if log_delta(0.0, mu) <= target:
        return 0.0
    most = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # the bound of zero-concentrated privacy
    return _root(lambda e: log_delta(e, mu) - target, 0.0, most)


def sigma_of(epsilon: float, delta: float, sensitivity: float = 1.0, events: int = 1) -> float:
    """Return the deviation of the noise that makes all of `events` replies together (epsilon, delta)-private.

    Examples
    --------
    >>> round(sigma_of(8.0, 1e-5, events=50), 2), round(sigma_of(1.0, 1e-5, events=50), 1)
    (4.24, 26.4)
    """
    return sensitivity * math.sqrt(events) / mu_of(epsilon, delta)


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(f, low, high, xtol=1e-14, rtol=4 * 2.0**-52, maxiter=500))

"""The cost of many noisy replies together.

Gaussian replies compose exactly, also where each query depends on the replies before. ``mu^2`` adds up (Dong, Roth and
Su, "Gaussian differential privacy", 2022; with a budget fixed in advance, Smith and Thakurta, 2022). Other noise is
counted by rho, the unit of zero-concentrated privacy; a Gaussian reply has ``rho = mu^2 / 2``.

The accountant of the package dp-accounting gives a second, independent figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize_scalar

from fedspan.errors import MissingPackageError
from fedspan.privacy.gaussian import check_budget, epsilon_of, mu_of

#: Above this epsilon the moments (Renyi) accountant is within a few per cent, and privacy loss distributions are slow.
_RENYI_ABOVE = 300.0


@dataclass(frozen=True)
class Cost:
    """The privacy that was spent: ``mu2`` on Gaussian replies, ``rho`` on others.

    Examples
    --------
    >>> spent = Cost(mu2=0.5) + Cost(mu2=0.25)
    >>> spent.mu2, round(spent.epsilon(1e-5), 4) == round(epsilon_of(0.75**0.5, 1e-5), 4)
    (0.75, True)
    """

    mu2: float = 0.0
    rho: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.mu2 + other.mu2, self.rho + other.rho)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon at `delta`: exact where all noise was Gaussian."""
        if not self.rho:
            return epsilon_of(math.sqrt(self.mu2), delta)
        return zcdp_epsilon(self.rho + self.mu2 / 2, delta)

    def within(self, epsilon: float, delta: float) -> bool:
        """Return whether this is at most (epsilon, delta), up to rounding."""
        if not self.rho:
            return self.mu2 <= mu_of(epsilon, delta) ** 2 * (1 + 1e-9)
        return self.epsilon(delta) <= epsilon * (1 + 1e-9)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon of rho-zero-concentrated privacy at `delta`.

    The best order of the conversion of Canonne, Kamath and Steinke (2020, Proposition 12).

    Examples
    --------
    >>> zcdp_epsilon(0.1, 1e-5) < 0.1 + 2 * math.sqrt(0.1 * math.log(1e5))  # the older, looser form
    True
    """
    delta = check_budget(1.0, delta)[1]
    if not rho > 0:
        return 0.0
    if not math.isfinite(rho):
        return math.inf

    def at(log_order: float) -> float:
        more = math.exp(log_order)  # the order less 1
        order = 1 + more
        return rho * order + (more * math.log(more / order) - math.log(delta) - math.log(order)) / more

    best = math.log(max(math.sqrt(math.log(1 / delta) / rho), 1e-12))
    found = minimize_scalar(at, bounds=(best - 6, best + 6), method="bounded", options={"xatol": 1e-10})
    return max(0.0, float(found.fun))


def accountant_epsilon(events: Mapping[float, int], delta: float) -> float:
    """Return the epsilon that the accountant of dp-accounting computes for Gaussian replies.

    By privacy loss distributions; by Renyi orders where epsilon is in the hundreds, because the former are slow there.

    Parameters
    ----------
    events : mapping of float to int
        The number of replies, by the deviation of their noise over their sensitivity.
    delta : float

    Examples
    --------
    >>> round(accountant_epsilon({26.4: 50}, 1e-5), 1)
    1.0
    """
    return _accountant_epsilon(tuple(sorted((float(z), int(k)) for z, k in events.items() if k)), float(delta))


@lru_cache(maxsize=256)
def _accountant_epsilon(events: tuple[tuple[float, int], ...], delta: float) -> float:
    try:
        import dp_accounting as dp
    except ImportError:
        raise MissingPackageError(
            "the accountant's figure needs dp-accounting: install it with 'pip install \".[privacy]\"' in a checkout"
        ) from None
    if not events:
        return 0.0
    if min(z for z, _ in events) <= 0:
        return math.inf
    mu2, count = sum(k / z**2 for z, k in events), sum(k for _, k in events)
    exact = epsilon_of(math.sqrt(mu2), delta)
    if exact > _RENYI_ABOVE or count > 10_000:
        best = 1 + math.sqrt(2 * math.log(1 / delta) / mu2)  # orders around the best one
        orders = 1 + (best - 1) * np.geomspace(1 / 8, 8, 241)
        accountant = dp.rdp.RdpAccountant(orders.tolist())
    else:
        grid = float(np.clip(2e-3 * exact / math.sqrt(count), 1e-5, 1.0))
        accountant = dp.pld.PLDAccountant(value_discretization_interval=grid)
    for z, k in events:
        accountant.compose(dp.GaussianDpEvent(z), k)
    return float(accountant.get_epsilon(delta))

"""The exact Gaussian mechanism: against its own formula in long numbers, against known values, and as laws."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from fedspan.errors import InputError
from fedspan.privacy import epsilon_of, mu_of, sigma_of, zcdp_epsilon
from fedspan.privacy.gaussian import log_delta

EPSILONS = st.floats(-3, 6).map(lambda power: 10.0**power)
DELTAS = st.floats(-12, -1).map(lambda power: 10.0**power)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.0, 1.0), (0.5, 0.3), (1.0, 2.0), (3.0, 1.5), (12.0, 4.0)])
def test_delta_is_the_formula(epsilon, mu):
    expected = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
    assert math.exp(log_delta(epsilon, mu)) == pytest.approx(expected, rel=1e-10)


def test_delta_is_the_hockey_stick_of_two_densities():
    x = np.linspace(-12, 12, 400_001)
    for epsilon, mu in [(0.1, 0.5), (2.0, 1.0), (5.0, 3.0)]:
        p, q = (np.exp(-((x - shift) ** 2) / 2) / math.sqrt(2 * math.pi) for shift in (mu, 0.0))
        expected = np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), x)
        assert math.exp(log_delta(epsilon, mu)) == pytest.approx(expected, rel=1e-5)


def test_known_values():
    # of "Improving the Gaussian mechanism" and of the map paper's settings: 50 rounds, delta 1e-5
    assert sigma_of(1.0, 1e-5) == pytest.approx(3.7306, abs=1e-4)
    assert sigma_of(1.0, 1e-5, events=50) == pytest.approx(26.38, abs=0.01)
    assert sigma_of(8.0, 1e-5, events=50) == pytest.approx(4.244, abs=0.001)
    # the classical formula promises too much beyond epsilon = 1
    assert sigma_of(100.0, 1e-5) > 1.4 * math.sqrt(2 * math.log(1.25e5)) / 100
    assert sigma_of(10.0, 1e-5, sensitivity=3.0) == pytest.approx(3 * sigma_of(10.0, 1e-5))


@given(EPSILONS, DELTAS)
def test_mu_and_epsilon_are_inverse(epsilon, delta):
    assert epsilon_of(mu_of(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-6)


@given(EPSILONS, DELTAS, st.floats(1.01, 3.0))
def test_less_privacy_needs_less_noise(epsilon, delta, more):
    assert sigma_of(more * epsilon, delta) < sigma_of(epsilon, delta)
    assert sigma_of(epsilon, min(0.4, more * delta)) < sigma_of(epsilon, delta)


@given(st.lists(st.floats(0.05, 20.0), min_size=1, max_size=6), DELTAS)
def test_more_replies_never_cost_less(multipliers, delta):
    costs = [1 / z**2 for z in multipliers]
    together = epsilon_of(math.sqrt(sum(costs)), delta)
    assert together >= max(epsilon_of(math.sqrt(cost), delta) for cost in costs) - 1e-9


@settings(max_examples=50)
@given(EPSILONS.filter(lambda e: e < 1e4), DELTAS)
def test_concentrated_privacy_is_an_upper_bound_for_gaussian_noise(epsilon, delta):
    assert zcdp_epsilon(mu_of(epsilon, delta) ** 2 / 2, delta) >= epsilon * (1 - 1e-7)


def test_concentrated_privacy_by_a_grid_of_orders():
    rho, delta = 0.3, 1e-6
    orders = np.linspace(1.001, 200, 2_000_000)
    tail = np.log(1 / delta) + (orders - 1) * np.log1p(-1 / orders) - np.log(orders)
    assert zcdp_epsilon(rho, delta) == pytest.approx((rho * orders + tail / (orders - 1)).min(), rel=1e-6)


def test_nothing_and_everything():
    assert epsilon_of(0.0, 1e-5) == 0.0
    assert epsilon_of(math.inf, 1e-5) == math.inf
    assert epsilon_of(1e-7, 0.1) == 0.0  # delta alone covers it
    assert zcdp_epsilon(0.0, 1e-5) == 0.0


@pytest.mark.parametrize("budget", [(0, 1e-5), (-1, 1e-5), (1, 0), (1, 1), (math.nan, 1e-5), (1, True), ("1", 1e-5)])
def test_budgets_that_cannot_be_are_refused(budget):
    with pytest.raises(InputError, match=r"epsilon=|delta="):
        mu_of(*budget)


def test_a_fraction_is_a_number_too():
    assert mu_of(Fraction(1, 2), 1e-5) == mu_of(0.5, 1e-5)

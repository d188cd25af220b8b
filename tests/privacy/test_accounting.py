"""Many replies together: exact sums, and the accountant of dp-accounting beside them."""

from __future__ import annotations

import math
import sys

import pytest

from fedspan.errors import MissingPackageError
from fedspan.privacy import Cost, accountant_epsilon, epsilon_of, sigma_of, zcdp_epsilon


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 140.0, 1e3, 2.3e4, 1e6])
@pytest.mark.parametrize("rounds", [1, 50, 500])
def test_the_accountant_agrees(epsilon, rounds):
    pytest.importorskip("dp_accounting")
    multiplier = sigma_of(epsilon, 1e-5, events=rounds)
    assert accountant_epsilon({multiplier: rounds}, 1e-5) == pytest.approx(epsilon, rel=0.05)


def test_the_accountant_agrees_where_noise_differs():
    pytest.importorskip("dp_accounting")
    events = {2.0: 3, 5.0: 20, 1.2: 1}
    exact = epsilon_of(math.sqrt(3 / 4 + 20 / 25 + 1 / 1.44), 1e-6)
    assert accountant_epsilon(events, 1e-6) == pytest.approx(exact, rel=0.01)


def test_costs_add_up():
    spent = Cost(mu2=0.09) + Cost(mu2=0.16)
    assert spent.epsilon(1e-5) == pytest.approx(epsilon_of(0.5, 1e-5))
    # with something that is not Gaussian, all is counted as zero-concentrated
    assert (spent + Cost(rho=0.1)).epsilon(1e-5) == pytest.approx(zcdp_epsilon(0.125 + 0.1, 1e-5))
    assert spent.within(spent.epsilon(1e-5), 1e-5)
    assert not spent.within(0.999 * spent.epsilon(1e-5), 1e-5)
    assert not (spent + Cost(rho=0.1)).within(spent.epsilon(1e-5), 1e-5)


def test_without_the_package_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingPackageError, match=r"\.\[privacy\]"):
        accountant_epsilon({3.21: 7}, 1e-5)

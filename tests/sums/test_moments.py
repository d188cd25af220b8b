"""Mean and variance are of one set of sites, also where these change between two secure sums."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan import aggregation, attacks
from fedspan.datasets import make_subspace_sites
from fedspan.engines.local.embedded import LocalEngine
from fedspan.errors import InputError
from fedspan.federation.outcomes import Failure, FailureKind
from fedspan.sums.moments import moments

GONE = Failure(FailureKind.NO_REPLY, "offline")
SECURE = fs.Policy(secure_sum=True)


def table(outlier):
    X = np.random.default_rng(0).normal(size=(400, 3))
    X[0, 0] = outlier
    return X, np.arange(400) % 4


@pytest.fixture
def away(monkeypatch):
    """The sites that do not answer, by number of the call."""
    plan, whole = {}, LocalEngine.call

    def call(self, call, to, *args):
        outcomes = whole(self, call, to, *args)
        offline = plan.get(call.number, ())
        return {name: GONE if name in offline else outcome for name, outcome in outcomes.items()}

    monkeypatch.setattr(LocalEngine, "call", call)
    return plan


@pytest.mark.parametrize("outlier", [0.0, 1e6, 1e13])
def test_of_the_sites_that_stayed(outlier, away):
    """The first sum has a site with a huge value, which leaves: squares about its mean would cancel."""
    X, sites = table(outlier)
    away.update(dict.fromkeys(range(1, 9), ("0",)))
    found = moments(fs.federate(X, sites=sites, policy=SECURE))
    rest = X[sites != 0]
    assert (found.n, found.sites) == (300, ("1", "2", "3"))
    np.testing.assert_allclose(found.mean, rest.mean(axis=0), rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.variance, rest.var(axis=0), rtol=1e-11)


def test_of_a_site_that_comes_late(away):
    X, sites = table(1e9)
    away[0] = ["0"]
    found = moments(fs.federate(X, sites=sites, policy=SECURE))
    assert found.n == 400
    np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.variance, X.var(axis=0), rtol=1e-12)


def test_of_sites_that_come_and_go(away):
    """The result is that of the sites that answered the last round."""
    X, sites = table(1e9)
    away.update({1: ["0"], 2: ["1"], 3: ["0"], 4: ["1"], 5: ["0"]})
    found = moments(fs.federate(X, sites=sites, policy=SECURE))
    rest = X[np.isin(sites.astype(str), found.sites)]
    assert found.n == len(rest) == 300
    np.testing.assert_allclose(found.mean, rest.mean(axis=0), rtol=1e-6, atol=1e-2)


@pytest.mark.parametrize(("policy", "rounds"), [(None, 1), (SECURE, 2)], ids=["plain", "secure"])
def test_one_round_or_two_secure_ones_where_nothing_is_far(policy, rounds, away):
    X, sites = table(3.0)
    away[1] = ["0"]
    fed = fs.federate(X, sites=sites, policy=policy)
    moments(fed)
    assert len(fed.record.calls) == rounds


def test_one_round_is_of_the_sites_that_answered(away):
    X, sites = table(1e13)
    away[0] = ["0"]
    found = moments(fs.federate(X, sites=sites))
    rest = X[sites != 0]
    assert (found.n, found.sites) == (300, ("1", "2", "3"))
    np.testing.assert_allclose(found.mean, rest.mean(axis=0), rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.variance, rest.var(axis=0), rtol=1e-12)


def test_a_value_whose_square_is_out_of_range_is_refused():
    """Rather than left out: the sums, of which the first is in range, would be of different sites."""
    X, sites = table(1e13)
    fed = fs.federate(X, sites=sites, policy=SECURE)
    with pytest.raises(InputError, match=r"sums.centred_sums' is refused: .* beyond the range of secure sums"):
        fs.FedStandardScaler().fit(fed)


def test_a_minority_cannot_move_aggregated_moments():
    data = make_subspace_sites(40, 3, 10, 60, tail=0.015, seed=5)
    fed = fs.federate(data.X, sites=data.sites, seed=2)
    clean = fed.run(moments, aggregator=aggregation.CoordinateMedian())
    exact_mean, exact_variance = data.X.mean(axis=0), data.X.var(axis=0)
    deviation = np.sqrt(exact_variance / 60)
    assert np.all(np.abs(clean.mean - exact_mean) < 4 * deviation)
    for attack in (attacks.Ones(1e9), attacks.ScaledReverse(1e6), attacks.ALittleIsEnough(3.0)):
        attacked = fed.corrupt(attack, sites=fed.sites[:3]).run(moments, aggregator=aggregation.CoordinateMedian())
        assert np.all(np.abs(attacked.mean - exact_mean) < 4 * deviation)
        assert np.all(attacked.variance < 3 * exact_variance)
        assert np.all(attacked.variance > exact_variance / 3)
        assert attacked.n == len(data.X)

"""FedPE and FedPG with malicious sites: an aggregator bounds the harm, and without one the run ends with a reason."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan import aggregation, attacks
from fedspan.datasets import make_subspace_sites
from fedspan.errors import FedspanError
from fedspan.linalg import subspace_distance
from fedspan.pca.fedpe import fedpe
from fedspan.pca.fedpg import fedpg

from .consensus_sites import TRUTH, federation, run

pytestmark = pytest.mark.slow

N, R, SITES = 40, 3, 20


@pytest.fixture(scope="module")
def data():
    """Sites whose rows are alike; one of them alone finds the subspace to 0.06 (median), all together to 0.02."""
    return make_subspace_sites(N, R, SITES, 60, tail=0.015, seed=5)


def error(fed, data, protocol=fedpg, **settings):
    with fed.begin("test") as going:
        U, weights = protocol(going, rank=R, n_columns=N, **{"max_rounds": 60, **settings})
    return subspace_distance(U, data.basis), weights, going.record


def alike(data):
    return fs.federate(data.X, sites=data.sites, seed=2)


@pytest.mark.parametrize("protocol", [fedpe, fedpg], ids=["fedpe", "fedpg"])
def test_an_aggregator_takes_the_place_of_the_mean(data, protocol):
    plain = error(alike(data), data, protocol)[0]
    median, weights, record = error(alike(data), data, protocol, aggregator=aggregation.GeometricMedian())
    assert plain < 0.03
    assert median < 0.03
    assert sum(weights.values()) == pytest.approx(1.0)
    assert len(set(weights.values())) > 1
    tops = [np.linalg.eigvalsh(X.T @ X / len(X))[-1] for X in (data.X[data.sites == s] for s in np.unique(data.sites))]
    assert record.metric("rho_unit") == pytest.approx([3.0 * np.median(tops)])


ATTACKS = {
    "sign flip": attacks.SignFlip(),
    "reverse": attacks.ScaledReverse(10.0),
    "noise": attacks.RandomNoise(100.0),
    "ones": attacks.Ones(1e6),
    "largest": attacks.Ones(1.7e308),
    "mimic": attacks.Mimic(),
    "a little": attacks.ALittleIsEnough(1.0),
}


@pytest.mark.parametrize("what", ATTACKS)
def test_a_quarter_of_malicious_sites_is_tolerated(data, what):
    fed = alike(data).corrupt(ATTACKS[what], sites=alike(data).sites[:5])
    found, weights, record = error(fed, data, aggregator=aggregation.GeometricMedian())
    assert found < 0.1  # of at most sqrt(3)
    assert 0.5 < record.metric("rho")[0] / error(alike(data), data, max_rounds=1)[2].metric("rho")[0] < 4.0
    if what in ("sign flip", "reverse", "noise", "ones", "largest"):
        assert sum(weights[name] for name in fed.sites[:5]) < 0.1


def test_the_same_attacks_spoil_the_mean(data):
    for what in ("reverse", "noise"):
        fed = alike(data).corrupt(ATTACKS[what], sites=alike(data).sites[:5])
        assert error(fed, data)[0] > 0.5


def test_one_malicious_site_does_not_set_rho_where_there_is_an_aggregator():
    def boast(replies, bad, rng, call):
        return {s: {"top": 1e30, "n": 10**9} for s in bad} if call.step == "pca.spectrum" else {}

    attacked = federation().corrupt(boast, sites=["s04"])
    median = aggregation.CoordinateMedian()
    honest = run(federation(), max_rounds=1, aggregator=median)[2].metric("rho")[0]
    assert run(attacked, max_rounds=1, aggregator=median)[2].metric("rho")[0] == pytest.approx(honest, rel=1.0)
    assert run(attacked, max_rounds=1)[2].metric("rho")[0] > 1e9  # without one every site is believed


def test_the_mean_as_an_aggregator_believes_the_numbers_of_rows():
    U, weights, _ = run(federation(), aggregator=aggregation.Mean(), tol=1e-7, max_rounds=300)
    assert subspace_distance(U, TRUTH) < 1e-4
    assert weights["s08"] / weights["s00"] == pytest.approx(66 / 10)


def test_resilient_aggregators_weigh_sites_and_not_rows():
    trimmed = run(federation(), aggregator=aggregation.TrimmedMean(0), tol=1e-7, max_rounds=300)
    assert set(np.round(list(trimmed[1].values()), 12)) == {round(1 / 9, 12)}
    assert subspace_distance(trimmed[0], TRUTH) > 1e-3  # the PCA of the mean covariance, not of the pooled rows


def test_huge_messages_end_the_run_with_a_reason():
    def shout(replies, bad, rng, call):
        return {s: {**replies.get(s, {}), "message": np.full((8, 3), 1.7e308)} for s in bad} if call.number else {}

    for bad in (["s01", "s02", "s03"], ["s01"]):  # a finite mean, but the sites cannot compute with it
        with pytest.raises(FedspanError):
            run(federation().corrupt(shout, sites=bad))
    with pytest.raises(FedspanError):
        run(federation().corrupt(attacks.Ones(1.7e308, steps=["local_spectrum"]), sites=["s08"]))


def test_messages_that_cancel_end_the_run_with_a_reason():
    def nothing(replies, bad, rng, call):
        return {s: {**replies[s], "message": np.zeros((8, 3))} for s in bad} if call.number else {}

    fed = federation().corrupt(nothing, sites=federation().sites)
    with pytest.raises(FedspanError, match="too low a rank"):
        run(fed, max_rounds=1)


def test_strange_eigenvalues_cost_their_site_and_never_the_run():
    for reply in ({"top": -1.0, "n": 5}, {"top": 1.0, "n": -5}, {"top": "x", "n": 5}, {"top": 1.0, "n": 2.5}, {}):

        def attack(replies, bad, rng, call, reply=reply):
            return dict.fromkeys(bad, reply) if call.step == "pca.spectrum" else {}

        U, weights, record = run(federation().corrupt(attack, sites=["s03"]), tol=1e-6)
        assert "s03" in record.calls[0].failed
        assert "s03" in weights  # it may still take part
        assert subspace_distance(U, TRUTH) < 1e-5

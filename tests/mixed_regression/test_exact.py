"""Exact rounds: least squares of the clusters, and clusters that keep their models."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import GeometricMedian, Krum, TrimmedMean
from fedspan.errors import InputError
from fedspan.linalg import SiteStack
from fedspan.mixed_regression.exact import exact_round
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.parts.cluster_rounds import Belief

from .attacks import only
from .mixtures import federation, mixture, near


@pytest.mark.parametrize("weights", ["cluster", "total"])
def test_exact_refinement_is_least_squares_of_the_clusters(weights):
    made = mixture(3)
    expected = SiteStack(made[0], made[1], made[5]).fitted(made[3], made[4])
    fed = federation(made)
    with fed.begin("exact") as run:
        found = fedx(run, models=near(made), update="exact", weights=weights, max_rounds=200, tol=1e-12)
    np.testing.assert_allclose(found.models, expected, atol=1e-9)
    assert found.converged
    grams = [call for call in run.record.calls if call.step == "mixed_regression.normal_equations"]
    if weights == "cluster":  # solved clusters get no second request
        assert len(grams) == 2
    else:
        assert len(grams) > 10


def test_normal_equations_of_another_size_leave_a_cluster_of_one_site_where_it_is():
    made = mixture(2, sizes=(8,) * 13, k=2)
    X, y = made[0], made[0] @ made[4][0]
    y[:8] = X[:8] @ made[4][1]  # the second cluster has one site
    fed = fs.federate(X, y, sites=made[2])
    near = made[4] + 0.01
    for value in (np.zeros(3), np.zeros((5, 5)), 1.0):
        attacked = fed.corrupt(only("gram", value), sites=["0000"])
        for options in ({}, {"aggregator": GeometricMedian()}):
            found = exact_round(attacked, models=near, belief=Belief(np.full(2, 0.5)), **options)
            np.testing.assert_array_equal(found.change[1], 0.0)
            assert np.linalg.norm(found.change[0]) > 0.0


def test_a_rule_that_refuses_a_small_cluster_leaves_its_model_in_exact_rounds_too():
    made = mixture(2, sizes=(8,) * 13, k=2)
    X, y = made[0], made[0] @ made[4][0]
    y[:8] = X[:8] @ made[4][1]
    fed, near = fs.federate(X, y, sites=made[2]), made[4] + 0.01
    for update in ("exact", "fedavg"):
        found = fedx(fed, models=near, update=update, aggregator=Krum(2), max_rounds=3)
        np.testing.assert_array_equal(found.models[1], near[1])
        assert found.refused == (1,)
    with pytest.raises(InputError, match="f=9 is too many"):
        fedx(fed, models=near, update="exact", aggregator=TrimmedMean(9), max_rounds=3)


def test_sites_that_claim_no_part_do_not_make_a_rule_unfit():
    """A rule for four malicious sites of 24 must not refuse a cluster because some of its sites report zeros."""
    made = mixture(0, sizes=(6,) * 24, k=2, d=3)

    def zeros(replies, bad, rng, call):
        there = {site: replies[site] for site in bad if "gram" in replies[site]}
        return {site: {key: 0.0 * np.asarray(value) for key, value in reply.items()} for site, reply in there.items()}

    fed = federation(made).corrupt(zeros, sites=federation(made).sites[::3])
    found = fedx(fed, models=near(made), update="exact", aggregator=TrimmedMean(4), max_rounds=5)
    assert not found.refused
    assert np.isfinite(found.models).all()

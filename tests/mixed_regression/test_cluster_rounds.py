"""One round: aggregated changes of each cluster."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import GeometricMedian, Krum, TrimmedMean
from fedspan.errors import InputError, QuorumError
from fedspan.mixed_regression.fedx import fedx

from .mixtures import federation, mixture, near


def test_a_rule_that_refuses_a_small_cluster_leaves_its_model_and_refuses_when_all_are_small():
    made = mixture(9, sizes=(8,) * 13, k=2)
    made[3][:] = 0
    models = np.vstack([near(made)[0], near(made)[0]])
    first = made[5][0]
    X, y = made[0].copy(), made[1].copy()
    y[:first] = X[:first] @ -models[1] * 3  # one site of its own cluster
    y[first:] = X[first:] @ models[0]
    models[1] = -3 * models[1] + 0.1
    fed = fs.federate(X, y, sites=made[2])
    found = fedx(fed, models=models, aggregator=Krum(2), max_rounds=3)
    np.testing.assert_array_equal(found.models[1], models[1])
    assert found.refused == (1,)
    lowered = fedx(fed, models=models, aggregator=TrimmedMean(2), max_rounds=3)  # of one value none is trimmed
    assert np.linalg.norm(lowered.models[1] - models[1]) > 0.0
    assert not lowered.refused
    with pytest.raises(InputError, match="f=9 is too many"):
        fedx(fed, models=models, aggregator=TrimmedMean(9), max_rounds=3)


@pytest.mark.parametrize("part", [1.0, 0.0])
def test_a_site_that_claims_more_or_less_than_one_part_is_refused(part):
    made = mixture(10)

    def false(replies, bad, rng, call):
        return {site: {**replies[site], "part": np.full(2, part)} for site in bad if "part" in replies[site]}

    fed = federation(made).corrupt(false, sites=["0003"])
    with fed.begin("false") as run:
        fedx(run, models=near(made), aggregator=GeometricMedian(), max_rounds=2)
    assert {site for _, site, why in run.record.failures if "in all 1" in why} == {"0003"}
    alone = federation(made).corrupt(false, sites=federation(made).sites)
    with pytest.raises(QuorumError):  # no site is left, and that is a refusal like any other
        fedx(alone, models=near(made), aggregator=GeometricMedian(), max_rounds=2)


def test_a_site_that_names_no_cluster_is_refused():
    made = mixture(10)

    def unlabelled(replies, bad, rng, call):
        return {site: {**replies[site], "label": 7} for site in bad if "label" in replies[site]}

    fed = federation(made).corrupt(unlabelled, sites=["0003"])
    with fed.begin("unlabelled") as run:
        fedx(run, models=near(made), update="exact", max_rounds=2)
    assert {site for _, site, why in run.record.failures if "from 0 to 1" in why} == {"0003"}

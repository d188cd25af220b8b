"""Warnings of a wrong number of clusters, and of rules that clusters are too small for."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import (
    Krum,
    MedianOfMeans,
    MultiKrum,
    SpectralFilter,
    TrimmedMean,
)
from fedspan.linalg import matched_share
from fedspan.mixed_regression.parts.cluster_repair import Fitting

from .mixtures import mixture, warned


@pytest.mark.parametrize(
    ("options", "rule"),
    [({"start": "spectral"}, None), ({"start": "spectral"}, SpectralFilter()), ({"start": "random"}, None), ({}, None)],
)
def test_too_few_clusters_cause_a_warning_after_every_start(options, rule):
    made = mixture(32, sizes=(15,) * 60, k=3, d=6)
    model = fs.FedMixedRegressor(2, random_state=0, max_rounds=30, tol=1e-2, aggregator=rule, **options)
    assert any("a cluster may be missing" in text for text in warned(model, *made[:2], sites=made[2]))


def test_clusters_of_other_noise_are_not_taken_for_two():
    made = mixture(33, sizes=(15,) * 80, k=2, d=6, noise=0.0)
    noise = np.array([0.1, 0.5])[np.repeat(made[3], made[5])] * np.random.default_rng(1).normal(size=len(made[1]))
    model = fs.FedMixedRegressor(2, start="spectral", update="exact", random_state=0)
    assert not warned(model, made[0], made[1] + noise, sites=made[2])
    assert model.noise_.max() > 4.0 * model.noise_.min()


def test_one_cluster_causes_a_warning_only_where_sites_differ():
    for k in (1, 2):
        made = mixture(34, sizes=(10,) * 60, k=k, d=4)
        texts = warned(fs.FedMixedRegressor(1, random_state=0), *made[:2], sites=made[2])
        assert any("times what noise alone makes" in text for text in texts) == (k == 2)


def test_more_clusters_than_allowed_cause_a_warning():
    made = mixture(36, sizes=(15,) * 60, k=3, d=5)
    for most in (2, 3):
        model = fs.FedMixedRegressor("auto", start="spectral", update="exact", max_clusters=most, random_state=0)
        texts = warned(model, *made[:2], sites=made[2])
        assert model.n_clusters_ == most
        assert any("max_clusters=2 was reached" in text for text in texts) == (most == 2)


@pytest.mark.parametrize(
    ("rule", "update"), [(TrimmedMean(20), "fedavg"), (MultiKrum(20, 30), "exact"), (MedianOfMeans(40), "exact")]
)
def test_a_rule_for_more_malicious_sites_than_a_cluster_tolerates_expects_fewer(rule, update):
    made = mixture(37, sizes=(12,) * 60, k=3, d=4)
    model = fs.FedMixedRegressor(3, start="spectral", update=update, aggregator=rule, random_state=0, tol=1e-3)
    texts = warned(model, *made[:2], sites=made[2])
    assert any(
        "more malicious sites than single clusters tolerate" in text and "in cluster 1 (20 sites)" in text
        for text in texts
    )
    assert matched_share(model.labels_, made[3]) == 1.0
    fine = fs.FedMixedRegressor(3, start="spectral", aggregator=TrimmedMean(2), random_state=0, tol=1e-3)
    assert not warned(fine, *made[:2], sites=made[2])


def test_a_cluster_that_a_rule_refuses_is_named():
    made = mixture(38, sizes=(12,) * 22, k=1, d=3)
    y = made[1].copy()
    y[:24] += 5.0 * made[0][:24, 0]  # two sites have a model of their own
    options = fs.FedMixedRegressor(2, aggregator=Krum(1), max_rounds=5).get_params()
    options |= {"acceleration": 0, "origin": None}
    models = np.vstack([made[4], made[4] + [5.1, 0.0, 0.0]])
    fed = fs.federate(made[0], y, sites=made[2])
    with fed.begin("refused") as run:
        fitting = Fitting(run, options)
        found = fitting.refined(models)
        with pytest.warns(UserWarning, match=r"Krum\(f=1\) refused cluster 1, which"):
            fitting.settled(found)

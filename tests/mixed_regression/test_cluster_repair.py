"""A wrong number of clusters is repaired or causes a warning, after every start, with and without an aggregator."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import (
    CoordinateMedian,
    GeometricMedian,
    Krum,
    MedianOfMeans,
    MultiKrum,
    SpectralFilter,
    TrimmedMean,
)
from fedspan.datasets import make_mixed_regression
from fedspan.linalg import matched_share
from fedspan.mixed_regression.parts.cluster_repair import Fitting

from .mixtures import federation, mixture


def uneven(seed):
    return make_mixed_regression(
        sizes=[20] * 120, proportions=[0.15, 0.2, 0.65], n_clusters=3, n_features=10, seed=seed
    )


def warned(model, *data, **options):
    """Return what a fit warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*data, **options)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("rule", "seed"), [(SpectralFilter(), 200), (GeometricMedian(), 203), (CoordinateMedian(), 209)]
)
def test_an_aggregator_does_not_miss_a_small_cluster_of_honest_sites(rule, seed):
    made = uneven(seed)
    model = fs.FedMixedRegressor(3, start="spectral", aggregator=rule, random_state=0, tol=1e-3)
    assert not warned(model, made.X, made.y, sites=made.sites)
    assert matched_share(model.labels_, made.labels) > 0.97


def test_anchors_chosen_by_votes_do_not_miss_it_either():
    made = uneven(203)
    model = fs.FedMixedRegressor(3, aggregator=SpectralFilter(), random_state=0, tol=1e-3)
    assert not warned(model, made.X, made.y, sites=made.sites)
    assert matched_share(model.labels_, made.labels) > 0.97


@pytest.mark.parametrize(("seed", "merged"), [(33, (0, 1)), (32, (0, 2))])
def test_two_halves_of_a_cluster_are_one_and_the_other_is_put_to_use(seed, merged):
    """Votes repair models where two clusters are one and another has two halves, with and without malicious sites."""
    made = mixture(seed, sizes=(12,) * 90, k=3, d=5, proportions=[0.15, 0.2, 0.65])
    labels, models = made[3], made[4].copy()
    one = np.average(models[list(merged)], axis=0, weights=np.bincount(labels)[list(merged)])
    rest = ({0, 1, 2} - set(merged)).pop()
    away = 0.05 * np.random.default_rng(0).normal(size=5)
    wrong = np.stack([one, models[rest] + away, models[rest] - away])
    options = fs.FedMixedRegressor(3, aggregator=SpectralFilter(), max_rounds=30, tol=1e-3).get_params()
    options |= {"acceleration": 0, "origin": None}

    def random_losses(replies, bad, rng, call):
        there = [site for site in bad if "losses" in replies.get(site, {})]
        return {
            site: {**replies[site], "losses": rng.uniform(0.0, 50.0, replies[site]["losses"].shape)} for site in there
        }

    for bad in ([], [f"{i:04d}" for i in range(5)]):
        fed = federation(made).corrupt(random_losses, sites=bad) if bad else federation(made)
        with warnings.catch_warnings(), fed.begin("repair") as run:
            warnings.simplefilter("ignore")
            fitting = Fitting(run, options)
            _, who = fitting.settled(fitting.refined(wrong))
            assert run.record.metric("repaired")[-1:] == [1]
        assert matched_share(who.labels[5:], labels[5:]) > 0.95


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

"""A wrong number of clusters is repaired, after every start, with and without an aggregator."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import (
    CoordinateMedian,
    GeometricMedian,
    SpectralFilter,
)
from fedspan.datasets import make_mixed_regression
from fedspan.linalg import matched_share
from fedspan.mixed_regression.parts.cluster_repair import Fitting

from .mixtures import federation, mixture, warned


def uneven(seed):
    return make_mixed_regression(
        sizes=[20] * 120, proportions=[0.15, 0.2, 0.65], n_clusters=3, n_features=10, seed=seed
    )


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

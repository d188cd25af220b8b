"""Posterior clusters of sites: shares, noise, labels and likelihood."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.aggregation import GeometricMedian
from fedspan.attacks import RandomNoise
from fedspan.errors import InputError
from fedspan.mixed_regression.parts.cluster_assignment import cluster_assignment

from .mixtures import federation, mixture


def test_shares_noise_and_labels_of_clear_clusters():
    made = mixture(0, sizes=(20,) * 60, k=2, proportions=[0.25, 0.75], noise=0.3)
    found = federation(made).run(cluster_assignment, models=made[4])
    np.testing.assert_array_equal(found.labels, made[3])
    np.testing.assert_allclose(found.shares, np.bincount(made[3]) / 60, atol=1e-3)
    np.testing.assert_allclose(found.noise, 0.3, rtol=0.1)
    assert found.rows.sum() == pytest.approx(1200)
    np.testing.assert_allclose(found.proba.sum(axis=1), 1.0)


def test_confidence_is_right_on_average_where_sites_have_two_rows():
    made = mixture(1, sizes=(2,) * 1500, k=3, d=3, noise=0.7, apart=1.5, proportions=[0.2, 0.3, 0.5])
    found = federation(made).run(cluster_assignment, models=made[4])
    right = (found.labels == made[3]).mean()
    assert 0.6 < right < 0.95
    assert found.proba.max(axis=1).mean() == pytest.approx(right, abs=0.03)


def test_the_likelihood_is_that_of_the_mixture():
    made = mixture(2, sizes=(3, 5, 4, 6), k=2, d=2, noise=0.5)
    X, y, sites, _, models, _ = made
    found = federation(made).run(cluster_assignment, models=models)
    expected = 0.0
    for name in np.unique(sites):
        rows = sites == name
        each = [
            np.log(found.shares[j])
            - 0.5 * np.sum(((y[rows] - X[rows] @ models[j]) / found.noise[j]) ** 2)
            - rows.sum() * np.log(found.noise[j] * np.sqrt(2 * np.pi))
            for j in range(2)
        ]
        expected += np.logaddexp(*each)
    assert found.log_likelihood == pytest.approx(expected, rel=1e-9)


def test_silent_sites_have_no_label_and_the_shares_as_probability():
    made = mixture(3, sizes=(6,) * 10)

    def silence(replies, bad, rng, call):
        return dict.fromkeys(bad)

    fed = federation(made).corrupt(silence, sites=["0004"])
    with fed.begin("silent") as run:
        found = cluster_assignment(run, models=made[4])
    assert found.labels[4] == -1
    np.testing.assert_allclose(found.proba[4], found.shares)
    assert [len(call.asked) for call in run.record.calls] == [10, 1, 1]
    assert len(found.labels) == 10


def test_without_any_noise_probabilities_are_still_numbers():
    found = federation(mixture(4, noise=0.0)).run(cluster_assignment, models=mixture(4, noise=0.0)[4])
    assert np.isfinite(found.proba).all()
    assert (found.proba.max(axis=1) > 0.999).all()
    assert (found.noise > 0.0).all()


def test_the_noise_is_a_median_where_sites_may_be_malicious():
    made = mixture(5, sizes=(3,) * 200, noise=0.3)
    fed = federation(made).corrupt(RandomNoise(1e6), sites=[f"{i:04d}" for i in range(40)])
    spoilt = fed.run(cluster_assignment, models=made[4])
    with fed.begin("negative") as run:
        cluster_assignment(run, models=made[4])
    assert any("losses must hold numbers from 0" in why for _, _, why in run.record.failures)
    found = fed.run(cluster_assignment, models=made[4], aggregator=GeometricMedian())
    assert spoilt.noise.max() > 100.0
    np.testing.assert_allclose(found.noise, 0.3, rtol=0.3)
    with pytest.raises(InputError, match="loss='other'"):
        cluster_assignment(fed, models=made[4], loss="other")

"""The spectral start, beside moment descent: what both must do."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import SpectralFilter
from fedspan.errors import InputError
from fedspan.linalg import bottleneck_distance
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.moment_descent import moment_descent
from fedspan.mixed_regression.spectral_start import spectral_start

from .mixtures import federation, mixture


@pytest.mark.parametrize("find", [moment_descent, spectral_start])
@pytest.mark.parametrize("covariances", [False, True])
def test_starts_are_near_every_cluster(find, covariances):
    made = mixture(0, sizes=(8,) * 80 + (20,) * 20, k=3, d=8, covariances=covariances)
    found = federation(made).run(find, n_clusters=3, n_columns=8)
    assert (
        found.covered or covariances
    )  # of their own: the anchors' models are not near enough to each other to be sure
    assert bottleneck_distance(found.models, made[4]) < (0.6 if covariances else 0.3)
    refined = fedx(federation(made), models=found.models, update="exact", max_rounds=50)
    assert bottleneck_distance(refined.models, made[4]) < 0.08


@pytest.mark.parametrize("find", [moment_descent, spectral_start])
def test_any_starting_point_will_do(find):
    made = mixture(1, sizes=(10,) * 80, k=3, d=6)
    for seed in range(2):
        start = np.random.default_rng(seed).normal(size=6)
        found = federation(made).run(find, n_clusters=3, n_columns=6, start=start)
        assert bottleneck_distance(found.models, made[4]) < 0.5


def test_starts_survive_lost_replies_and_silent_anchors():
    made = mixture(5, sizes=(10,) * 80, k=2, d=4)
    for find in (moment_descent, spectral_start):
        faulty = federation(made).with_faults(fs.FaultPlan(seed=2, drop=0.15, error=0.05, shape=0.05))
        found = faulty.run(find, n_clusters=2, n_columns=4)
        assert bottleneck_distance(found.models, made[4]) < 0.4


def test_one_cluster_starts_at_the_given_model():
    fed = federation(mixture(0))
    for find in (moment_descent, spectral_start):
        np.testing.assert_array_equal(find(fed, n_clusters=1, n_columns=5, start=np.ones(5)).models, [np.ones(5)])


def test_more_clusters_than_columns():
    made = mixture(6, sizes=(15,) * 60, k=3, d=2, apart=3.0)
    for find in (moment_descent, spectral_start):
        found = federation(made).run(find, n_clusters=3, n_columns=2)
        refined = fedx(federation(made), models=found.models, update="exact", max_rounds=50)
        assert bottleneck_distance(refined.models, made[4]) < 0.1


@pytest.mark.parametrize(("find", "options"), [(moment_descent, {"miss": 0.1}), (spectral_start, {})])
def test_starts_with_a_filter_survive_sites_that_push_together(find, options):
    made = mixture(10, sizes=(10,) * 80, k=2, d=12)

    def push(replies, bad, rng, call):
        written = {}
        for site in bad:
            reply = dict(replies[site])
            for key, value in reply.items():
                if isinstance(value, np.ndarray):
                    typical = np.median([np.linalg.norm(other[key]) for other in replies.values()])
                    reply[key] = np.full(value.shape, 4 * typical / np.sqrt(value.size))
            written[site] = reply
        return written

    attacked = federation(made).corrupt(push, sites=[f"{i:04d}" for i in range(16)])
    plain = attacked.run(find, n_clusters=2, n_columns=12, **options)
    resilient = attacked.run(find, n_clusters=2, n_columns=12, aggregator=SpectralFilter(), **options)
    assert bottleneck_distance(resilient.models, made[4]) < 0.5
    assert bottleneck_distance(plain.models, made[4]) > 0.6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_clusters": 0}, "n_clusters=0 must be a whole number between 1 and 40, the number of sites"),
        ({"n_clusters": 41}, "n_clusters=41 must be a whole number between 1 and 40"),
        ({"start": np.zeros(4)}, "one number for each of the 5 columns"),
        ({"subspace_iterations": 1}, "subspace_iterations=1 must be a whole number of at least 2"),
    ],
)
@pytest.mark.parametrize("find", [moment_descent, spectral_start])
def test_bad_settings_are_refused(find, options, words):
    with pytest.raises(InputError, match=words):
        find(federation(mixture(0)), **{"n_clusters": 2, "n_columns": 5, **options})


@pytest.mark.parametrize("key", ["product", "change", "losses", "n", "coordinates"])
@pytest.mark.parametrize("find", [moment_descent, spectral_start])
def test_a_fifth_of_the_sites_falsifies_one_key_of_phase_one(find, key):
    """All of them together, in the moments alone, or in what anchors send, in the votes, in their sizes."""
    made = mixture(4, sizes=(10,) * 80, k=2, d=8)

    def together(replies, bad, rng, call):
        written = {}
        for site in bad:
            if site in replies and key in replies[site]:
                honest = replies[site][key]
                typical = np.median([np.linalg.norm(reply[key]) for reply in replies.values()])
                false = 10**6 if key == "n" else np.full(honest.shape, 3 * typical / np.sqrt(honest.size))
                if key == "losses":
                    false = np.where(np.arange(honest.size) == 0, 0.0, 100 * typical)  # all for the first candidate
                written[site] = {**replies[site], key: false}
        return written

    fed = federation(made).corrupt(together, sites=[f"{i:04d}" for i in range(16)])
    found = fed.run(find, n_clusters=2, n_columns=8, aggregator=SpectralFilter())
    assert bottleneck_distance(found.models, made[4]) < 0.5

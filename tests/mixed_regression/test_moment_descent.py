"""Moment descent and the spectral start: they find every cluster, or report that one may be missing."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import SpectralFilter
from fedspan.attacks import Ones
from fedspan.errors import InputError
from fedspan.linalg import bottleneck_distance, matched_share
from fedspan.mixed_regression import moment_descent as descent_module
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.moment_descent import moment_descent
from fedspan.mixed_regression.spectral_start import spectral_start

from .mixtures import federation, lopsided, mixture


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


@pytest.mark.parametrize("seed", range(3))
def test_a_cluster_that_the_first_anchors_miss_is_seen_and_found(seed):
    made = lopsided(seed)
    fed = federation(made, seed=seed)
    with fed.begin("lopsided") as run:
        found = moment_descent(run, n_clusters=3, n_columns=6)
    assert run.record.metric("covered")[0] is False
    assert found.covered == (found.gap >= descent_module.CLEAR)
    assert len(found.anchors) > run.record.metric("anchors")[0]
    refined = fedx(fed, models=found.models, update="exact", max_rounds=50)
    assert bottleneck_distance(refined.models, made[4]) < 0.1


def test_a_cluster_that_stays_missing_is_reported():
    found = federation(lopsided(0)).run(moment_descent, n_clusters=3, n_columns=6, max_anchors=25)
    assert not found.covered
    assert found.gap < descent_module.CLEAR


def test_anchors_are_the_largest_sites_and_as_many_as_p_min_says():
    made = mixture(2, sizes=(6,) * 40 + (30,) * 30, k=2, d=4)
    found = federation(made).run(moment_descent, n_clusters=2, n_columns=4, p_min=0.4, miss=0.001)
    assert len(found.anchors) == int(np.ceil(np.log(2 / 0.001) / 0.4))
    assert all(int(name) >= 40 for name in found.anchors)
    labels = [made[3][int(name)] for name in found.anchors]
    nearest = [int(np.argmin(np.linalg.norm(made[4] - model, axis=1))) for model in found.anchor_models]
    assert matched_share(nearest, labels) == 1.0


def test_anchors_models_go_out_in_one_payload_and_without_names():
    made = mixture(3, sizes=(10,) * 40, k=2, d=4)
    fed = federation(made)
    with fed.begin("payloads") as run:
        moment_descent(run, n_clusters=2, n_columns=4, iterations=3, subspace_iterations=4)
    steps = [call.step.rpartition(".")[2] for call in run.record.calls]
    assert steps.count("anchor_descent") == 3
    assert steps.count("moment_product") == 4 + 2 + 2
    assert len(steps) == 1 + 3 + 8


def test_perturbed_models_are_sent_to_every_site_alone_and_little_is_lost():
    made = mixture(4, sizes=(12,) * 50, k=2, d=4)
    fed = federation(made)
    with fed.begin("perturbed") as run:
        found = moment_descent(run, n_clusters=2, n_columns=4, perturbation=0.5)
    received = [call for call in run.record.calls if call.step == "mixed_regression.receive"]
    assert len(received) == 3 * 50
    assert all(len(call.asked) == 1 for call in received)
    assert not any(call.step == "mixed_regression.moment_product" for call in run.record.calls)
    assert bottleneck_distance(found.models, made[4]) < 0.3
    far = federation(made).run(moment_descent, n_clusters=2, n_columns=4, perturbation=50.0)
    assert bottleneck_distance(far.models, made[4]) > bottleneck_distance(found.models, made[4])


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


# Malicious sites.


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


def test_anchors_that_move_much_too_far_are_refused():
    made = mixture(11, sizes=(12,) * 60, k=2, d=4)

    def leap(replies, bad, rng, call):
        if call.step != "mixed_regression.anchor_descent":
            return {}
        return {site: {"change": np.full(2, 1e200)} for site in bad}

    fed = federation(made).corrupt(leap, sites=[f"{i:04d}" for i in range(20, 32)])
    with fed.begin("leap") as run:
        found = moment_descent(run, n_clusters=2, n_columns=4, aggregator=SpectralFilter())
    assert any("times as far as most" in why for _, _, why in run.record.failures)
    assert bottleneck_distance(found.models, made[4]) < 0.4


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"p_min": 0.0}, "p_min=0.0 must be a finite number above 0"),
        ({"p_min": 0.6}, "p_min=0.6 must be .* at most 0.5, the smallest cluster's share"),
        ({"miss": 1.0}, "miss=1.0 must be .* below 1"),
        ({"perturbation": -1.0}, "perturbation=-1.0 must be"),
        ({"iterations": 0}, "iterations=0 must be a whole number of at least 1"),
    ],
)
def test_bad_settings_of_the_descent_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        moment_descent(federation(mixture(0)), **{"n_clusters": 2, "n_columns": 5, **options})


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


def test_malicious_sites_do_not_become_anchors_by_reporting_that_no_model_fits():
    """All that three sites of ten send is huge: sites that no model fits are wanted as anchors, but not they."""
    made = mixture(5, sizes=(10,) * 90, k=2, d=6)
    fed = federation(made).corrupt(Ones(1e300), sites=[f"{i:04d}" for i in range(27)])
    with fed.begin("huge") as run:
        found = moment_descent(run, n_clusters=2, n_columns=6, aggregator=SpectralFilter())
    assert len(run.record.metric("anchors")) > 1  # more of them were taken, because malicious sites report misfits
    assert bottleneck_distance(found.models, made[4]) < 0.5

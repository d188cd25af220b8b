"""Moment descent: it finds every cluster, or reports that one may be missing."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.aggregation import SpectralFilter
from fedspan.attacks import Ones
from fedspan.errors import InputError
from fedspan.linalg import bottleneck_distance, matched_share
from fedspan.mixed_regression import moment_descent as descent_module
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.moment_descent import moment_descent

from .mixtures import federation, lopsided, mixture


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


def test_anchors_are_the_largest_sites_and_as_many_as_p_min_requires():
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


# Malicious sites.


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


def test_malicious_sites_do_not_become_anchors_by_reporting_that_no_model_fits():
    """All that three sites of ten send is huge: sites that no model fits are wanted as anchors, but not they."""
    made = mixture(5, sizes=(10,) * 90, k=2, d=6)
    fed = federation(made).corrupt(Ones(1e300), sites=[f"{i:04d}" for i in range(27)])
    with fed.begin("huge") as run:
        found = moment_descent(run, n_clusters=2, n_columns=6, aggregator=SpectralFilter())
    assert len(run.record.metric("anchors")) > 1  # more of them were taken, because malicious sites report misfits
    assert bottleneck_distance(found.models, made[4]) < 0.5

"""Starts of mixed regression: they find every cluster, say when they do not, and what the paper's own does."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import SpectralFilter
from fedspan.errors import InputError
from fedspan.linalg import bottleneck_distance, matched_share
from fedspan.mixed_regression import moment_descent as descent_module
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.moment_descent import moment_descent
from fedspan.mixed_regression.moment_descent_paper import local_paper_descent
from fedspan.mixed_regression.parts.cluster_start import chosen_by_votes
from fedspan.mixed_regression.random_start import best_random_start, random_start
from fedspan.mixed_regression.spectral_start import spectral_start

from .mixtures import federation, mixture


@pytest.mark.parametrize("find", [moment_descent, spectral_start])
@pytest.mark.parametrize("covariances", [False, True])
def test_starts_are_near_every_cluster(find, covariances):
    made = mixture(0, sizes=(8,) * 80 + (20,) * 20, k=3, d=8, covariances=covariances)
    found = federation(made).run(find, n_clusters=3, n_columns=8)
    assert found.covered or covariances  # of their own: the anchors' models are not near enough to each other to say
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


def lopsided(seed):
    """Three clusters, the third one only at small sites: the largest sites miss it."""
    rng = np.random.default_rng(seed)
    models = rng.normal(size=(3, 6)) / np.sqrt(6)
    labels = np.concatenate([np.resize([0, 1], 30), np.resize([0, 1, 2], 60)])
    sizes = np.concatenate([np.full(30, 30), np.full(60, 10)])
    X = rng.normal(size=(sizes.sum(), 6))
    y = np.einsum("nd,nd->n", X, models[np.repeat(labels, sizes)]) + 0.1 * rng.normal(size=len(X))
    return X, y, np.repeat([f"{i:04d}" for i in range(90)], sizes), labels, models, sizes


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


def test_a_cluster_that_stays_missing_is_said_to_be():
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
    assert steps.count("local_anchor_descent") == 3
    assert steps.count("local_moment_product") == 4 + 2 + 2
    assert len(steps) == 1 + 3 + 8


def test_perturbed_models_are_sent_to_every_site_alone_and_little_is_lost():
    made = mixture(4, sizes=(12,) * 50, k=2, d=4)
    fed = federation(made)
    with fed.begin("perturbed") as run:
        found = moment_descent(run, n_clusters=2, n_columns=4, perturbation=0.5)
    received = [call for call in run.record.calls if call.step.endswith("local_receive")]
    assert len(received) == 3 * 50
    assert all(len(call.asked) == 1 for call in received)
    assert not any(call.step.endswith("local_moment_product") for call in run.record.calls)
    assert bottleneck_distance(found.models, made[4]) < 0.3
    far = federation(made).run(moment_descent, n_clusters=2, n_columns=4, perturbation=50.0)
    assert bottleneck_distance(far.models, made[4]) > bottleneck_distance(found.models, made[4])


def test_starts_survive_lost_replies_and_silent_anchors():
    made = mixture(5, sizes=(10,) * 80, k=2, d=4)
    for find in (moment_descent, spectral_start):
        faulty = federation(made).with_faults(fs.FaultPlan(seed=2, drop=0.15, error=0.05, shape=0.05))
        found = faulty.run(find, n_clusters=2, n_columns=4)
        assert bottleneck_distance(found.models, made[4]) < 0.4


def test_one_cluster_starts_where_it_is_told():
    fed = federation(mixture(0))
    for find in (moment_descent, spectral_start):
        np.testing.assert_array_equal(find(fed, n_clusters=1, n_columns=5, start=np.ones(5)).models, [np.ones(5)])


def test_more_clusters_than_columns():
    made = mixture(6, sizes=(15,) * 60, k=3, d=2, apart=3.0)
    for find in (moment_descent, spectral_start):
        found = federation(made).run(find, n_clusters=3, n_columns=2)
        refined = fedx(federation(made), models=found.models, update="exact", max_rounds=50)
        assert bottleneck_distance(refined.models, made[4]) < 0.1


def test_random_starts():
    fed = federation(mixture(7, k=3, d=6))
    drawn = fed.run(random_start, n_clusters=3, n_columns=6, start=np.full(6, 5.0), scale=0.1).models
    assert drawn.shape == (3, 6)
    assert 0.02 < np.linalg.norm(drawn - 5.0, axis=1).mean() < 0.3
    made = mixture(8, sizes=(12,) * 40, k=4, d=6)
    best = federation(made).run(best_random_start, n_clusters=4, n_columns=6, starts=8)
    assert bottleneck_distance(best.models, made[4]) < 0.2


def test_the_best_random_start_has_the_smallest_loss():
    made = mixture(8, sizes=(12,) * 40, k=4, d=6)
    fed = federation(made)
    with fed.begin("starts") as run:
        best = best_random_start(run, n_clusters=4, n_columns=6, starts=4, rounds=20)
    losses = run.record.metric("start_loss")
    assert len(losses) == 4
    again = fedx(fed, models=best.models, max_rounds=1)
    assert again.loss <= min(losses) * 1.01


# What the paper writes.


def test_the_paper_leaves_the_sign_of_its_vector_open():
    """Its power iteration begins anywhere: half of the anchors with one and the same residual move away from it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = X @ [1.0, 0.0]
    moves = []
    for seed in range(40):
        site = fs.Site("a", X, y).at_work({}, seed, 0)
        reply = local_paper_descent(site, np.zeros((1, 2)), np.eye(2)[:, None], separation=1.0, epsilon=0.1)
        moves.append(reply["change"][0])
    assert 8 <= sum(move > 0.0 for move in moves) <= 32
    np.testing.assert_allclose(np.abs(moves), 0.5, atol=0.1)  # half the residual's length, in the one or other way


def test_the_papers_moments_of_two_rows_do_not_find_the_clusters_where_all_pairs_do():
    made = mixture(9, sizes=(30,) * 60, k=3, d=30)
    truth = np.linalg.qr(made[4].T)[0]
    seen = {}
    for name, options in {"all pairs": {}, "paper": {"variant": "paper", "separation": 1.4}}.items():
        found = federation(made).run(moment_descent, n_clusters=3, n_columns=30, **options)
        seen[name] = bottleneck_distance(found.models, made[4]), np.linalg.norm(truth.T @ found.anchor_models.T)
    assert seen["all pairs"][0] < 0.3
    assert seen["paper"][0] > 0.9


def test_too_few_anchors_miss_a_cluster_more_often_than_the_paper_says():
    """ceil(3 k log k) anchors, three clusters of shares 0.2, 0.3, 0.5: one run in seven misses one."""
    k, p = 3, np.array([0.2, 0.3, 0.5])
    draws = np.random.default_rng(0).choice(k, size=(20_000, int(np.ceil(3 * k * np.log(k)))), p=p)
    missed = 1 - np.mean([len(set(row)) == k for row in draws])
    assert missed == pytest.approx(0.136, abs=0.01)
    ours = int(np.ceil(np.log(k / 0.001) / 0.2))
    draws = np.random.default_rng(0).choice(k, size=(20_000, ours), p=p)
    assert np.mean([len(set(row)) < k for row in draws]) < 0.001


# Liars.


def test_votes_of_a_minority_do_not_buy_a_candidate():
    rng = np.random.default_rng(0)
    losses = rng.uniform(0.8, 1.2, size=(90, 8))
    for i in range(90):
        losses[i, [i % 3, 3 + i % 3]] = rng.uniform(0.05, 0.2, 2)  # two candidates for each of three clusters
    losses[:20] = 5.0
    losses[:20, 7] = 1e-9  # twenty sites want candidate 7
    chosen = chosen_by_votes(losses, 3)
    assert 7 not in chosen
    assert sorted(chosen % 3) == [0, 1, 2]


def test_votes_find_a_small_cluster_beside_one_of_most_sites():
    """What candidates of its own cluster differ by is noise to a site, also where most candidates are such."""
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], [13, 32, 75])
    points = np.array([[0.0, 3.0], [3.0, 0.0], [0.0, 0.0]])[labels] + 0.5 * rng.normal(size=(120, 2))
    losses = np.sum((points[:, None] - points[None]) ** 2, axis=2)
    assert sorted(labels[chosen_by_votes(losses, 3)]) == [0, 1, 2]


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
        if not call.step.endswith("local_anchor_descent"):
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
        ({"n_clusters": 0}, "n_clusters=0 must be at least 1"),
        ({"n_clusters": 41}, "n_clusters=41 must be at most the number of sites, 40"),
        ({"start": np.zeros(4)}, "one number for each of the 5 columns"),
        ({"subspace_iterations": 1}, "subspace_iterations=1 must be at least 2"),
    ],
)
@pytest.mark.parametrize("find", [moment_descent, spectral_start])
def test_bad_settings_get_a_sentence(find, options, words):
    with pytest.raises(InputError, match=words):
        find(federation(mixture(0)), **{"n_clusters": 2, "n_columns": 5, **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"variant": "other"}, "variant='other'"),
        ({"variant": "paper"}, "needs separation"),
        ({"variant": "paper", "separation": 1.0, "aggregator": SpectralFilter()}, "takes neither aggregator"),
        ({"variant": "paper", "separation": -1.0}, "separation=-1.0 must be above 0"),
        ({"separation": 1.0}, "is for variant='paper'"),
        ({"p_min": 0.0}, "p_min=0.0 must be above 0"),
        ({"p_min": 0.6}, "p_min=0.6 is the smallest cluster's share of the sites: at most 1 / 2"),
        ({"iterations": 0}, "iterations=0 must be at least 1"),
    ],
)
def test_bad_settings_of_the_descent_get_a_sentence(options, words):
    with pytest.raises(InputError, match=words):
        moment_descent(federation(mixture(0)), **{"n_clusters": 2, "n_columns": 5, **options})

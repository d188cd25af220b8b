"""FedX with clustering: equal to the loop over sites, to least squares where it should be, and safe at its edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.aggregation import CoordinateMedian, GeometricMedian, Krum, Mean, TrimmedMean
from fedspan.errors import InputError, QuorumError
from fedspan.linalg import SiteStack, bottleneck_distance
from fedspan.mixed_regression.fedx import fedx

from .mixtures import federation, mixture, near


def stack_of(made):
    return SiteStack(made[0], made[1], made[5])


@pytest.mark.parametrize("weights", ["cluster", "total"])
@pytest.mark.parametrize("steps", [1, 5, 20])
def test_rounds_equal_the_stacked_sites_and_the_loop(weights, steps):
    made = mixture(0, sizes=(3, 9, 2, 6, 14, 1, 7, 5))
    stack, models, rate = stack_of(made), near(made), 0.05
    expected, Z = models, stack.descent(rate, steps)
    for _ in range(4):
        expected = stack.refined(expected, Z, weights)
    found = fedx(federation(made), models=models, local_steps=steps, rate=rate, weights=weights, max_rounds=4)
    np.testing.assert_allclose(found.models, expected, rtol=1e-12, atol=1e-12)
    assert found.rounds == 4
    assert found.rows.sum() == len(made[1])
    assert found.members.sum() == 8


def test_fedprox_rounds_equal_the_stacked_sites():
    made = mixture(1, sizes=(3, 9, 2, 6))
    stack, models = stack_of(made), near(made)
    expected = stack.refined(models, stack.proximal(1.0))
    np.testing.assert_allclose(fedx(federation(made), models=models, update="fedprox", max_rounds=1).models, expected)


def test_the_default_rate_is_stable_for_the_worst_site():
    made = mixture(2, sizes=(3, 9, 2, 6))
    stack, models = stack_of(made), near(made)
    rate = min(0.9 / stack.largest_eigenvalue(), 1 / 5)
    found = fedx(federation(made), models=models, max_rounds=1)
    np.testing.assert_allclose(found.models, stack.refined(models, stack.descent(rate, 5)), atol=1e-12)


def test_no_site_overshoots_in_several_steps():
    made = mixture(2, sizes=(3, 9, 2, 6))
    found = fedx(federation(made), models=near(made), rate=50.0, local_steps=10, max_rounds=30)
    assert bottleneck_distance(found.models, made[4]) < 1.0
    with pytest.raises(InputError, match="diverged"):  # one step of that size does
        fedx(federation(made), models=near(made), rate=50.0, local_steps=1, max_rounds=400)


def test_one_step_with_cluster_weights_leads_to_least_squares():
    made = mixture(3, sizes=(20,) * 40)
    found = fedx(federation(made), models=near(made), local_steps=1, rate=0.5, max_rounds=300, tol=1e-12)
    np.testing.assert_allclose(found.models, stack_of(made).fitted(made[3], made[4]), atol=1e-8)
    assert found.converged


@pytest.mark.parametrize("update", ["fedavg", "exact"])
def test_soft_assignment_is_expectation_maximisation(update):
    """Against a plain EM of the same model: many sites of two rows, where labels are uncertain."""
    made = mixture(4, sizes=(2,) * 300, d=2, noise=0.5, apart=1.5)
    X, y, _, _, models, sizes = made
    stack = stack_of(made)
    theta, shares, variance = models.copy(), np.full(2, 0.5), None
    for _ in range(300):
        losses = stack.losses(theta)
        if variance is None:
            part = np.eye(2)[losses.argmin(axis=1)]
        else:
            score = np.log(shares) - losses / (2 * variance)
            part = np.exp(score - score.max(axis=1, keepdims=True))
            part /= part.sum(axis=1, keepdims=True)
        variance = (part * losses).sum() / (len(y) - 4)
        shares = part.mean(axis=0)
        for j in range(2):
            w = np.repeat(part[:, j], sizes)
            theta[j] = np.linalg.solve((X * w[:, None]).T @ X, (X * w[:, None]).T @ y)
    # One gradient step a round has the same fixed point as least squares; several have one near it.
    found = fedx(
        federation(made),
        models=models,
        update=update,
        assignment="soft",
        local_steps=1,
        rate=0.5,
        max_rounds=400,
        tol=1e-10,
    )
    np.testing.assert_allclose(found.models, theta, atol=1e-6)
    np.testing.assert_allclose(found.members / 300, shares, atol=1e-6)
    hard = fedx(federation(made), models=models, update="exact", max_rounds=100)
    assert np.linalg.norm(hard.models - theta) > 1e-2


def test_a_cluster_without_sites_keeps_its_model():
    made = mixture(5)
    models = np.vstack([near(made), np.full((1, 5), 1e3)])
    for options in ({}, {"update": "exact"}, {"aggregator": GeometricMedian()}, {"weights": "total"}):
        found = fedx(federation(made), models=models, max_rounds=5, **options)
        np.testing.assert_array_equal(found.models[2], models[2])
        assert found.rows[2] == 0.0
        assert np.isfinite(found.models).all()


def test_acceleration_needs_fewer_rounds_for_the_same_models():
    made = mixture(6, sizes=(2,) * 200 + (12,) * 10, d=6)
    runs = [fedx(federation(made), models=near(made), tol=1e-8, max_rounds=3000, acceleration=m) for m in (0, 5)]
    assert all(run.converged for run in runs)
    np.testing.assert_allclose(runs[0].models, runs[1].models, atol=1e-5)
    assert runs[1].rounds < runs[0].rounds / 3


@pytest.mark.parametrize("assignment", ["hard", "soft"])
@pytest.mark.parametrize("update", ["fedavg", "exact"])
def test_the_mean_as_aggregator_is_the_plain_sum(assignment, update):
    made = mixture(7, sizes=(3, 9, 4, 6, 14, 5, 7, 5))
    options = {"models": near(made), "update": update, "assignment": assignment, "max_rounds": 6, "rate": 0.05}
    plain, by_mean = fedx(federation(made), **options), fedx(federation(made), aggregator=Mean(), **options)
    np.testing.assert_allclose(by_mean.models, plain.models, atol=1e-8)
    np.testing.assert_allclose(by_mean.rows, plain.rows, atol=1e-8)
    assert by_mean.loss == pytest.approx(plain.loss)


@pytest.mark.parametrize(
    ("update", "aggregator"),
    [("fedavg", CoordinateMedian()), ("fedprox", GeometricMedian()), ("exact", TrimmedMean(2))],
    ids=repr,
)
def test_any_aggregator_refines(update, aggregator):
    made = mixture(8, sizes=(12,) * 40)
    found = fedx(federation(made), models=near(made), update=update, aggregator=aggregator, max_rounds=60)
    assert bottleneck_distance(found.models, made[4]) < 0.15
    assert sum(found.trust.values()) == pytest.approx(1.0)


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


@pytest.mark.parametrize("update", ["fedavg", "exact"])
def test_missing_replies_change_the_result_a_little(update):
    made = mixture(11, sizes=(12,) * 40)
    fed = federation(made).with_faults(fs.FaultPlan(seed=1, drop=0.1, nonfinite=0.05, stale=0.05))
    found = fedx(fed, models=near(made), update=update, max_rounds=60)
    assert bottleneck_distance(found.models, made[4]) < 0.15


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_more_rows_than_columns_and_blocks_of_rows_make_no_difference(seed):
    made = mixture(seed, sizes=(30, 4, 25, 3), d=4)
    stack, models = stack_of(made), near(made, seed)
    expected = stack.refined(models, stack.descent(0.02, 7))
    found = fedx(federation(made), models=models, local_steps=7, rate=0.02, max_rounds=1)
    np.testing.assert_allclose(found.models, expected, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"update": "sgd"}, "update='sgd' must be one of 'fedavg', 'fedprox', 'exact'"),
        ({"local_steps": 0}, "local_steps=0"),
        ({"rate": -1.0}, "rate=-1.0"),
        ({"weights": "rows"}, "weights='rows'"),
        ({"assignment": "fuzzy"}, "assignment='fuzzy'"),
        ({"max_rounds": 0}, "max_rounds=0"),
        ({"tol": -1.0}, "tol=-1.0"),
        ({"acceleration": -1}, "acceleration=-1"),
        ({"models": np.zeros(3)}, r"not of shape \(3,\)"),
        ({"models": np.full((1, 5), np.nan)}, "finite numbers"),
    ],
)
def test_bad_settings_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        fedx(federation(mixture(0)), **{"models": np.zeros((2, 5)), **options})


def test_a_site_without_targets_has_failed():
    sites = [fs.Site(str(i), np.eye(3), np.ones(3)) for i in range(3)] + [fs.Site("x", np.eye(3))]
    sites.append(fs.Site("y", np.eye(3), ["a", "b", "c"]))
    fed = fs.LocalFederation(sites)
    with fed.begin("no y") as run:
        fedx(run, models=np.zeros((1, 3)), rate=0.1, max_rounds=1)
    reasons = {site: why for _, site, why in run.record.failures}
    assert "has no y" in reasons["x"]
    assert "vector of numbers" in reasons["y"]

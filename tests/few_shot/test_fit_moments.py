"""Second moments of the tasks' coefficients, and the rank that they show."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan import attacks
from fedspan.datasets import make_few_shot_tasks
from fedspan.few_shot.altgdmin import altgdmin
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.few_shot.parts.fit_moments import beyond_noise, fit_moments, pooled_moments
from fedspan.few_shot.parts.tasks import agree_on_tasks

from .few_shot_examples import N, R, by_rows, by_tasks, error, learn, rewriting


def test_the_rank_is_chosen_by_what_the_tasks_use(noisy):
    for fed in (by_rows(noisy), by_tasks(noisy)):
        bad = fed.corrupt(attacks.ScaledReverse(3.0), sites=fed.sites[:2])
        for federation, protocol in ((fed, altgdmin), (fed, byz_altgdmin), (bad, byz_altgdmin)):
            assert learn(federation, protocol, rank=None, iterations=1).basis.shape == (N, R)
    with pytest.warns(UserWarning, match="all 2 directions"):
        assert learn(by_rows(noisy), altgdmin, rank=None, max_rank=2, iterations=1).basis.shape == (N, 2)


SIZES = {
    "many small": lambda seed: np.random.default_rng(seed).integers(4, 13, 200),
    "equal": lambda seed: np.full(60, 20),
    "few large, many small": lambda seed: np.r_[np.full(10, 100), np.full(100, 3)],
    "large, and some of two rows": lambda seed: np.r_[np.full(30, 100), np.full(40, 2)],
}


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("what", SIZES)
def test_the_rank_is_right_however_large_the_tasks_are(what, noise):
    for seed in range(2):
        sizes = SIZES[what](seed)
        q, m = len(sizes), int(max(sizes))
        made = make_few_shot_tasks(50, q, 3, m, 1, noise=noise, seed=seed)
        kept = np.tile(np.arange(m), q) < np.repeat(sizes, m)
        fed = fs.federate(made.X[kept], made.y[kept], sites=(made.task % 5)[kept], task=made.task[kept])
        for protocol in (altgdmin, byz_altgdmin):
            assert learn(fed, protocol, rank=None, n_columns=50, iterations=0).basis.shape == (50, 3)


def test_a_rank_that_small_tasks_limit_gives_a_warning():
    """Tasks of three rows allow one direction; the truth has three. With one task there can be no other."""
    made = make_few_shot_tasks(50, 300, 3, 3, 1, seed=0)
    fed = fs.federate(made.X, made.y, sites=made.task % 5, task=made.task)
    with pytest.warns(UserWarning, match="all 1 directions that were tried are in use"):
        learn(fed, altgdmin, rank=None, n_columns=50, iterations=0)
    one = fs.LocalFederation([fs.Site("a", made.X, made.X @ made.basis[:, 0])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learn(one, altgdmin, rank=None, n_columns=50, iterations=0).basis.shape == (50, 1)


@pytest.mark.parametrize("intercept", [False, True])
def test_by_sums_the_rank_is_that_of_the_pooled_rows_however_they_are_split(intercept):
    """Also where a site has too few rows of a task to determine the rank by itself."""
    made = make_few_shot_tasks(40, 30, 4, 60, 1, noise=0.6, seed=0)
    ranks = []
    for sites in (np.zeros(len(made.y)), np.arange(len(made.y)) % 10, made.task % 6, np.minimum(made.task, 3)):
        fed = fs.federate(made.X, made.y + intercept * made.task, sites=sites, task=made.task)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = learn(fed, altgdmin, rank=None, n_columns=40, iterations=0, intercept=intercept)
        ranks.append(found.basis.shape[1])
    assert ranks == [4, 4, 4, 4]
    fine = fs.federate(made.X, made.y, sites=np.arange(len(made.y)) % 20, task=made.task)  # three rows at a site
    with pytest.warns(UserWarning, match="the tasks use 4 directions, and 2 are learned"):
        assert learn(fine, altgdmin, rank=None, n_columns=40, iterations=1).basis.shape == (40, 2)


def test_the_moments_of_pooled_rows_are_those_of_one_site(noisy):
    fed = by_rows(noisy)
    one = fs.federate(noisy.X, noisy.y, sites=np.zeros(len(noisy.y)), task=noisy.task)
    for intercept in (False, True):
        tasks = fed.run(agree_on_tasks, intercept=intercept)
        with fed.begin("test") as run:
            found = pooled_moments(run, noisy.basis, tasks, intercept, 1)
        with one.begin("test") as run:
            expected = fit_moments(run, noisy.basis, intercept, resilient=False)
        for key in ("moment", "noise", "loss", "free"):
            np.testing.assert_allclose(getattr(found, key), getattr(expected, key), rtol=1e-9, atol=1e-12)


def test_directions_beyond_noise():
    values, directions, across = beyond_noise(np.diag([1.0, 50.0, 4.0]), np.diag([1.0, 10.0, 1.0]))
    np.testing.assert_allclose(values, [5.0, 4.0, 1.0])
    assert np.abs(directions[:, 0]).argmax() == 1
    np.testing.assert_allclose(np.einsum("ir,ij,jr->r", across, np.diag([1.0, 10.0, 1.0]), across), 1.0)
    values, _, _ = beyond_noise(np.diag([1.0, 2.0]), np.zeros((2, 2)))  # no noise at all
    assert (values > 1e10).all()
    values, _, _ = beyond_noise(np.zeros((2, 2)), np.zeros((2, 2)))
    assert (values == 0.0).all()


def test_one_site_that_names_a_task_of_another_does_not_change_the_rank():
    made = make_few_shot_tasks(60, 90, 3, 60, 30, split="tasks", noise=0.1, seed=0)
    fed = fs.federate(made.X, made.y, sites=made.sites, task=made.task)

    def one_more(reply):
        return {**reply, "task": np.append(reply["task"], 50), "rows": np.append(reply["rows"], 60)}

    moved = made.sites.copy()
    moved[np.flatnonzero(made.task == 0)[:30]] = fed.sites[5]  # half of one task's rows went to another site
    two = fs.federate(made.X, made.y, sites=moved, task=made.task)
    for federation in (two, fed.corrupt(rewriting("few_shot.tasks", one_more), sites=fed.sites[:1])):
        assert learn(federation, rank=None, n_columns=60, iterations=0).basis.shape == (60, 3)


MOMENTS = {
    "all directions": lambda r: {"moment": 10 * np.trace(r["moment"]) * np.eye(len(r["moment"]))},
    "and no noise": lambda r: {"moment": 1e6 * np.eye(len(r["moment"])), "noise": 0 * r["noise"]},
    "nothing": lambda r: {"moment": 0 * r["moment"], "noise": 1e6 * r["noise"]},
    "negative": lambda r: {"moment": -r["moment"], "noise": -r["noise"]},
}


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("what", MOMENTS)
def test_false_second_moments_do_not_change_the_rank(what, noise):
    attack = rewriting("few_shot.fit_moments", lambda reply: reply | MOMENTS[what](reply))
    for split, rows in (("rows", 150), ("tasks", 60)):
        made = make_few_shot_tasks(60, 80, 3, rows, 10, noise=noise, split=split, seed=3)
        fed = fs.federate(made.X, made.y, sites=made.sites, task=made.task)
        bad = fed.corrupt(attack, sites=fed.sites[2:5])
        assert learn(bad, rank=None, n_columns=60, iterations=0).basis.shape == (60, 3)


@pytest.mark.parametrize(
    "what", [{"rows": 10**400}, {"rows": 0}, {"free": -1}, {"moment": 1e300}, {"loss": "x"}, {"noise": None}]
)
def test_false_moments_cost_their_site_and_never_the_run(data, what):
    fed = by_tasks(data).corrupt(rewriting("few_shot.fit_moments", lambda reply: reply | what), sites=["2"])
    found = learn(fed, rank=None, max_rank=5)
    assert error(found, data) < 1e-6
    assert found.loss < 1e-10

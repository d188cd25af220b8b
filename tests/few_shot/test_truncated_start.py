"""The start of AltGDmin: by sums, by medians, and which start fits."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan import attacks
from fedspan.errors import InputError
from fedspan.few_shot.altgdmin import altgdmin
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.few_shot.parts.tasks import Tasks
from fedspan.few_shot.parts.truncated_start import fitting_start, local_basis, theta
from fedspan.linalg import subspace_distance

from .few_shot_examples import N, Q, R, by_rows, by_tasks, error, learn


def test_the_start_by_sums_is_that_of_the_pooled_rows(noisy):
    alpha = 9 * np.mean(noisy.y**2)
    kept = np.where(noisy.y**2 <= alpha, noisy.y, 0.0)
    theta = np.stack([noisy.X[noisy.task == k].T @ kept[noisy.task == k] for k in range(Q)], axis=1)
    expected = np.linalg.svd(theta)[0][:, :R]
    for fed in (by_rows(noisy), by_tasks(noisy), by_tasks(noisy, sites=Q)):
        found = learn(fed, altgdmin, iterations=0, power_iterations=60)
        assert subspace_distance(found.basis, expected) < 1e-6


def test_in_the_start_every_row_counts_alike_however_many_its_site_and_task_have(noisy):
    kept = np.random.default_rng(0).random(len(noisy.y)) < np.where(noisy.sites == noisy.sites[0], 1.0, 0.2)
    kept &= (noisy.task % 2 == 0) | (np.random.default_rng(1).random(len(noisy.y)) < 0.4)
    X, y, task = noisy.X[kept], noisy.y[kept], noisy.task[kept]
    theta = np.stack([X[task == k].T @ y[task == k] for k in range(Q)], axis=1)
    means = theta / np.bincount(task, minlength=Q)  # with 1 / m
    fed = fs.federate(X, y, sites=noisy.sites[kept], task=task, seed=1)
    found = learn(fed, altgdmin, iterations=0, power_iterations=100, truncation=1e9).basis
    assert subspace_distance(found, np.linalg.svd(theta)[0][:, :R]) < 1e-6
    assert subspace_distance(found, np.linalg.svd(means)[0][:, :R]) > 0.05


def test_which_start_fits():
    def tasks(per_site, shared):
        q = per_site if shared else 9 * per_site
        held = {str(i): (np.arange(per_site) + (0 if shared else i * per_site), np.full(per_site, 9)) for i in range(9)}
        return Tasks(np.arange(q), held, {}, {}, {}, {})

    assert fitting_start(tasks(20, True), 9, "auto", None, 3, 3) == ("subspace_median", 9, 3)
    assert fitting_start(tasks(6, False), 9, "auto", None, 3, 3) == ("subspace_median", 9, 3)
    assert fitting_start(tasks(2, False), 9, "auto", None, 3, 3) == ("median_of_means", 3, 3)
    assert fitting_start(tasks(1, False), 9, "auto", None, 3, 3) == ("random", 1, 3)
    assert fitting_start(tasks(2, False), 2, "auto", None, 3, 3) == ("median_of_means", 1, 3)
    assert fitting_start(tasks(20, False), 9, "auto", 4, 3, 3) == ("median_of_means", 4, 3)
    assert fitting_start(tasks(20, False), 9, "median_of_means", None, 3, 3) == ("median_of_means", 4, 3)
    assert fitting_start(tasks(20, False), 9, "random", None, 3, 3)[0] == "random"
    assert fitting_start(tasks(10, False), 9, "auto", None, None, 16) == ("subspace_median", 9, 5)
    assert fitting_start(tasks(3, False), 9, "auto", None, None, 16) == ("median_of_means", 3, 4)
    one = tasks(3, False)
    one.held["0"] = (np.arange(27), np.full(27, 9))  # a malicious site, or a register, that names all tasks
    assert fitting_start(one, 9, "auto", None, None, 16) == ("median_of_means", 3, 4)
    assert one.own
    assert not tasks(3, True).own
    with pytest.raises(InputError, match="groups=10 must be between 1 and the number of sites, 9"):
        fitting_start(tasks(3, False), 9, "median_of_means", 10, 3, 3)


def test_sites_with_one_task_each_start_in_groups_and_a_random_start_works_too(data):
    fed = by_tasks(data, sites=Q)
    with fed.begin("test") as run:
        found = byz_altgdmin(run, rank=R, n_columns=N, iterations=30)
    assert run.record.metric("start") == ["median_of_means"]
    assert error(found, data) < 1e-5
    bad = by_tasks(data).corrupt(attacks.ScaledReverse(), sites=["0"])
    assert error(learn(bad, init="random", iterations=60), data) < 1e-5


def test_theta_is_truncated_and_centred_where_there_is_an_intercept():
    site = fs.Site("s", np.arange(8.0).reshape(4, 2), [1.0, -9.0, 2.0, 4.0], ["a", "a", "b", "b"])
    np.testing.assert_allclose(theta(site, 25.0, False, 1), [[0.0, 1.0], [32.0, 38.0]])  # -9 is beyond 5
    centred = theta(site, 1e9, True, 1)
    np.testing.assert_allclose(centred, [[-10.0, -10.0], [2.0, 2.0]])
    np.testing.assert_allclose(theta(site, 1e9, False, 2), [[0.0, 1.0], [8.0, 10.0]])  # the first of two parts
    basis = local_basis(site, rank=1, alpha=1e9, intercept=True, parts=1)["basis"]
    np.testing.assert_allclose(np.abs(basis), np.sqrt(0.5) * np.ones((2, 1)))
    with pytest.raises(InputError, match="has 2 tasks, and needs at least 3"):
        local_basis(site, rank=3, alpha=1.0, intercept=False, parts=1)


@pytest.mark.parametrize("output", ["eigenspace", "node", "trimmed"])
def test_starts_by_medians_withstand_malicious_sites(data, output):
    fed = by_rows(data)
    bad = fed.corrupt(attacks.Orthogonal(5.0, steps=["few_shot.start_basis"]), sites=fed.sites[:3])
    clean = error(learn(fed, iterations=0, output=output), data)
    assert error(learn(bad, iterations=0, output=output), data) < clean + 0.1


@pytest.mark.parametrize("split", [by_rows, by_tasks])
def test_median_of_means_starts_are_better_and_malicious_sites_spoil_their_groups_only(data, split):
    fed = split(data)
    settings = {"iterations": 0, "output": "node", "init": "median_of_means", "groups": 4}
    alone = error(learn(fed, iterations=0, output="node", init="subspace_median"), data)
    assert error(learn(fed, **settings), data) < 0.9 * alone
    steps = ["few_shot.start_loadings", "few_shot.start_product", "few_shot.start_own_product"]
    attacked = fed.corrupt(attacks.RandomNoise(1e6, steps=steps), sites=[fed.sites[0]])
    assert error(learn(attacked, **settings), data) < alone
    spoilt = fed.corrupt(attacks.RandomNoise(1e6, steps=steps), sites=fed.sites[::2])  # one in every group
    assert error(learn(spoilt, **settings), data) > 0.7

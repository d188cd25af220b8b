"""The representation that many regressions share: the site's gradient, the descent, splits, intercepts."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import fedspan as fs
from fedspan.datasets import make_few_shot_tasks
from fedspan.errors import InputError
from fedspan.few_shot.altgdmin import Descent, altgdmin, local_gradient
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.few_shot.parts import task_rows
from fedspan.few_shot.parts.task_coefs import median_coefs, pooled_coefs
from fedspan.few_shot.parts.tasks import agree_on_tasks
from fedspan.linalg import subspace_distance

from .few_shot_examples import ROWS, SITES, N, Q, R, by_rows, by_tasks, error, learn


def pooled_algorithm(data, iterations, step_size=1.0, basis=None):
    """Algorithm 1 on the pooled rows, written as in the paper: one loop over the tasks, and sigma_1 from the b_k."""
    U, q = basis, data.coef.shape[0]
    m = len(data.y) // q
    X, y = data.X.reshape(q, m, N), data.y.reshape(q, m)
    for _ in range(iterations):
        gradient, B = np.zeros((N, R)), []
        for k in range(q):
            b = np.linalg.lstsq(X[k] @ U, y[k], rcond=None)[0]
            gradient += np.outer(X[k].T @ (X[k] @ (U @ b) - y[k]), b)
            B.append(b)
        sigma = np.linalg.norm(B, 2)
        U = np.linalg.qr(U - step_size / (m * sigma**2) * gradient)[0]
    return U


def test_without_noise_the_representation_is_found_to_rounding(data):
    for fed in (by_rows(data), by_tasks(data)):
        for protocol in (altgdmin, byz_altgdmin):
            assert error(learn(fed, protocol, iterations=70, tol=1e-12), data) < 1e-10


def test_on_whole_tasks_altgdmin_is_the_pooled_algorithm(noisy):
    """Any split of the tasks gives what the paper's loop gives on the pooled rows, from the same start."""
    seen = []
    fed = by_tasks(noisy)
    learn(fed, altgdmin, iterations=5, tol=0.0, watch=seen.append)
    spread = np.average(list(fed.run(agree_on_tasks).spread.values()), weights=np.bincount(noisy.task % SITES))
    expected = pooled_algorithm(noisy, 5, step_size=1.0 / spread, basis=seen[0])
    assert subspace_distance(seen[-1], expected) < 1e-10
    one = fs.LocalFederation([fs.Site("all", noisy.X, noisy.y, noisy.task)], seed=1)
    together = []
    learn(one, altgdmin, iterations=5, tol=0.0, watch=together.append)
    assert subspace_distance(seen[0], together[0]) < 1e-3  # the start, by a power method from another random basis
    assert subspace_distance(seen[-1], together[-1]) < 1e-3


def test_sites_with_own_tasks_and_unequal_sizes_are_as_accurate_as_rows_of_all_tasks(noisy):
    """The same rows, cut by rows and cut by tasks into sites of 1 : 2 : ... : 8, some rows of some tasks missing."""
    rng = np.random.default_rng(0)
    kept = rng.random(len(noisy.y)) < rng.uniform(0.4, 1.0, Q)[noisy.task]
    X, y, task, rows = noisy.X[kept], noisy.y[kept], noisy.task[kept], noisy.sites[kept]
    owner = rng.choice(SITES, Q, p=np.arange(1, SITES + 1) / 36)
    for protocol in (altgdmin, byz_altgdmin):
        split = [fs.federate(X, y, sites=s, task=task, seed=1) for s in (rows, owner[task])]
        errors = [error(learn(fed, protocol), noisy) for fed in split]
        assert errors[1] < 2 * errors[0]
        assert errors[0] < 0.1


def test_tasks_with_few_rows_are_left_out_of_the_descent_and_get_least_norm_coefficients(data):
    """A site that has only such tasks is left out, with a warning; without any other site the fit is refused."""
    large = data.task >= 10
    small = np.flatnonzero(~large).reshape(10, ROWS)[:, :2].ravel()
    sites = [fs.Site(name, data.X[(data.sites == name) & large], data.y[(data.sites == name) & large],
                     data.task[(data.sites == name) & large]) for name in np.unique(data.sites)]  # fmt: skip
    tiny = fs.Site("tiny", data.X[small], data.y[small], data.task[small])
    with pytest.warns(UserWarning, match="more than 3 rows: tiny"):
        found = learn(fs.LocalFederation([*sites, tiny], seed=1))
    assert "tiny" not in found.weights
    assert error(found, data) < 1e-6
    fed = fs.LocalFederation([*sites, tiny], seed=1)
    expected = np.linalg.lstsq(data.X[:2] @ found.basis, data.y[:2], rcond=None)[0]
    for coefs in (fed.run(median_coefs, U=found.basis), fed.run(pooled_coefs, U=found.basis, tasks=np.arange(Q))):
        assert coefs.tasks.tolist() == list(range(Q))
        np.testing.assert_allclose(coefs.loadings[0], expected, atol=1e-9)
        np.testing.assert_allclose(coefs.loadings[10:] @ found.basis.T, data.coef[10:], atol=1e-5)
    with pytest.raises(InputError, match="no site has a task with more than 3 rows"):
        learn(fs.LocalFederation([tiny]), altgdmin)


def test_tasks_missing_at_some_sites(data):
    rng = np.random.default_rng(5)
    there = rng.random((SITES, Q)) < 0.6
    there[0], there[1] = False, False
    there[0, :4], there[1, 4] = True, True  # two sites with almost nothing
    kept = there[np.unique(data.sites, return_inverse=True)[1], data.task]
    fed = fs.federate(data.X[kept], data.y[kept], sites=data.sites[kept], task=data.task[kept], seed=1)
    for protocol in (altgdmin, byz_altgdmin):
        assert error(learn(fed, protocol, iterations=40), data) < 1e-5
    coefs = fed.run(median_coefs, U=data.basis)
    np.testing.assert_allclose(coefs.loadings, data.loadings[coefs.tasks], atol=1e-9)


def test_loss_and_second_moment_are_those_of_noise_and_true_coefficients(noisy):
    """The loss is the variance of the noise, the second moment that of the true coefficients, in the basis returned."""
    for fed in (by_rows(noisy), by_tasks(noisy)):
        for protocol in (altgdmin, byz_altgdmin):
            found = learn(fed, protocol)
            assert found.loss == pytest.approx(0.25, rel=0.1)
            assert found.free == pytest.approx(len(noisy.y) - R * Q * (SITES if fed.sites[0] == "site-00" else 1))
            true = noisy.coef @ found.basis
            apart = 0.1 if protocol is altgdmin else 0.25  # sites with other tasks have other second moments
            np.testing.assert_allclose(found.moment, true.T @ true / Q, atol=apart)


def test_step_sizes_and_the_shorter_steps_after_a_loss_that_rose():
    descent = Descent(step_size=1.0, spread=2.0)
    U, gradient = np.eye(3)[:, :1], np.array([[0.0], [3.0], [0.0]])
    moved, distance = descent.moved(U, gradient, np.array([[5.0]]))
    np.testing.assert_allclose(moved, np.array([[1.0], [-0.3], [0.0]]) / np.hypot(1.0, 0.3))
    assert distance == pytest.approx(0.3 / np.hypot(1.0, 0.3))
    for losses, shorter in (
        ({"a": 4.0, "b": 4.0, "c": 4.0}, 1.0),
        ({"a": 2.0, "b": 2.0, "c": 9.0}, 1.0),
        ({"a": 3.9, "b": 3.9, "c": 1e9}, 1.0),  # one report is false
        ({"a": 4.1, "b": 4.1, "c": 1.0}, 0.5),  # most have risen twofold since their best
        ({"a": 8.0, "b": 8.0}, 0.5),  # not yet, since then
        ({"d": 99.0}, 0.5),
    ):
        descent.shorten(losses)
        assert descent.shorter == shorter
    with pytest.raises(InputError, match="second moment of the tasks' coefficients is not positive"):
        descent.moved(U, gradient, np.zeros((1, 1)))
    within = Descent(step_size=1.0, spread=1.0)
    for moment, used in ((-7.0, 2.0), (3.0, 3.0), (1e9, 5.0)):
        bounded, _ = within.moved(U, gradient, np.array([[moment]]), (2.0, 5.0))
        assert -bounded[1, 0] / bounded[0, 0] == pytest.approx(3.0 / used)


def test_features_of_unequal_scale_and_direction_are_learned_more_slowly_but_safely(data):
    """Without the spread of the features in the step it would diverge."""
    scales = np.r_[np.full(4, 3.0), np.ones(N - 4)]
    X = data.X * scales
    truth = np.linalg.qr(data.basis / scales[:, None])[0]
    for protocol in (altgdmin, byz_altgdmin):
        fed = fs.federate(X, data.y, sites=data.task % SITES, task=data.task, seed=1)
        found = learn(fed, protocol, iterations=100)
        assert subspace_distance(found.basis, truth) / np.sqrt(R) < 2e-2
        assert subspace_distance(found.basis, truth) < 0.1 * subspace_distance(learn(fed, iterations=0).basis, truth)
    tenfold = learn(fs.federate(10.0 * data.X, data.y, sites=data.sites, task=data.task, seed=1), iterations=30)
    assert error(tenfold, data) < 1e-7


def test_an_intercept_removes_the_levels_of_tasks_and_features(data):
    levels = 20.0 * np.random.default_rng(0).normal(size=Q)
    shifted = fs.federate(data.X + 3.0, data.y + levels[data.task], sites=data.task % SITES, task=data.task, seed=1)
    for protocol in (altgdmin, byz_altgdmin):
        assert error(learn(shifted, protocol, intercept=True), data) < 1e-6
        assert error(learn(shifted, protocol), data) > 0.3
    for coefs in (
        shifted.run(median_coefs, U=data.basis, intercept=True),
        shifted.run(pooled_coefs, U=data.basis, tasks=np.arange(Q), intercept=True),
    ):
        np.testing.assert_allclose(coefs.loadings, data.loadings, atol=1e-8)
        np.testing.assert_allclose(coefs.intercepts, levels - 3.0 * data.coef.sum(axis=1), atol=1e-6)


def test_fresh_rows_for_every_half_of_an_iteration(data):
    fed = by_tasks(data)
    found = learn(fed, iterations=6, sample_split=True, step_size=0.7)
    reused = learn(fed, iterations=6, step_size=0.7)
    assert 5 * error(reused, data) < error(found, data) < 0.6
    with pytest.raises(InputError, match="each of the 81 parts of the sample split"):
        learn(fed, altgdmin, iterations=40, sample_split=True)


def test_memory_at_a_site_is_that_of_its_rows():
    """n = 2000 features and q = 100 tasks of 5 rows: a system of n q unknowns would take gigabytes."""
    data = make_few_shot_tasks(2000, 100, 2, 5, 1, seed=0)
    fed = fs.LocalFederation([fs.Site("s", data.X, data.y, data.task)])
    tracemalloc.start()
    fed.run(altgdmin, rank=2, n_columns=2000, iterations=2, power_iterations=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * data.X.nbytes


def ragged_site(seed=0, n=7, dtype=np.float64):
    """Tasks of 1 to 9 rows, their rows shuffled."""
    rng = np.random.default_rng(seed)
    task = np.repeat([5, 3, 8, 1, 9, 2], [4, 1, 9, 4, 2, 9])
    task = task[rng.permutation(len(task))]
    X = rng.normal(size=(len(task), n)).astype(dtype)
    return fs.Site("s", X, rng.normal(size=len(task)), task)


def loop(site, U, intercept=False):
    """The gradient as the paper writes it, task by task, of the tasks with more rows than unknowns."""
    gradient, moment, loss = np.zeros(U.shape), np.zeros((U.shape[1], U.shape[1])), 0.0
    for k in np.unique(site.task):
        X, y = site.X[site.task == k].astype(float), site.y[site.task == k]
        if len(y) <= U.shape[1] + intercept:
            continue
        A = np.c_[X @ U, np.ones(len(y))] if intercept else X @ U
        b = np.linalg.lstsq(A, y, rcond=None)[0]
        residual = A @ b - y
        b = b[: U.shape[1]]
        gradient += X.T @ np.outer(residual, b)
        moment += len(y) * np.outer(b, b)
        loss += residual @ residual
    return gradient, moment, loss


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("block", [1, 500, 10**9])
def test_the_gradient_is_that_of_a_loop_over_the_tasks(monkeypatch, intercept, block):
    monkeypatch.setattr(task_rows, "_BLOCK_BYTES", block)
    site = ragged_site()
    U = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 2)))[0]
    found = local_gradient(site, U, intercept)
    gradient, moment, loss = loop(site, U, intercept)
    np.testing.assert_allclose(found["gradient"], gradient, atol=1e-12)
    np.testing.assert_allclose(found["moment"], moment, atol=1e-12)
    assert found["loss"] == pytest.approx(loss)
    assert found["rows"] == 26  # 4 + 4 + 9 + 9: tasks of one and two rows do not count for two directions
    assert found["free"] == 26 - 4 * (2 + intercept)


def test_the_gradient_is_the_derivative_of_the_minimum_over_b():
    """Small steps agree with the gradient: half the derivative, because the papers leave out the factor two."""
    site = ragged_site()
    rng = np.random.default_rng(2)
    U, D = np.linalg.qr(rng.normal(size=(7, 2)))[0], rng.normal(size=(7, 2))

    def loss(U):
        return local_gradient(site, U)["loss"]

    h = 1e-6
    slope = (loss(U + h * D) - loss(U - h * D)) / (2 * h)
    gradient = local_gradient(site, U)["gradient"]
    assert slope == pytest.approx(2 * np.vdot(gradient, D), rel=1e-6)


def test_a_sample_split_fits_on_one_part_and_descends_on_another():
    rng = np.random.default_rng(3)
    task = np.repeat([0, 1], 12)
    site = fs.Site("s", rng.normal(size=(24, 5)), rng.normal(size=24), task)
    U = np.linalg.qr(rng.normal(size=(5, 2)))[0]
    found = local_gradient(site, U, fit_part=1, descend_part=2, parts=3)
    gradient = np.zeros((5, 2))
    for k in (0, 1):
        X, y = site.X[task == k], site.y[task == k]
        b = np.linalg.lstsq(X[1::3] @ U, y[1::3], rcond=None)[0]
        gradient += X[2::3].T @ np.outer(X[2::3] @ U @ b - y[2::3], b)
    np.testing.assert_allclose(found["gradient"], gradient, atol=1e-12)
    assert (found["rows"], found["free"]) == (8, 8)
    assert task_rows.least_rows(2, 3) == 9

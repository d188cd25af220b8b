"""The representation that many regressions share: starts, descent, splits, coefficients."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan import attacks
from fedspan.datasets import make_few_shot_tasks
from fedspan.errors import InputError
from fedspan.few_shot.altgdmin import altgdmin
from fedspan.few_shot.byz_altgdmin import byz_altgdmin
from fedspan.few_shot.parts.altgdmin_steps import Descent
from fedspan.few_shot.parts.fit_moments import fit_moments
from fedspan.few_shot.parts.rank_choice import beyond_noise, pooled_moments
from fedspan.few_shot.parts.task_coefs import median_coefs, pooled_coefs
from fedspan.few_shot.parts.tasks import Tasks, agree_on_tasks
from fedspan.few_shot.parts.truncated_start import fitting_start
from fedspan.linalg import subspace_distance

from .few_shot_examples import ROWS, SITES, N, Q, R, by_rows, by_tasks, error, learn, with_noise, without_noise


@pytest.fixture(scope="module")
def data():
    return without_noise()


@pytest.fixture(scope="module")
def noisy():
    return with_noise()


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


def test_sites_with_tasks_of_their_own_and_unequal_sizes_are_as_accurate_as_rows_of_all(noisy):
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
    """A site that has only such tasks is left out, with a warning; without any other there is a sentence."""
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


def test_a_rank_that_small_tasks_limit_is_warned_of():
    """Tasks of three rows allow one direction; the truth has three. With one task there can be no other."""
    made = make_few_shot_tasks(50, 300, 3, 3, 1, seed=0)
    fed = fs.federate(made.X, made.y, sites=made.task % 5, task=made.task)
    with pytest.warns(UserWarning, match="all 1 directions that were looked for are in use"):
        learn(fed, altgdmin, rank=None, n_columns=50, iterations=0)
    one = fs.LocalFederation([fs.Site("a", made.X, made.X @ made.basis[:, 0])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learn(one, altgdmin, rank=None, n_columns=50, iterations=0).basis.shape == (50, 1)


@pytest.mark.parametrize("intercept", [False, True])
def test_by_sums_the_rank_is_that_of_the_pooled_rows_however_they_are_split(intercept):
    """Also where a site has fewer rows of a task than would tell the rank by itself."""
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


def test_what_is_measured_in_the_end(noisy):
    """The loss is the variance of the noise, the second moment that of the true coefficients, in the basis returned."""
    for fed in (by_rows(noisy), by_tasks(noisy)):
        for protocol in (altgdmin, byz_altgdmin):
            found = learn(fed, protocol)
            assert found.loss == pytest.approx(0.25, rel=0.1)
            assert found.free == pytest.approx(len(noisy.y) - R * Q * (SITES if fed.sites[0] == "site-00" else 1))
            true = noisy.coef @ found.basis
            apart = 0.1 if protocol is altgdmin else 0.25  # sites with other tasks have other second moments
            np.testing.assert_allclose(found.moment, true.T @ true / Q, atol=apart)


def test_directions_beyond_noise():
    values, directions, across = beyond_noise(np.diag([1.0, 50.0, 4.0]), np.diag([1.0, 10.0, 1.0]))
    np.testing.assert_allclose(values, [5.0, 4.0, 1.0])
    assert np.abs(directions[:, 0]).argmax() == 1
    np.testing.assert_allclose(np.einsum("ir,ij,jr->r", across, np.diag([1.0, 10.0, 1.0]), across), 1.0)
    values, _, _ = beyond_noise(np.diag([1.0, 2.0]), np.zeros((2, 2)))  # no noise at all
    assert (values > 1e10).all()
    values, _, _ = beyond_noise(np.zeros((2, 2)), np.zeros((2, 2)))
    assert (values == 0.0).all()


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
    one.held["0"] = (np.arange(27), np.full(27, 9))  # a liar, or a register, that names everybody's tasks
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


def test_step_sizes_and_the_shorter_steps_after_a_loss_that_rose():
    descent = Descent(step_size=1.0, spread=2.0)
    U, gradient = np.eye(3)[:, :1], np.array([[0.0], [3.0], [0.0]])
    moved, distance = descent.moved(U, gradient, np.array([[5.0]]))
    np.testing.assert_allclose(moved, np.array([[1.0], [-0.3], [0.0]]) / np.hypot(1.0, 0.3))
    assert distance == pytest.approx(0.3 / np.hypot(1.0, 0.3))
    for losses, shorter in (
        ({"a": 4.0, "b": 4.0, "c": 4.0}, 1.0),
        ({"a": 2.0, "b": 2.0, "c": 9.0}, 1.0),
        ({"a": 3.9, "b": 3.9, "c": 1e9}, 1.0),  # one of them lies
        ({"a": 4.1, "b": 4.1, "c": 1.0}, 0.5),  # most have risen twofold since their best
        ({"a": 8.0, "b": 8.0}, 0.5),  # not yet, since then
        ({"d": 99.0}, 0.5),
    ):
        descent.watch(losses)
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


def test_an_intercept_takes_off_what_tasks_and_features_have_on_top(data):
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


def test_coefficients_of_shared_tasks_are_medians_or_those_of_the_pooled_rows(noisy):
    fed, U = by_rows(noisy), noisy.basis
    pooled = fed.run(pooled_coefs, U=U, tasks=np.arange(Q))
    expected = [
        np.linalg.lstsq(noisy.X[noisy.task == k] @ U, noisy.y[noisy.task == k], rcond=None)[0] for k in range(Q)
    ]
    np.testing.assert_allclose(pooled.loadings, expected, atol=1e-10)
    medians = fed.run(median_coefs, U=U)
    assert np.abs(medians.loadings - expected).max() < 0.3
    lies = fed.corrupt(attacks.Ones(1e9), sites=fed.sites[:3]).run(median_coefs, U=U)
    assert np.abs(lies.loadings - expected).max() < 0.6
    own = by_tasks(noisy).corrupt(attacks.Ones(1e9), sites=["0"]).run(median_coefs, U=U)
    assert (own.loadings[::SITES] == 1e9).all()  # what only one site knows is its word
    others = np.arange(Q) % SITES != 0
    np.testing.assert_allclose(own.loadings[others], np.array(expected)[others], atol=1e-9)


def test_sites_with_and_without_tasks_do_not_mix():
    X, y = np.ones((4, 2)), np.ones(4)
    fed = fs.LocalFederation([fs.Site("a", X, y, [0, 0, 1, 1]), fs.Site("b", X, y)])
    with pytest.raises(InputError, match="site 'b' have no task"):
        fed.run(agree_on_tasks)
    three = fs.LocalFederation([fs.Site(name, X, y, [0, 0, 1, 1]) for name in "acd"] + [fs.Site("b", X, y)])
    assert three.run(agree_on_tasks).strange == ("b",)
    with pytest.warns(UserWarning, match="rows have no task, or have one where most sites' have none, or .*: b"):
        found = three.run(altgdmin, rank=1, n_columns=2, iterations=1)
    assert set(found.weights) == {"a", "c", "d"}


def test_tasks_named_by_numbers_and_by_text_are_told_apart_by_name(data):
    sites = []
    for i in range(SITES):
        mine = data.sites == f"site-{i:02d}"
        task = data.task[mine].astype(str) if i % 2 else data.task[mine]
        sites.append(fs.Site(str(i), data.X[mine], data.y[mine], task))
    fed = fs.LocalFederation(sites, seed=1)
    assert fed.run(agree_on_tasks).labels.dtype.kind == "U"  # as many have text as numbers
    most = fs.LocalFederation(sites[:-1])
    assert most.run(agree_on_tasks).labels.tolist() == list(range(Q))
    assert most.run(median_coefs, U=data.basis).tasks.tolist() == list(range(Q))
    odd = fs.LocalFederation([sites[0], *sites[2:-1], fs.Site("x", data.X[:9], data.y[:9], np.repeat("own", 9))])
    assert odd.run(agree_on_tasks).labels.tolist() == sorted([*map(str, range(Q)), "own"])
    outvoted = odd.run(agree_on_tasks, resilient=True)
    assert outvoted.labels.tolist() == list(range(Q))
    assert outvoted.strange == ("x",)
    for protocol in (altgdmin, byz_altgdmin):
        assert error(learn(fed, protocol), data) < 1e-4
    coefs = fed.run(pooled_coefs, U=data.basis, tasks=np.sort(np.arange(Q).astype(str)))
    np.testing.assert_allclose(coefs.loadings, data.loadings[coefs.tasks.astype(int)], atol=1e-9)


def test_ranks_that_cannot_be(data):
    for rank in (0, N + 1):
        with pytest.raises(InputError, match=f"rank={rank} must be between 1 and"):
            learn(by_rows(data), rank=rank)
        with pytest.raises(InputError, match=f"rank={rank} must be between 1 and"):
            learn(by_rows(data), altgdmin, rank=rank)
    with pytest.raises(InputError, match="init='median_of_means'"):
        learn(by_tasks(data, sites=32), init="subspace_median")


def test_memory_at_a_site_is_that_of_its_rows():
    """n = 2000 features and q = 100 tasks of 5 rows: a system of n q unknowns would take gigabytes."""
    import tracemalloc

    data = make_few_shot_tasks(2000, 100, 2, 5, 1, seed=0)
    fed = fs.LocalFederation([fs.Site("s", data.X, data.y, data.task)])
    tracemalloc.start()
    fed.run(altgdmin, rank=2, n_columns=2000, iterations=2, power_iterations=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * data.X.nbytes

"""The coefficients of every task, by sums and by medians, also where sites send false ones."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan import attacks
from fedspan.few_shot.parts.task_coefs import between_two, median_coefs, pooled_coefs
from fedspan.few_shot.parts.tasks import agree_on_tasks

from .few_shot_examples import SITES, Q, R, by_rows, by_tasks, rewriting


def test_coefficients_of_shared_tasks_are_medians_or_those_of_the_pooled_rows(noisy):
    fed, U = by_rows(noisy), noisy.basis
    pooled = fed.run(pooled_coefs, U=U, tasks=np.arange(Q))
    expected = [
        np.linalg.lstsq(noisy.X[noisy.task == k] @ U, noisy.y[noisy.task == k], rcond=None)[0] for k in range(Q)
    ]
    np.testing.assert_allclose(pooled.loadings, expected, atol=1e-10)
    medians = fed.run(median_coefs, U=U)
    assert np.abs(medians.loadings - expected).max() < 0.3
    attacked = fed.corrupt(attacks.Ones(1e9), sites=fed.sites[:3]).run(median_coefs, U=U)
    assert np.abs(attacked.loadings - expected).max() < 0.6
    own = by_tasks(noisy).corrupt(attacks.Ones(1e9), sites=["0"]).run(median_coefs, U=U)
    assert (own.loadings[::SITES] == 1e9).all()  # no other site can contradict it
    others = np.arange(Q) % SITES != 0
    np.testing.assert_allclose(own.loadings[others], np.array(expected)[others], atol=1e-9)


def coefs_of_all_tasks(reply):
    return {
        "task": np.arange(3 * Q),
        "loadings": np.full((3 * Q, R), 1e6),
        "intercepts": np.zeros(3 * Q),
        "rows": np.full(3 * Q, 99),
    }


def test_a_site_counts_for_those_tasks_only_that_it_named(data):
    fed = by_tasks(data)
    found = fed.corrupt(rewriting("few_shot.coefs", coefs_of_all_tasks), sites=["0"]).run(median_coefs, U=data.basis)
    assert found.tasks.tolist() == list(range(Q))
    honest = found.tasks % SITES != 0
    np.testing.assert_allclose(found.loadings[honest], data.loadings[honest], atol=1e-9)
    np.testing.assert_array_equal(found.loadings[~honest], 1e6)  # its own tasks: no other site can contradict it


@pytest.mark.parametrize("malicious", [1, 3])
def test_sites_that_name_all_tasks_do_not_count_while_an_owner_reports(data, malicious):
    fed = by_tasks(data)
    claims = rewriting("few_shot.tasks", lambda r: {**r, "task": np.arange(Q), "rows": np.full(Q, 99)})
    bad = fed.corrupt(claims, sites=fed.sites[:malicious]).corrupt(
        rewriting("few_shot.coefs", coefs_of_all_tasks), sites=fed.sites[:malicious]
    )
    assert bad.run(agree_on_tasks, resilient=True).meddling == set(fed.sites[:malicious])
    found = bad.run(median_coefs, U=data.basis)
    honest = found.tasks % SITES >= malicious
    np.testing.assert_allclose(found.loadings[honest], data.loadings[honest], atol=1e-9)


def test_of_two_sites_that_contradict_each_other_neither_counts():
    np.testing.assert_array_equal(between_two(np.array([[3.0, 1.0]])), [3.0, 1.0])
    np.testing.assert_allclose(between_two(np.array([[3.0, 1.0], [3.2, 0.8]])), [3.1, 0.9])
    for false in ([1e300, 0.0], [-1e308, 1e308], [-30.0, -10.0], [-2.9, -0.9], [0.0, 0.0]):
        assert between_two(np.array([false, [3.0, 1.0]])) is None
    np.testing.assert_array_equal(between_two(np.array([[0.1], [-0.1]]), 1.0), [0.0])
    assert between_two(np.array([[0.1], [-0.1]])) is None


@pytest.mark.parametrize("factor", [1e9, -0.99, -1.0, 0.0])
def test_one_malicious_site_of_two_does_no_more_harm_than_the_honest_length(data, factor):
    """Every task is at two sites, one of which is malicious; their mean, or the shorter one, would do more harm."""
    fed = fs.federate(data.X, data.y, sites=(data.task + np.arange(len(data.y)) % 2) % SITES, task=data.task)
    attack = rewriting("few_shot.coefs", lambda r: {**r, "loadings": factor * r["loadings"]})
    with pytest.warns(UserWarning, match=f"{2 * Q // SITES} of {Q} tasks have rows at two sites whose coefficients"):
        found = fed.corrupt(attack, sites=["3"]).run(median_coefs, U=data.basis)
    away = np.linalg.norm(found.loadings - data.loadings, axis=1)
    assert (away <= np.linalg.norm(data.loadings, axis=1) * (1 + 1e-9)).all()
    touched = np.isin(np.arange(Q) % SITES, (2, 3))
    np.testing.assert_allclose(found.loadings[~touched], data.loadings[~touched], atol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clean = fed.run(median_coefs, U=data.basis)
    np.testing.assert_allclose(clean.loadings, data.loadings, atol=1e-9)


def test_large_intercepts_do_not_hide_false_slopes(data):
    """Targets in Kelvin: beside an intercept of 300, slopes that are off by 290 would look like agreement."""
    fed = fs.federate(data.X, data.y + 300, sites=(data.task + np.arange(len(data.y)) % 2) % SITES, task=data.task)
    attack = rewriting("few_shot.coefs", lambda r: {**r, "loadings": r["loadings"] + 290.0})
    with pytest.warns(UserWarning, match="contradict"):
        found = fed.corrupt(attack, sites=["3"]).run(median_coefs, U=data.basis, intercept=True)
    assert (np.linalg.norm(found.loadings - data.loadings, axis=1) < 1.01 * np.linalg.norm(data.loadings, axis=1)).all()
    np.testing.assert_allclose(found.intercepts, 300, atol=1e-6)
    level = rewriting("few_shot.coefs", lambda r: {**r, "intercepts": -r["intercepts"]})
    with pytest.warns(UserWarning, match="contradict"):
        found = fed.corrupt(level, sites=["3"]).run(median_coefs, U=data.basis, intercept=True)
    np.testing.assert_allclose(found.loadings, data.loadings, atol=1e-6)
    assert np.abs(found.intercepts).max() < 301


@pytest.mark.parametrize("kind", [np.uint64, str, np.int8])
def test_the_type_of_one_sites_labels_does_not_change_the_tasks(data, kind):
    for step in ("few_shot.tasks", "few_shot.coefs"):
        other = rewriting(step, lambda r: {**r, "task": r["task"].astype(kind)})
        found = by_tasks(data).corrupt(other, sites=["0"]).run(median_coefs, U=data.basis)
        assert found.tasks.dtype == np.int64
        assert found.tasks.tolist() == list(range(Q))
        np.testing.assert_allclose(found.loadings, data.loadings, atol=1e-9)


def test_a_ridge_for_tasks_with_few_rows_only(data):
    few = (data.task % 2 == 1) | (np.arange(len(data.y)) % 120 < 4)
    fed = fs.federate(data.X[few], data.y[few], sites=(data.task % SITES)[few], task=data.task[few])
    for coefs, tasks in ((pooled_coefs, {"tasks": np.arange(Q)}), (median_coefs, {})):
        plain, ridged = (fed.run(coefs, U=data.basis, ridge=r, below=6, **tasks) for r in (0.0, 2.0))
        np.testing.assert_array_equal(plain.loadings[1::2], ridged.loadings[1::2])
        lengths = (np.linalg.norm(found.loadings[::2], axis=1) for found in (plain, ridged))
        assert all(shorter < longer for longer, shorter in zip(*lengths, strict=True))


@pytest.mark.parametrize("far", [0.0, 1e7])
def test_features_and_targets_far_from_zero_lose_no_digits_by_sums(data, far):
    """Squares of 1e7 have rounding errors of 1e-2: less a common mean they have none that matter."""
    fed = fs.federate(data.X + far, data.y + far, sites=np.arange(len(data.y)) % SITES, task=data.task)
    found = fed.run(pooled_coefs, U=data.basis, tasks=np.arange(Q), intercept=True)
    np.testing.assert_allclose(found.loadings, data.loadings, atol=1e-6)
    expected = far - far * np.sum(data.basis @ data.loadings.T, axis=0)
    np.testing.assert_allclose(found.intercepts, expected, atol=1e-6 * max(1.0, far))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 3.0])
def test_the_errors_of_tasks_are_those_of_their_pooled_rows(intercept, ridge):
    rng = np.random.default_rng(0)
    X, y, task = rng.normal(size=(80, 5)), rng.normal(size=80) + 9.0 * intercept, np.arange(80) % 4
    task[:2] = 7  # a task with as many rows as unknowns, or fewer: it has no row to spare
    U = np.linalg.qr(rng.normal(size=(5, 2)))[0]
    fed = fs.federate(X, y, sites=np.arange(80) % 3, task=task)
    found = fed.run(pooled_coefs, U=U, tasks=np.array([0, 1, 2, 3, 7]), intercept=intercept, ridge=ridge)
    for k in range(4):
        own = task == k
        residual = y[own] - X[own] @ U @ found.loadings[k] - found.intercepts[k]
        assert found.errors[k] == pytest.approx(np.sqrt(residual @ residual / (own.sum() - 2 - intercept)))
    assert np.isnan(found.errors[4])

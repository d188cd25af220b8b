"""The coefficients of every task by medians, when sites lie about their own tasks or speak of others'."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan.few_shot.parts.task_coefs import between_two, median_coefs, pooled_coefs
from fedspan.few_shot.parts.task_names import merged_labels, positions
from fedspan.few_shot.parts.task_rows import fitted
from fedspan.few_shot.parts.tasks import agree_on_tasks

from .few_shot_examples import SITES, Q, R, by_rows, by_tasks, without_noise


@pytest.fixture(scope="module")
def data():
    return without_noise()


def at(name, lie):
    def attack(replies, bad, rng, call):
        return {s: lie(dict(replies[s])) for s in bad} if call.step.endswith(name) else {}

    return attack


def everybodys(reply):
    return {
        "task": np.arange(3 * Q),
        "loadings": np.full((3 * Q, R), 1e6),
        "intercepts": np.zeros(3 * Q),
        "rows": np.full(3 * Q, 99),
    }


def test_a_site_is_heard_on_the_tasks_alone_that_it_named(data):
    fed = by_tasks(data)
    found = fed.corrupt(at("local_coefs", everybodys), sites=["0"]).run(median_coefs, U=data.basis)
    assert found.tasks.tolist() == list(range(Q))
    honest = found.tasks % SITES != 0
    np.testing.assert_allclose(found.loadings[honest], data.loadings[honest], atol=1e-9)
    np.testing.assert_array_equal(found.loadings[~honest], 1e6)  # its own tasks: nobody can contradict it


@pytest.mark.parametrize("liars", [1, 3])
def test_sites_that_claim_everybodys_tasks_from_the_outset_are_not_believed_while_an_owner_speaks(data, liars):
    fed = by_tasks(data)
    claims = at("local_tasks", lambda r: {**r, "task": np.arange(Q), "rows": np.full(Q, 99)})
    bad = fed.corrupt(claims, sites=fed.sites[:liars]).corrupt(at("local_coefs", everybodys), sites=fed.sites[:liars])
    assert bad.run(agree_on_tasks, resilient=True).meddling == set(fed.sites[:liars])
    found = bad.run(median_coefs, U=data.basis)
    honest = found.tasks % SITES >= liars
    np.testing.assert_allclose(found.loadings[honest], data.loadings[honest], atol=1e-9)


def test_nobody_meddles_where_all_have_rows_of_all_tasks_or_neighbours_share(data):
    assert not by_rows(data).run(agree_on_tasks, resilient=True).meddling
    assert not by_tasks(data).run(agree_on_tasks, resilient=True).meddling
    pairs = fs.federate(data.X, data.y, sites=(data.task + np.arange(len(data.y)) % 2) % SITES, task=data.task)
    assert not pairs.run(agree_on_tasks, resilient=True).meddling


def test_of_two_that_contradict_each_other_neither_is_taken():
    np.testing.assert_array_equal(between_two(np.array([[3.0, 1.0]])), [3.0, 1.0])
    np.testing.assert_allclose(between_two(np.array([[3.0, 1.0], [3.2, 0.8]])), [3.1, 0.9])
    for lie in ([1e300, 0.0], [-1e308, 1e308], [-30.0, -10.0], [-2.9, -0.9], [0.0, 0.0]):
        assert between_two(np.array([lie, [3.0, 1.0]])) is None
    np.testing.assert_array_equal(between_two(np.array([[0.1], [-0.1]]), 1.0), [0.0])
    assert between_two(np.array([[0.1], [-0.1]])) is None


@pytest.mark.parametrize("factor", [1e9, -0.99, -1.0, 0.0])
def test_one_liar_of_two_holders_does_no_more_harm_than_the_honest_length(data, factor):
    """Every task is at two sites, one of which lies; by their mean, or by the shorter one, the harm would be more."""
    fed = fs.federate(data.X, data.y, sites=(data.task + np.arange(len(data.y)) % 2) % SITES, task=data.task)
    lie = at("local_coefs", lambda r: {**r, "loadings": factor * r["loadings"]})
    with pytest.warns(UserWarning, match=f"{2 * Q // SITES} of {Q} tasks have rows at two sites whose coefficients"):
        found = fed.corrupt(lie, sites=["3"]).run(median_coefs, U=data.basis)
    away = np.linalg.norm(found.loadings - data.loadings, axis=1)
    assert (away <= np.linalg.norm(data.loadings, axis=1) * (1 + 1e-9)).all()
    touched = np.isin(np.arange(Q) % SITES, (2, 3))
    np.testing.assert_allclose(found.loadings[~touched], data.loadings[~touched], atol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clean = fed.run(median_coefs, U=data.basis)
    np.testing.assert_allclose(clean.loadings, data.loadings, atol=1e-9)


def test_large_intercepts_do_not_hide_lies_about_slopes(data):
    """Targets in Kelvin: beside an intercept of 300, slopes that are off by 290 would look like agreement."""
    fed = fs.federate(data.X, data.y + 300, sites=(data.task + np.arange(len(data.y)) % 2) % SITES, task=data.task)
    lie = at("local_coefs", lambda r: {**r, "loadings": r["loadings"] + 290.0})
    with pytest.warns(UserWarning, match="contradict"):
        found = fed.corrupt(lie, sites=["3"]).run(median_coefs, U=data.basis, intercept=True)
    assert (np.linalg.norm(found.loadings - data.loadings, axis=1) < 1.01 * np.linalg.norm(data.loadings, axis=1)).all()
    np.testing.assert_allclose(found.intercepts, 300, atol=1e-6)
    level = at("local_coefs", lambda r: {**r, "intercepts": -r["intercepts"]})
    with pytest.warns(UserWarning, match="contradict"):
        found = fed.corrupt(level, sites=["3"]).run(median_coefs, U=data.basis, intercept=True)
    np.testing.assert_allclose(found.loadings, data.loadings, atol=1e-6)
    assert np.abs(found.intercepts).max() < 301


@pytest.mark.parametrize("kind", [np.uint64, str, np.int8])
def test_the_kind_of_one_sites_names_does_not_change_the_tasks(data, kind):
    for step in ("local_tasks", "local_coefs"):
        lie = at(step, lambda r: {**r, "task": r["task"].astype(kind)})
        found = by_tasks(data).corrupt(lie, sites=["0"]).run(median_coefs, U=data.basis)
        assert found.tasks.dtype == np.int64
        assert found.tasks.tolist() == list(range(Q))
        np.testing.assert_allclose(found.loadings, data.loadings, atol=1e-9)


def test_names_are_the_same_when_they_read_the_same():
    common = np.arange(40)
    at_text, known = positions(np.array(["3", "10", "39", "40", "x", "03", "-1"]), common)
    assert known.tolist() == [True, True, True, False, False, False, False]
    assert at_text[:3].tolist() == [3, 10, 39]
    assert positions(np.array([10, 3]), np.array(["10", "3"]))[0].tolist() == [0, 1]
    assert not positions(np.array([1]), np.zeros(0, dtype=int))[1].any()
    own = {"a": np.array([2, 1]), "b": np.array([1, 3]), "c": np.array(["x"])}
    assert merged_labels(own, outvoted=False)[0].tolist() == ["1", "2", "3", "x"]
    labels, places = merged_labels(own, outvoted=True)
    assert labels.tolist() == [1, 2, 3]
    assert {site: place.tolist() for site, place in places.items()} == {"a": [1, 0], "b": [0, 2]}


@pytest.mark.parametrize("intercept", [False, True])
def test_a_ridge_is_that_of_the_normal_equations(data, intercept):
    rng = np.random.default_rng(0)
    T, y = rng.normal(size=(5, 4, 2)), rng.normal(size=(5, 4))
    b, a = fitted(T, y, intercept, 0.3)
    for k in range(5):
        C, z = (T[k] - T[k].mean(axis=0), y[k] - y[k].mean()) if intercept else (T[k], y[k])
        np.testing.assert_allclose(b[k], np.linalg.solve(C.T @ C + 0.3 * np.eye(2), C.T @ z), atol=1e-12)
        assert a[k] == pytest.approx(y[k].mean() - T[k].mean(axis=0) @ b[k] if intercept else 0.0)


def test_a_ridge_for_tasks_with_few_rows_alone(data):
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

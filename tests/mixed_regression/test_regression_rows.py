"""Rows of a site, compressed and in blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.mixed_regression.fedx import fedx, local_refinement
from fedspan.mixed_regression.parts.regression_rows import local_operator, once_descended, rows_of

from .mixtures import federation, mixture, near, stack_of


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_more_rows_than_columns_and_blocks_of_rows_make_no_difference(seed):
    made = mixture(seed, sizes=(30, 4, 25, 3), d=4)
    stack, models = stack_of(made), near(made, seed)
    expected = stack.refined(models, stack.descent(0.02, 7))
    found = fedx(federation(made), models=models, local_steps=7, rate=0.02, max_rounds=1)
    np.testing.assert_allclose(found.models, expected, atol=1e-10)


def test_a_site_without_targets_has_failed():
    sites = [fs.Site(str(i), np.eye(3), np.ones(3)) for i in range(3)] + [fs.Site("x", np.eye(3))]
    sites.append(fs.Site("y", np.eye(3), ["a", "b", "c"]))
    fed = fs.LocalFederation(sites)
    with fed.begin("no y") as run:
        fedx(run, models=np.zeros((1, 3)), rate=0.1, max_rounds=1)
    reasons = {site: why for _, site, why in run.record.failures}
    assert "has no y" in reasons["x"]
    assert "vector of numbers" in reasons["y"]


@pytest.mark.parametrize("shape", [(6, 9), (60, 90), (300, 40), (60, 20), (1, 3)])
@pytest.mark.parametrize("steps", [1, 5, 20])
def test_steps_one_by_one_are_those_of_the_operator_and_prepare_nothing(shape, steps):
    rng = np.random.default_rng(0)
    site, models = fs.Site("s", rng.normal(size=shape), rng.normal(size=shape[0])), rng.normal(size=(2, shape[1]))
    rate = 0.9 * shape[0] / np.linalg.norm(site.X, 2) ** 2
    found = once_descended(site, models, rate, steps)
    assert found is not None
    label, change, loss = found
    assert "regression rows" not in site._data.computed
    E, losses = rows_of(site).losses(models)
    assert label == losses.argmin()
    np.testing.assert_allclose(loss, losses[label], rtol=1e-12)
    np.testing.assert_allclose(change, E[label].dot(local_operator(site, "fedavg", rate, steps)), rtol=1e-9, atol=1e-10)


def test_many_steps_are_prepared_where_that_is_cheaper():
    rng = np.random.default_rng(0)
    for rows, prepared in ((6, True), (300, False)):
        site = fs.Site("s", rng.normal(size=(rows, 100)), rng.normal(size=rows))
        assert (once_descended(site, np.zeros((1, 100)), 1e-3, 40) is None) == prepared


@pytest.mark.parametrize("factor", [2.5, 100.0, 1e6])
@pytest.mark.parametrize("steps", [2, 5])
def test_first_steps_that_are_too_long_for_a_site_are_shortened_as_later_ones(factor, steps):
    rng = np.random.default_rng(1)
    site, models = fs.Site("s", rng.normal(size=(300, 40)), rng.normal(size=300)), rng.normal(size=(2, 40))
    rate = factor * 300 / np.linalg.norm(site.X, 2) ** 2
    assert once_descended(site, models, rate, steps) is None
    payload = {"models": models, "update": "fedavg", "rate": rate, "local_steps": steps, "variance": None}
    payload["shares"] = np.full(2, 0.5)
    once, later = (local_refinement(site, **payload, once=once)["sums"] for once in (True, False))
    np.testing.assert_array_equal(once, later)


@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(1.0, 1e4))
@settings(max_examples=60)
def test_undetected_long_steps_move_the_model_no_farther_than_plain_ones(seed, steps, factor):
    """Whatever the spectrum: each accepted gradient is no longer than the one before it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 50)) * np.logspace(0, -rng.uniform(0, 6), 50)
    site, model = fs.Site("s", X, X @ rng.normal(size=50) + rng.normal(size=200)), np.zeros((1, 50))
    rate = factor * 200 / np.linalg.norm(X, 2) ** 2
    found = once_descended(site, model, rate, steps)
    if found is not None:
        assert np.linalg.norm(found[1]) <= steps * rate * np.linalg.norm(X.T @ site.y) * (1 + 1e-12)

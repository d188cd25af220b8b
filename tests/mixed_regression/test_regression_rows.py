"""Rows of a site, compressed and in blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.mixed_regression.fedx import fedx
from fedspan.mixed_regression.parts.regression_rows import local_operator, rows_of

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


@pytest.mark.parametrize("shape", [(6, 9), (30, 4), (1, 3), (5, 5)])
@pytest.mark.parametrize("rate", [0.01, 3.0])
def test_steps_one_by_one_are_those_of_the_operator(shape, rate):
    """Also where the step must be shortened."""
    rng = np.random.default_rng(0)
    site = fs.Site("s", rng.normal(size=shape), rng.normal(size=shape[0]))
    rows = rows_of(site)
    E, _ = rows.losses(rng.normal(size=(2, shape[1])))
    for steps in (1, 5, 20):
        expected = E[1].dot(local_operator(site, "fedavg", rate, steps))
        np.testing.assert_allclose(rows.descended(E[1], rate, steps), expected, rtol=1e-9, atol=1e-10)

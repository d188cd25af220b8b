"""Transforms: each treats rows one by one, and the elementwise ones to the last bit, wherever in a block a row is."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.transforms import installed_transforms

from .captured_calls import captured_calls

install_steps()
OWN = [id for id, one in installed_transforms().items() if one.function.__module__.startswith("fedspan.")]


def seen(id):
    """Yield sites of the examples, as one that such a transform shows."""
    for calls in captured_calls().values():
        for one in calls:
            found = [transform for transform in one.call.transforms if transform.id == id]
            if found and one.call.transforms[0] is found[0] and len(one.site) > 2 and not one.site.streamed:
                yield one.site, found[0].applied_to(one.site)


@pytest.mark.parametrize("id", OWN)
def test_a_row_does_not_depend_on_the_rows_beside_it(id):
    one = installed_transforms()[id]
    sites = [] if one.mu2 is not None or one.selects else [shown for _, shown in seen(id)][:3]
    for shown in sites:
        rows = shown._data
        block = np.asarray(rows.transform(rows.rows(slice(0, 40))) if rows.transform else rows.X[:40])
        alone = np.concatenate([batch.X for batch in shown.batches_alone(7)])[:40]
        if one.elementwise:
            assert shown.elementwise
            np.testing.assert_array_equal(alone, block)
        np.testing.assert_allclose(alone, block, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e15, 1e-300])
def test_elementwise_arithmetic_does_not_depend_on_the_place(scale):
    X = np.random.default_rng(0).normal(size=(999, 5)) * scale
    hostile = {
        "sums.standardize": {"mean": np.full(5, 1e15), "scale": np.full(5, 3e-7)},
        "sums.shifted_and_scaled": {"shift": 1.0 / 3, "scale": 1e15 / 7},
        "sums.scores_as_verdicts": {"threshold": 0.3},
    }
    for id, parameters in hostile.items():
        assert installed_transforms()[id].elementwise
        function = installed_transforms()[id].function
        moved = function(np.concatenate([X[:1], X]), **parameters)[1:]
        np.testing.assert_array_equal(moved, function(X, **parameters))
        np.testing.assert_array_equal(moved[5:6], function(X[5:6], **parameters))


def test_the_law_notices_a_transform_that_looks_at_other_rows():
    site = fs.Site("a", np.arange(12.0).reshape(6, 2)).through(lambda X: X - X.mean(axis=0))
    alone = np.concatenate([batch.X for batch in site.batches_alone(4)])
    assert not np.allclose(alone, site.X)

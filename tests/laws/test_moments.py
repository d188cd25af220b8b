"""Steps of moments: no parameter of theirs selects rows, because rows count only by number, sums and second moments.

The rows of a site are replaced by ``Q X`` with an orthogonal Q that keeps the vector of ones. All first and second
moments stay as they are, and hardly any row does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedspan as fs
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.site_host import SiteHost
from fedspan.federation.site.transforms import installed_transforms

from .captured_calls import captured_calls

MOMENTS = [id for id, step in install_steps().items() if step.moments]
#: These count cells that are no numbers, which no rotation keeps.
COUNTING = {"sums.bad_values", "few_shot.bad_targets"}


def rotated(site):
    """Return a site with the same moments of X and y, and other rows."""
    n, numeric = len(site), site.y is not None and site.y.dtype.kind in "fiu"
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, n - 1))]))[0]
    turn = np.eye(n)
    turn[1:, 1:] = np.linalg.qr(rng.normal(size=(n - 1, n - 1)))[0]
    rows = np.column_stack([site.X, site.y]) if numeric else site.X
    rows = basis @ turn @ basis.T @ rows
    y = rows[:, -1] if numeric else site.y
    return fs.Site(site.name, rows[:, : site.X.shape[1]], y, site.task)


def reply(site, calls):
    """Return the last reply of a site to the calls of one run."""
    host = SiteHost(site)
    for number, call in enumerate(calls):
        renumbered = replace(call, run="law", number=number)
        delivery = host.perform(renumbered, renumbered.payload_of(site.name), number - 1)
    return delivery.reply


def same(a, b):
    assert [key for key, value in a.items() if value is None] == [key for key, value in b.items() if value is None]
    for key, value in ((key, value) for key, value in a.items() if value is not None):
        scale = np.max(np.abs(value), initial=1e-12)
        np.testing.assert_allclose(b[key], value, rtol=1e-6, atol=1e-7 * scale)


@pytest.mark.parametrize("id", sorted(set(MOMENTS) - COUNTING))
def test_a_rotation_of_the_rows_changes_no_reply(id):
    captured = [one for one in captured_calls()[id] if one.site.frame is None][:8]
    assert captured
    for one in captured:
        # With what the site received before in the same run: some steps have a state.
        before = [
            other.call
            for every in captured_calls().values()
            for other in every
            if other.call.run == one.call.run and other.site is one.site and other.call.number <= one.call.number
        ]
        calls = sorted(before, key=lambda call: call.number)
        site = one.site
        plain = fs.Site(site.name, site.X, site.y, site.task)
        same(reply(plain, calls), reply(rotated(plain), calls))


def test_the_law_notices_a_step_that_selects_rows():
    (one, *_) = captured_calls()["sums.counts_between"]
    plain = fs.Site(one.site.name, one.site.X, one.site.y, one.site.task)
    with pytest.raises(AssertionError):
        same(reply(plain, [one.call]), reply(rotated(plain), [one.call]))


AFFINE = {
    "landmarks.reduced": {"centre": np.ones(3), "scale": 2.0, "precision": "double"},
    "maps.along_axes": {"mean": np.ones(3), "axes": np.eye(3)[:2]},
    "mixed_regression.whitened": {"mean": np.ones(3), "matrix": np.arange(6.0).reshape(3, 2), "intercept": True},
    "sums.project": {"components": np.arange(6.0).reshape(2, 3)},
    "sums.shifted_and_scaled": {"shift": 3.0, "scale": 0.5},
    "sums.standardize": {"mean": np.ones(3), "scale": np.array([1.0, 2.0, 3.0])},
}


@pytest.mark.parametrize("id", [id for id, one in installed_transforms().items() if one.affine and not one.view])
def test_an_affine_transform_keeps_means_of_rows(id):
    one, rng = installed_transforms()[id], np.random.default_rng(1)
    parameters = one.validated(AFFINE[id])
    X, weights = rng.normal(size=(20, 3)), rng.dirichlet(np.ones(20), size=5)
    np.testing.assert_allclose(
        one.function(weights @ X, **parameters), weights @ one.function(X, **parameters), atol=1e-12
    )

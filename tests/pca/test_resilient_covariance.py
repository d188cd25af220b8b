"""The resilient covariance against the geometric median of whole matrices."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan import aggregation
from fedspan.linalg import subspace_distance
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.resilient_covariance import resilient_covariance

from .subspace_sites import R


def test_resilient_covariance_is_the_frobenius_median(fed):
    """Against the geometric median of the whole matrices."""
    axes, weights = fed.run(resilient_covariance, rank=R)

    @fs.step
    def whole(site):
        return {"phi": site.X.T @ site.X / len(site)}

    phi = fed.ask(whole).stack("phi")
    median = aggregation.GeometricMedian()(phi)
    np.testing.assert_allclose(list(weights.values()), median.weights, rtol=1e-6)
    assert subspace_distance(axes.components.T, np.linalg.eigh(median.value)[1][:, -R:]) < 1e-8


@pytest.mark.parametrize("malicious", [1, 4])
def test_products_that_no_rows_have_are_refused(malicious):
    """Negative squares would pull small variances below zero: a detector that divides by them would be blind."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 3)) @ rng.standard_normal((3, 6)) + 0.3 * rng.standard_normal((900, 6))
    fed = fs.federate(X, sites=np.arange(900) % 9)

    def negative(replies, bad, rng, call):
        return {site: {**replies[site], "phi": np.full(21, -1e308)} for site in bad}

    bad = fed.sites[:malicious]
    (axes, weights), honest = (
        view.run(covariance_pca, aggregator=aggregation.GeometricMedian())
        for view in (fed.corrupt(negative, sites=bad), fed.subset(fed.sites[malicious:]))
    )
    assert not set(bad) & {site for site, weight in weights.items() if weight}
    np.testing.assert_allclose(axes.scatter, honest[0].scatter, rtol=1e-6)

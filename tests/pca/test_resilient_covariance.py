"""The resilient covariance against the geometric median of whole matrices."""

from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan import aggregation
from fedspan.linalg import subspace_distance
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

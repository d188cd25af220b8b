"""The power methods without an attack."""

from __future__ import annotations

from fedspan import aggregation
from fedspan.linalg import subspace_distance
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.median_of_means import median_of_means
from fedspan.pca.power_method import power
from fedspan.pca.resilient_covariance import resilient_covariance
from fedspan.pca.resilient_power import resilient_power

from .subspace_sites import N, R


def test_power_methods_without_attack_find_the_pooled_subspace(fed, data):
    exact = fed.run(covariance_pca, rank=R)[0].components.T
    assert subspace_distance(fed.run(power, rank=R, n_columns=N, iterations=12)[0], exact) < 1e-8
    mean = fed.run(resilient_power, rank=R, n_columns=N, iterations=12, aggregator=aggregation.Mean())[0]
    assert subspace_distance(mean, exact) < 1e-8
    covariance = fed.run(resilient_covariance, rank=R, aggregator=aggregation.Mean())[0]
    assert subspace_distance(covariance.components.T, exact) < 1e-10
    one_group = fed.run(median_of_means, rank=R, n_columns=N, groups=1, iterations=12).basis
    assert subspace_distance(one_group, exact) < 1e-8

"""Every protocol under a secure sum: the same result to the resolution, or a refusal before any site is contacted."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import fedspan as fs
from fedspan.aggregation import GeometricMedian
from fedspan.engines.local.embedded import LocalEngine
from fedspan.errors import InputError, PolicyError

from ..laws.protocol_examples import EXAMPLES
from ..packages import needs

SECURE = fs.Policy(secure_sum=True)

#: The protocols that need sums alone, as their examples are set.
OF_SUMS = {
    "autoencoder",
    "refuse_bad_targets",
    "most_frequent",
    "column_kinds",
    "agree_on_columns",
    "covariance_pca",
    "total_scatter",
    "feature_scaling",
    "fedavg",
    "feddl",
    "federated_k_means",
    "heavy_tails",
    "isolation_counts",
    "leaf_counts",
    "score_counts",
    "other_classes",
    "map_centres",
    "moments",
    "refuse_bad_values",
    "neighbor_hits",
    "one_shot_map",
    "orthogonal_iteration",
    "power",
    "refuse_strict",
    "private_feddl",
    "private_map",
    "quantiles",
    "random_start",
    "residual",
    "residual_bins",
    "subspace_iteration",
    "target_moments",
    "common_centre",
    "pooled_coefs",
    "batch_names",
    "cell_clusters",
    "cell_components",
    "covariance",
    "cox_model",
    "error_totals",
    "gene_moments",
    "generalized_linear_model",
    "harmony",
    "hit_rate",
    "least_squares",
    "marker_genes",
    "new_effects",
    "roc_area",
    "row_numbers",
    "site_adjustment",
    "site_mixing",
    "target_classes",
    "value_totals",
    "verdict_counts",
}
#: Those whose sites add shares of the noise under a secure sum, and all of it without: other results, by design.
OF_SHARED_NOISE = {"noisy_centres", "noisy_moments", "noisy_covariance", "noisy_quantiles", "noisy_k_means"}
OF_SHARED_NOISE |= {"noisy_isolation_counts", "noisy_least_squares"}
#: Those that find ranks by bins and not exactly (`correlation`, `overview`), or the same moments about other centres.
OF_OTHER_SUMS = {"correlation", "overview", "row_moments", "update_sums"}
#: Those that need names which no site may send under a secure sum, unless the user lists them.
OF_NAMES = {"crosstab", "describe", "histogram", "log_rank"}


@pytest.fixture
def contacts(monkeypatch):
    """Count the messages to sites."""
    whole, seen = LocalEngine.call, []

    def call(self, call, *args):
        seen.append(call.step.id)
        return whole(self, call, *args)

    monkeypatch.setattr(LocalEngine, "call", call)
    return seen


def leaves(result):
    """Return the numbers and words of a result, one after another; axes without their signs."""
    if is_dataclass(result) and not isinstance(result, type):
        if hasattr(result, "matrix") and result.matrix.ndim == 2:  # of feature scaling: its axes have no signs
            return [result.mean, result.matrix @ result.matrix.T]
        return [leaf for field in fields(result) for leaf in leaves(getattr(result, field.name))]
    if isinstance(result, tuple | list):
        return [leaf for item in result for leaf in leaves(item)]
    if isinstance(result, Mapping):
        return [leaf for key in sorted(result) for leaf in [key, *leaves(result[key])]]
    return [result.sites if isinstance(result, fs.Federation) else result]


def run(example, **options):
    return leaves(fs.LocalFederation(example.sites(), seed=1, **options).run(example.protocol, **example.settings))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=needs("torch") if name in ("autoencoder", "fedavg") else ())
        for name in sorted(OF_SUMS & set(EXAMPLES))
    ],
)
def test_sums_are_all_that_it_needs(name):
    example = EXAMPLES[name]
    plain, secure = run(example), run(example, policy=SECURE)
    assert len(plain) == len(secure)
    for expected, found in zip(plain, secure, strict=True):
        if isinstance(expected, np.ndarray) and expected.dtype.kind not in "fc":
            np.testing.assert_array_equal(found, expected)
        elif isinstance(expected, np.ndarray | float):
            scale = float(np.max(np.abs(np.asarray(expected)[np.isfinite(expected)]), initial=1e-300))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11 * scale)
        else:
            assert found == expected


def test_the_list_of_these_is_complete():
    assert set(EXAMPLES) >= OF_SUMS


@pytest.mark.parametrize("name", sorted(OF_SHARED_NOISE))
def test_a_secure_sum_needs_less_noise(name):
    example = EXAMPLES[name]
    assert run(example, policy=SECURE)  # the laws show that it is enough


@pytest.mark.parametrize("name", sorted(OF_OTHER_SUMS))
def test_other_sums_are_all_that_it_needs(name):
    assert run(EXAMPLES[name], policy=SECURE)  # how near the results are is tested with the protocol


@pytest.mark.parametrize("name", sorted(OF_NAMES))
def test_names_are_refused_with_the_way_out(name):
    with pytest.raises((InputError, PolicyError), match=r"list them, categories=|needs the replies of single sites"):
        run(EXAMPLES[name], policy=SECURE)


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - OF_SUMS - OF_SHARED_NOISE - OF_OTHER_SUMS - OF_NAMES))
def test_whatever_needs_single_replies_is_refused_before_any_site_is_contacted(name, contacts):
    example = EXAMPLES[name]
    with pytest.raises(PolicyError, match="needs the replies of single sites, which secure_sum=True hides"):
        run(example, policy=SECURE)
    assert contacts == []


def rows(n=120):
    rng = np.random.default_rng(5)
    axes = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    X = rng.normal(size=(n, 6)) * [5.0, 3.0, 1.0, 0.5, 0.3, 0.2] @ axes + 4.0
    return X, X @ np.arange(6.0) + rng.normal(size=n)


def fitted(estimator, scale=1.0, **options):
    X, y = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(fs.federate(X * scale, y, sites=np.arange(len(X)) % 5, **options))


@pytest.mark.parametrize("scale", [1e-6, 1e9])
@pytest.mark.parametrize(
    "make",
    [
        fs.FedStandardScaler,
        lambda: fs.FedPCA(2),
        lambda: fs.FedPCA(2, solver="covariance", scale=True),
        lambda: fs.FedPCA(2, solver="subspace_iteration"),
        lambda: fs.FedPCA(2, solver="power"),
        lambda: fs.FedPCADetector(2),
        lambda: fs.FedPCADetector(2, distance="mahalanobis"),
        lambda: fs.FedTabularEncoder(categorical=[]),
    ],
)
def test_estimators_of_sums(make, scale):
    """Without tuning: data in millionths and in billions, whose squares are far apart."""
    plain, secure = fitted(make(), scale), fitted(make(), scale, policy=SECURE)
    for name in ("mean_", "scale_", "var_", "components_", "explained_variance_", "offset_", "noise_variance_"):
        expected = getattr(plain, name, None)
        if expected is not None:
            size = float(np.max(np.abs(expected)))
            np.testing.assert_allclose(getattr(secure, name), expected, rtol=1e-8, atol=1e-10 * size)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: fs.FedPCA(2, solver="subspace_median"), r"FedPCA\(solver='subspace_median'\) needs"),
        (lambda: fs.FedPCA(2, solver="fedpg"), r"FedPCA\(solver='fedpg'\) needs"),
        (lambda: fs.FedPCA(2, aggregator=GeometricMedian()), r"FedPCA\(aggregator=GeometricMedian\(\)\) needs"),
        (lambda: fs.FedStandardScaler(aggregator=GeometricMedian()), r"FedStandardScaler\(aggregator="),
        (lambda: fs.FedPCADetector(2, solver="resilient_power"), r"FedPCADetector\(solver='resilient_power'\)"),
        (lambda: fs.LocalPCADetector(2), "LocalPCADetector needs"),
        (lambda: fs.FedTabularEncoder(), "FedTabularEncoder without a list `categorical`"),
        (lambda: fs.FedTabularEncoder(categorical=["x1"]), "FedTabularEncoder without a list `categorical`"),
        (lambda: fs.FedFewShotRegressor(2), "FedFewShotRegressor needs"),
        (lambda: fs.FedMixedRegressor(2), "FedMixedRegressor needs"),
    ],
)
def test_estimators_that_need_single_replies(make, why, contacts):
    with pytest.raises(PolicyError, match=why):
        fitted(make(), policy=SECURE)
    assert contacts == []


def test_values_that_are_not_finite_are_told_without_their_sites():
    X, y = rows()
    X[7, 2] = y[3] = np.nan
    fed = fs.federate(X, y, sites=np.arange(len(X)) % 5, policy=SECURE)
    with pytest.raises(InputError, match=r"NaN or infinity: feature number 2 at some site \(1 values\)"):
        fs.FedStandardScaler().fit(fed)
    with pytest.raises(InputError, match=r"y contains NaN or infinity: some site \(1 values\)"):
        fed.run(EXAMPLES["target_moments"].protocol)

"""Correlations and covariances are those of pandas on the pooled rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedspan as fs
from fedspan.errors import InputError, PolicyError
from fedspan.statistics import correlation, covariance

from .hospital_table import federated, patients

TABLE = patients()
NUMBERS = ["age", "crp", "weight", "flag"]


@pytest.mark.parametrize("kind", ["even", "tiny", "sorted", "one"])
@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_correlations_are_those_of_pandas(kind, method):
    found = correlation(federated(TABLE, kind), method=method)
    np.testing.assert_allclose(found.to_frame().loc[NUMBERS, NUMBERS], TABLE[NUMBERS].corr(method), rtol=1e-10)
    np.testing.assert_array_equal(found.n[0], [TABLE[["age", name]].dropna().shape[0] for name in found.columns])


def test_covariances_are_those_of_pandas():
    found = covariance(federated(TABLE, "tiny")).to_frame()
    np.testing.assert_allclose(found.loc[NUMBERS, NUMBERS], TABLE[NUMBERS].cov(), rtol=1e-10, atol=1e-12)
    assert found["none"].isna().all()


def test_p_values_are_those_of_scipy():
    both = TABLE[["age", "weight"]].dropna()
    for method, test in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        found = correlation(federated(TABLE), method=method)
        assert found.p_values()[0, 2] == pytest.approx(test(both["age"], both["weight"]).pvalue, rel=1e-8)
    assert np.isnan(covariance(federated(TABLE)).p_values()).all()


def test_secure_sums_give_the_same_and_ranks_by_bins():
    fed = federated(TABLE, policy=fs.Policy(secure_sum=True))
    wanted = TABLE[NUMBERS].corr()
    np.testing.assert_allclose(correlation(fed).to_frame().loc[NUMBERS, NUMBERS], wanted, rtol=1e-8)
    ranked = correlation(fed, method="spearman").to_frame().loc[NUMBERS, NUMBERS]
    np.testing.assert_allclose(ranked, TABLE[NUMBERS].corr("spearman"), atol=0.01)
    whole = TABLE[["age", "flag"]]
    by_bins = correlation(federated(whole), method="spearman", ranks="bins").values
    np.testing.assert_allclose(by_bins, whole.corr("spearman"), rtol=1e-10)
    with pytest.raises(PolicyError, match="ranks='exact' needs the replies of single sites"):
        correlation(fed, method="spearman", ranks="exact")


def test_columns_without_variance_or_values():
    table = pd.DataFrame({"x": np.arange(12.0), "same": 3.0, "gaps": [1.0, 2.0, *[np.nan] * 10]})
    found = correlation(federated(table)).to_frame()
    assert found["same"].isna().all()
    assert found["gaps"].isna().all()  # of fewer than five rows
    assert found.loc["x", "x"] == 1
    assert correlation(federated(table), method="spearman").to_frame()["same"].isna().all()
    with pytest.raises(InputError, match="no column holds numbers"):
        correlation(federated(pd.DataFrame({"a": list("xyz" * 4)})))
    with pytest.raises(InputError, match="method='kendall' must be one of"):
        correlation(federated(table), method="kendall")


def test_large_means_cost_no_digits():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3))
    found = correlation(fs.federate(rows + 1e8, sites=np.arange(200) // 50)).values
    np.testing.assert_allclose(found, np.corrcoef((rows + 1e8 - 1e8).T), rtol=1e-9)

"""Columns in another order at the sites of a real federation: they are matched by name."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import fedspan as fs

from .network import Network

ROWS = pd.DataFrame(np.random.default_rng(0).normal(size=(90, 4)) * [5.0, 3.0, 1.0, 0.5], columns=list("abcd"))
ORDERS = {"a": list("abcd"), "b": list("abcd"), "c": list("dbac")}


def sites():
    return [fs.Site(name, ROWS.iloc[k::3][order]) for k, (name, order) in enumerate(ORDERS.items())]


@pytest.mark.parametrize("secure", [False, True])
def test_a_fit_matches_columns_by_name(secure, tmp_path):
    policy = fs.Policy(secure_sum=True) if secure else None
    network = Network(sites(), tmp_path, secure_sum=fs.SecureSum() if secure else None)
    fed = network.federation(policy, tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler = fs.FedStandardScaler().fit(fed)
        model = fs.FedPCA(2).fit(scaler.transform(fed))
    assert scaler.sites_ == ("a", "b", "c")
    assert list(scaler.feature_names_in_) == list("abcd")
    pooled = fs.FedStandardScaler().fit(ROWS)
    np.testing.assert_allclose(scaler.mean_, pooled.mean_)
    np.testing.assert_allclose(model.components_, fs.FedPCA(2).fit(pooled.transform(ROWS)).components_, rtol=1e-6)
    again = fs.FedStandardScaler().fit(network.federation(policy, tmp_path / "run"))
    np.testing.assert_array_equal(again.mean_, scaler.mean_)


def test_names_that_differ_or_stand_twice_still_cost_a_site(tmp_path):
    last = fs.Site("d", ROWS.iloc[:9].set_axis(list("abce"), axis=1))
    network = Network([*sites(), last], tmp_path)
    with pytest.warns(UserWarning, match="d: it lacks 'd' and also has 'e'"):
        model = fs.FedPCA(2).fit(network.federation())
    assert model.sites_ == ("a", "b", "c")

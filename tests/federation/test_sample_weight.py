"""Weights of rows: who takes them, who refuses them, and what a site's digests know of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import InputError, QuorumError

X = np.arange(12.0).reshape(6, 2)


@fs.step("test_sample_weight.weight", reveals="sums", weighted=True)
def weight(site):
    return {"weight": float(sum(batch.sample_weight.sum() for batch in site.batches(4)))}


@fs.step("test_sample_weight.rows", reveals="sums")
def rows(site):
    return {"n": len(site)}


@fs.step("test_sample_weight.name", reveals="nothing")
def name(site):
    return {"weighted": site.weighted}


def test_a_site_shows_its_weights_to_steps_that_use_them():
    fed = fs.LocalFederation(
        [fs.Site("a", X, sample_weight=[1, 2, 3, 4, 5, 6]), fs.Site("b", X, sample_weight=[2] * 6)]
    )
    assert fed.sum(weight)["weight"] == 33.0
    assert fed.ask(name)["a"]["weighted"] is True
    site = fs.Site("a", X, sample_weight=np.ones(6))
    assert not site.sample_weight.flags.writeable
    assert fs.Site("a", X).sample_weight is None


@pytest.mark.parametrize("policy", [None, fs.Policy(secure_sum=True)])
def test_a_step_that_counts_rows_once_is_refused(policy):
    sites = [fs.Site(name, X, sample_weight=np.ones(6)) for name in "abcd"]
    fed = fs.LocalFederation(sites, policy=policy)
    with pytest.raises(QuorumError, match="takes no account of sample_weight, and the rows of site 'a' have weights"):
        fed.sum(rows)
    assert fed.sum(weight)["weight"] == pytest.approx(24.0)


def test_federate_takes_weights_as_values_or_as_a_column():
    values = np.arange(6.0)
    for fed in (
        fs.federate(X, sites=list("aabbab"), sample_weight=values),
        fs.federate(X, sample_weight=pd.Series(values, index=range(6, 12))),
        fs.federate(pd.DataFrame(X).assign(w=values, s=list("aabbab")), sites="s", sample_weight="w"),
        fs.federate({"a": pd.DataFrame(X).assign(w=values)}, sample_weight="w"),
    ):
        assert fed.sum(weight)["weight"] == 15.0


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.ones(5), r"sample_weight has shape \(5,\), but X has 6 rows"),
        (np.ones((6, 1)), r"sample_weight has shape \(6, 1\)"),
        (-np.ones(6), "sample_weight holds numbers below 0, NaN or infinity"),
        ([1, 2, 3, 4, 5, np.nan], "sample_weight holds numbers below 0, NaN or infinity"),
        (list("abcdef"), "sample_weight must be one number for each row"),
    ],
)
def test_bad_weights_are_refused(values, reason):
    with pytest.raises(InputError, match=reason):
        fs.Site("a", X, sample_weight=values)
    with pytest.raises(InputError, match="sample_weight"):
        fs.federate(X, sites=list("aabbab"), sample_weight=values)


def test_digests_are_of_the_weights_too():
    sites = [fs.Site("a", X), fs.Site("a", X, sample_weight=np.ones(6)), fs.Site("a", X, sample_weight=np.arange(6))]
    assert len({site.digest() for site in sites}) == 3
    assert len({site.fingerprint() for site in sites}) == 3


def test_an_estimator_that_cannot_use_weights_refuses_them():
    fed = fs.federate(X, sites=list("aabbab"), sample_weight=np.ones(6))
    with pytest.raises(InputError, match="FedSpectralClustering takes no account of sample_weight"):
        fs.FedSpectralClustering(2).fit(fed)
    with pytest.raises(InputError, match=r"a federation's sites have their own, fedspan.Site\(name, X, sample_weight"):
        fs.FedPCA(1)._as_federation(fed, None, None, sample_weight=np.ones(6))

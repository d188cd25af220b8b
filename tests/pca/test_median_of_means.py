"""The subspace median of means: malicious sites cost no more than their groups."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan import attacks
from fedspan.datasets import make_subspace_sites
from fedspan.errors import InputError
from fedspan.linalg import subspace_distance
from fedspan.pca.median_of_means import median_of_means

from .subspace_sites import SITES, N, R, honest_error

PRODUCTS = {
    "text": lambda r: {**r, "product": np.full(r["product"].shape, "x")},
    "none": lambda r: {**r, "product": None},
    "short": lambda r: {**r, "product": r["product"][:-1]},
    "wide": lambda r: {**r, "product": r["product"].T},
    "zeros": lambda r: {**r, "product": np.zeros_like(r["product"])},
    "no key": lambda r: {"n": r["n"]},
    "nothing": lambda r: None,
    "nan": lambda r: {**r, "product": r["product"] * np.nan},
}


@pytest.mark.parametrize("what", sorted(PRODUCTS))
@pytest.mark.parametrize("bad", [["site-00"], ["site-00", "site-01"]], ids=len)
def test_malformed_replies_cost_median_of_means_no_more_than_their_groups(data, what, bad):
    def attack(replies, bad, rng, call):
        return {site: PRODUCTS[what](replies[site]) for site in bad} if "product" in call.step else {}

    for n_sites, groups in ((SITES, 5), (3, 3)):
        rows = data.sites < f"site-{n_sites:02d}"
        fed = fs.federate(data.X[rows], sites=data.sites[rows]).corrupt(attack, sites=bad[: 1 if n_sites == 3 else 2])
        model = fs.FedPCA(R, solver="median_of_means", groups=groups, center=False, random_state=0).fit(fed)
        assert subspace_distance(model.components_.T, data.basis) < 1.5 * honest_error(data)
        if what != "zeros" or len(bad) == 1:
            assert not set(bad[:1]) & set(model.sites_trusted_) or what == "zeros"


def test_median_of_means_survives_malicious_groups_and_refuses_impossible_ones(fed, data):
    attacked = fed.corrupt(attacks.Orthogonal(30.0), sites=["site-00", "site-09"])
    found = attacked.run(median_of_means, rank=R, n_columns=N, groups=5)
    assert subspace_distance(found.basis, data.basis) < honest_error(data)
    assert set(found.trusted) == {f"site-{i:02d}" for i in range(2, 8)}
    assert len(found.weights) == SITES
    assert found.weights.sum() == pytest.approx(1.0)
    for groups in (0, 11):
        with pytest.raises(InputError, match=f"groups={groups}"):
            fed.run(median_of_means, rank=R, n_columns=N, groups=groups)
        with pytest.raises(InputError, match=f"groups={groups}"):
            fs.FedPCA(R, solver="median_of_means", groups=groups).fit(fed)


@pytest.mark.parametrize("attack", [attacks.Ones(10.0), attacks.SignFlip(), attacks.RandomNoise(100.0)])
def test_it_warns_where_half_of_the_groups_hold_a_site_unlike_most(attack):
    """Six of 19 sites spoil six of nine groups: the error was 7.5 times a site's own, and nothing showed it."""
    for seed in (31, 32, 33):
        made = make_subspace_sites(50, 3, 19, 200, spike=40.0, tail=1.0, seed=seed)
        fed = fs.federate(made.X, sites=made.sites, seed=1)
        bad = [fed.sites[place] for place in (0, 4, 7, 11, 14, 18)]
        model = fs.FedPCA(3, solver="median_of_means", center=False)
        with pytest.warns(UserWarning, match="two groups"):
            model.fit(fed.corrupt(attack, sites=bad))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(fed)
            model.fit(fed.corrupt(attack, sites=bad[:2]))


def test_a_site_that_is_left_out_does_not_make_the_groups_impossible(data):
    sites = [fs.Site(name, data.X[data.sites == name]) for name in np.unique(data.sites)]
    odd = fs.Site("odd", np.ones((60, 2)))
    with pytest.warns(UserWarning, match="odd"):
        model = fs.FedPCA(R, solver="median_of_means", groups=SITES + 1).fit(fs.LocalFederation([*sites, odd]))
    assert model.components_.shape == (R, N)

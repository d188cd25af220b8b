"""One-shot PCA from the sites' own axes."""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA

import fedspan as fs
from fedspan.pca.stack import local_axes

from .tables_of_low_rank import low_rank, sine


def test_stack_is_exact_for_low_rank_sites_and_close_otherwise():
    X, labels = low_rank(7)
    exact = PCA(3, svd_solver="full").fit(X)
    stacked = fs.FedPCA(3, solver="stack").fit(X, sites=labels)
    assert sine(stacked.components_, exact.components_) < 0.05
    assert np.all(stacked.explained_variance_ <= exact.explained_variance_ * (1 + 1e-12))
    rng = np.random.default_rng(0)
    thin = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 9))
    whole = fs.FedPCA(2, solver="stack", center=False).fit(thin, sites=np.arange(60) % 5)
    assert sine(whole.components_, np.linalg.svd(thin)[2][:2]) <= 1e-8
    tiny = fs.FedPCA(3, solver="stack").fit(X, sites=np.arange(len(X)) // 2)  # two rows a site, three axes requested
    assert tiny.components_.shape == (3, 12)


def test_a_site_sends_no_more_axes_than_it_has_columns():
    """A rank of 2^20 was a reply of 67 MB of zeros."""
    fed = fs.LocalFederation([fs.Site("a", np.eye(5, 3))])
    assert fed.ask(local_axes, rank=2**20)["a"]["axes"].shape == (3, 3)

"""The number of clusters, and how far sites differ from one model."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.mixed_regression.parts import regression_rows
from fedspan.mixed_regression.parts.count_clusters import count_clusters, local_halves, spread_over_noise

from .mixtures import federation, mixture


@pytest.mark.parametrize("k", [1, 2, 4])
def test_clusters_are_counted(k):
    rng = np.random.default_rng(k)
    X = rng.normal(size=(120 * 20, 8))
    y = X[np.arange(len(X)), np.repeat(np.arange(120) % k, 20)] + 0.2 * rng.normal(size=len(X))  # theta_j = e_j
    fed = fs.federate(X, y, sites=np.repeat([f"{i:03d}" for i in range(120)], 20))
    assert fed.run(count_clusters, start=np.zeros(8)) == k
    assert fed.run(count_clusters, start=np.zeros(8), most=1) == 1


def test_counting_needs_pairs_of_rows():
    with pytest.raises(InputError, match="no site has two rows"):
        count_clusters(federation(mixture(0, sizes=(1, 1, 1))), start=np.zeros(5))
    with pytest.raises(InputError, match="flips=0"):
        count_clusters(federation(mixture(0)), start=np.zeros(5), flips=0)


def test_halves_are_even_and_odd_rows_also_in_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(11, 3)), rng.normal(size=11)
    expected = np.stack([y[0::2] @ X[0::2] / 6, y[1::2] @ X[1::2] / 5])
    np.testing.assert_allclose(local_halves(fs.Site("a", X, y), np.zeros(3))["halves"], expected)
    monkeypatch.setattr(regression_rows, "_BLOCK_BYTES", 8 * 3 * 3)
    np.testing.assert_allclose(local_halves(fs.Site("a", X, y), np.zeros(3))["halves"], expected)


def test_one_site_cannot_say_that_all_differ():
    made = mixture(35, sizes=(10,) * 60, k=1, d=4)

    def shout(replies, bad, rng, call):
        return {site: {**replies[site], "halves": np.full((2, 4), 1e300)} for site in bad if "halves" in replies[site]}

    fed = federation(made).corrupt(shout, sites=["0003"])
    assert fed.run(spread_over_noise, start=made[4][0], robust=True) < 1.5

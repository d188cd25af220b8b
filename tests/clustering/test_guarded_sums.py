"""Guarded sums: no two of them differ by few rows, and sites send no others."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

import fedspan as fs
from fedspan.clustering import federated_k_means as protocol
from fedspan.clustering.parts import guarded_sums
from fedspan.errors import QuorumError
from tests.clustering.cluster_examples import blobs


def test_centres_with_too_few_rows_stay_where_they_are():
    X = np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [50.0], [51.0]])
    start = [[0.0], [49.0], [-99.0]]
    moved = fs.FedKMeans(3, init=start, least_rows=2).fit(X)
    np.testing.assert_allclose(moved.cluster_centers_, [[0.2], [50.5], [-99.0]])
    # The sum of the five would reveal that of the two, the rest of all rows.
    model = fs.FedKMeans(3, init=start, least_rows=3).fit(X, sites=np.arange(7) % 2)
    np.testing.assert_allclose(model.cluster_centers_, start)
    np.testing.assert_array_equal(model.cluster_sizes_, [5, 2, 0])
    assert model.run_.metric("small_centres")[0] == 2
    more = np.r_[X, [[-98.0]]]
    model = fs.FedKMeans(3, init=start, least_rows=3).fit(more, sites=np.arange(8) % 2)
    np.testing.assert_allclose(model.cluster_centers_, [[0.2], [49.0], [-99.0]])


@fs.step
def own_rows(site):
    return {"X": site.X}


def sets_of_sums(monkeypatch):
    """Return the list that the sets (rows,) of every requested sum will be in, by round and codebook."""
    found = []
    summed = fs.Federation.sum

    def spied(self, step, **payload):
        if step in (guarded_sums.local_guarded_means, protocol.local_means):
            X = np.concatenate([reply["X"] for reply in self.ask(own_rows).ok.values()])
            for C, wanted in zip(payload["centres"], payload["wanted"], strict=True):
                labels = np.square(X[:, None] - C).sum(axis=2).argmin(axis=1)
                found.append([labels == centre for centre in np.flatnonzero(wanted)])
        return summed(self, step, **payload)

    monkeypatch.setattr(fs.Federation, "sum", spied)
    return found


def differences(sums):
    flat = np.array([rows for book in sums for rows in book]).astype(int)
    sizes = flat.sum(axis=1)
    return (sizes[:, None] + sizes - 2 * flat @ flat.T)[np.triu_indices(len(flat), 1)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("least_rows", [3, 5])
def test_no_two_guarded_sums_differ_by_few_rows(monkeypatch, seed, least_rows):
    X = np.r_[blobs(400, k=7, apart=2.0, seed=seed)[0], [[1e3, 0, 0, 0]], [[0, 1e3, 0, 0]]]  # two far from all others
    sums = sets_of_sums(monkeypatch)
    model = fs.FedKMeans(20, n_init=3, max_iter=8, random_state=seed, least_rows=least_rows)
    model.fit(X, sites=np.arange(len(X)) % 4)
    assert len(sums) > 6
    assert min(rows.sum() for book in sums for rows in book) >= least_rows
    assert differences(sums).min() >= least_rows
    left = np.array([len(X) - sum(rows.sum() for rows in book) for book in sums if book])
    assert ((left == 0) | (left >= least_rows)).all()
    apart = np.linalg.norm(X[:, None] - model.cluster_centers_, axis=2)
    assert apart.min() > 1e-3  # no centre is a row
    sums.clear()
    monkeypatch.setattr(protocol, "GuardedSums", Unguarded)
    model.fit(X, sites=np.arange(len(X)) % 4)
    assert differences(sums).min() < least_rows  # what the guard is for


class Unguarded(guarded_sums.GuardedSums):
    def _chosen(self, counts, differ, which):
        return counts >= self.least_rows, np.full(counts.shape, -1)


def test_codebooks_that_find_the_same_groups_share_their_sums(monkeypatch):
    X = np.repeat(9.0 * np.eye(4), 10, axis=0) + 0.1 * np.random.default_rng(0).normal(size=(40, 4))
    sums = sets_of_sums(monkeypatch)
    model = fs.FedKMeans(4, n_init=5, random_state=1, least_rows=5).fit(X, sites=np.arange(40) % 3)
    assert differences(sums).min() >= 5
    assert len({tuple(rows) for book in sums for rows in book}) == sum(map(len, sums))
    assert model.inertia_ < 4.0


def test_guarded_sums_are_near_lloyd_and_the_same_for_any_split():
    X, y = blobs(600, k=12, d=8)
    one = fs.FedKMeans(12, random_state=0, n_init=3, least_rows=5).fit(X)
    many = fs.FedKMeans(12, random_state=0, n_init=3, least_rows=5).fit(X, sites=np.arange(600) % 7)
    np.testing.assert_allclose(many.cluster_centers_, one.cluster_centers_, atol=1e-9)
    assert one.inertia_ < 1.5 * KMeans(12, n_init=3, random_state=0).fit(X).inertia_
    assert adjusted_rand_score(y, one.labels_) > 0.8


def test_a_site_sends_no_sums_of_sets_that_it_did_not_compare():
    fed = fs.federate(blobs(40)[0], sites=np.arange(40) % 2)
    C, wanted = np.zeros((1, 2, 4)), np.ones((1, 2), dtype=bool)
    others = np.zeros((1, 2, 1, 2), dtype=np.int32)
    with pytest.raises(QuorumError, match="sums only of sets that it counted"):
        fed.sum(guarded_sums.local_guarded_means, centres=C, wanted=wanted, given=0)
    fed.sum(guarded_sums.local_overlaps, centres=C, others=others, given=0)
    with pytest.raises(QuorumError, match="sums only of sets that it counted"):
        fed.sum(guarded_sums.local_guarded_means, centres=C + 1, wanted=wanted, given=0)
    assert fed.sum(guarded_sums.local_guarded_means, centres=C, wanted=wanted, given=0)["counts"].sum() == 40
    with pytest.raises(QuorumError, match="sums only of sets that it counted"):
        fed.sum(guarded_sums.local_guarded_means, centres=C, wanted=wanted, given=1)

"""FedKMeans: pooled Lloyd whatever the split, the start, small and empty centres, and what leaves a site."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

import fedspan as fs
from fedspan.clustering import federated_k_means as protocol
from fedspan.clustering.parts import guarded_sums
from fedspan.clustering.parts import rows_by_centre as closest_rows
from fedspan.errors import FedspanError, InputError, PolicyError, QuorumError


def blobs(n=300, k=6, d=4, seed=0, apart=6.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    return rng.normal(size=(n, d)) + apart * rng.normal(size=(k, d))[y], y


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), sites=st.integers(1, 9), shift=st.sampled_from([0.0, 1e4]))
def test_any_split_is_the_pooled_lloyd_of_scikit_learn(seed, sites, shift):
    rng = np.random.default_rng(seed)
    X = blobs(120, seed=seed, apart=2.0)[0] + shift
    init = X[rng.choice(120, 5, replace=False)]
    pooled = KMeans(5, init=init, n_init=1, algorithm="lloyd").fit(X)
    found = fs.FedKMeans(5, init=init).fit(X, sites=rng.integers(0, sites, 120))
    np.testing.assert_allclose(found.cluster_centers_, pooled.cluster_centers_, atol=1e-9 * max(1.0, shift))
    np.testing.assert_array_equal(found.labels_, pooled.labels_)
    assert found.inertia_ == pytest.approx(pooled.inertia_, rel=1e-9)
    assert found.n_iter_ == pooled.n_iter_
    np.testing.assert_allclose(found.transform(X), pooled.transform(X), atol=1e-6)
    assert found.score(X) == pytest.approx(pooled.score(X), rel=1e-9)


def test_one_round_by_hand():
    X = np.array([[0.0], [2.0], [10.0], [12.0], [14.0]])
    model = fs.FedKMeans(2, init=[[1.0], [4.0]], max_iter=1, least_rows=1).fit(X, sites=list("abaab"))
    np.testing.assert_allclose(model.cluster_centers_, [[1.0], [12.0]])
    assert model.inertia_ == pytest.approx(1 + 1 + 4 + 0 + 4)
    np.testing.assert_array_equal(model.cluster_sizes_, [2, 3])
    np.testing.assert_array_equal(model.labels_, [0, 0, 1, 1, 1])
    np.testing.assert_array_equal(model.row_sites_, [0, 1, 0, 0, 1])
    np.testing.assert_array_equal(model.labels_at("b"), [0, 1])


def test_the_start_from_sums_is_as_good_as_k_means_plus_plus_and_the_same_for_any_split():
    X, y = blobs(600, k=12, d=8)
    one = fs.FedKMeans(12, random_state=0, n_init=3).fit(X)
    many = fs.FedKMeans(12, random_state=0, n_init=3).fit(X, sites=np.arange(600) % 7)
    np.testing.assert_allclose(many.cluster_centers_, one.cluster_centers_, atol=1e-9)
    assert adjusted_rand_score(y, one.labels_) > 0.9
    assert one.inertia_ < 1.1 * KMeans(12, n_init=3, random_state=0).fit(X).inertia_


def test_more_starts_keep_the_best_of_them():
    X, _ = blobs(400, k=15, d=2, apart=4.0)
    runs = fs.federate(X, sites=np.arange(400) % 3, seed=1).run(
        protocol.federated_k_means, n_clusters=15, n_init=5, max_iter=50
    )
    model = fs.FedKMeans(15, n_init=5, max_iter=50).fit(fs.federate(X, sites=np.arange(400) % 3, seed=1))
    assert np.ptp(runs.inertia) > 0
    assert model.inertia_ == runs.inertia.min()
    np.testing.assert_array_equal(model.cluster_centers_, runs.centres[runs.inertia.argmin()])


def test_centres_with_too_few_rows_stay_where_they_are():
    X = np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [50.0], [51.0]])
    start = [[0.0], [49.0], [-99.0]]
    moved = fs.FedKMeans(3, init=start, least_rows=2).fit(X)
    np.testing.assert_allclose(moved.cluster_centers_, [[0.2], [50.5], [-99.0]])
    # The sum of the five would tell that of the two, which is what is left of all rows.
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
    """Return the list that the sets (rows,) of every sum that is asked for will be in, by round and codebook."""
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


def test_a_site_gives_no_sums_of_sets_that_it_did_not_compare():
    fed = fs.federate(blobs(40)[0], sites=np.arange(40) % 2)
    C, wanted = np.zeros((1, 2, 4)), np.ones((1, 2), dtype=bool)
    others = np.zeros((1, 2, 1, 3), dtype=np.int32)
    with pytest.raises(QuorumError, match="sums are given only of sets that were counted"):
        fed.sum(guarded_sums.local_guarded_means, centres=C, wanted=wanted, number=0)
    fed.sum(guarded_sums.local_overlaps, centres=C, others=others)
    with pytest.raises(QuorumError, match="sums are given only of sets that were counted"):
        fed.sum(guarded_sums.local_guarded_means, centres=C + 1, wanted=wanted, number=0)
    assert fed.sum(guarded_sums.local_guarded_means, centres=C, wanted=wanted, number=0)["counts"].sum() == 40
    with pytest.raises(QuorumError, match="sums are given only of sets that were counted"):
        fed.sum(guarded_sums.local_guarded_means, centres=C, wanted=wanted, number=1)


def lloyd(X, C, rounds):
    """Pooled Lloyd; of centres that are equally far, to rounding, the first has the row."""
    for _ in range(rounds):
        D = np.square(X[:, None] - C).sum(axis=2)
        labels = (D.min(axis=1, keepdims=True) + 1e-9 >= D).argmax(axis=1)
        C = np.array([X[labels == j].mean(axis=0) if (labels == j).any() else C[j] for j in range(len(C))])
    return C


@pytest.mark.parametrize("table", ["iris", "digits 0-4", "tenths"])
def test_ties_fall_alike_for_any_split_and_as_in_pooled_lloyd(table):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = {
            "iris": load_iris().data,
            "digits 0-4": rng.integers(0, 5, (150, 2)).astype(float),
            "tenths": rng.integers(0, 9, (150, 3)) / 10 + 1e3,
        }[table]
        k = int(rng.integers(3, 20))
        init = X[rng.choice(150, k, replace=False)]
        expected = lloyd(X - X.mean(axis=0).round(), init - X.mean(axis=0).round(), 25) + X.mean(axis=0).round()
        for sites in (np.zeros(150, int), np.arange(150) % 3, np.arange(150) % 10, rng.integers(0, 7, 150)):
            found = fs.FedKMeans(k, init=init, max_iter=25, tol=0.0).fit(X, sites=sites)
            np.testing.assert_allclose(found.cluster_centers_, expected, atol=1e-9)


def test_labels_stay_at_the_sites_of_a_federation_unless_they_are_posted():
    X, _ = blobs(100)
    fed = fs.federate(X, sites=np.arange(100) % 3)
    model = fs.FedKMeans(4, random_state=0).fit(fed)
    assert not hasattr(model, "labels_")
    with pytest.raises(AttributeError, match=r"stay at its sites; fit with post_labels=True"):
        _ = model.labels_
    asked = {call.step.rsplit(".", 1)[1] for call in model.run_.calls[1:]}  # the first is that of the columns
    assert asked == {"local_sums", "local_centred_sums", "local_counts", "local_means"}
    posting = fs.FedKMeans(4, random_state=0, post_labels=True).fit(fed)
    np.testing.assert_array_equal(posting.labels_at("1"), model.predict(X[1::3]))
    refitted = posting.set_params(post_labels=False).fit(fed)
    assert not hasattr(refitted, "labels_")


def test_under_secure_sums():
    X, _ = blobs(150)
    labels = np.arange(150) % 5
    policy = fs.Policy(secure_sum=True)
    plain = fs.FedKMeans(5, random_state=0).fit(X, sites=labels)
    secure = fs.FedKMeans(5, random_state=0).fit(fs.federate(X, sites=labels, policy=policy))
    np.testing.assert_allclose(secure.cluster_centers_, plain.cluster_centers_, atol=1e-9)
    with pytest.raises(PolicyError, match=r"FedKMeans\(post_labels=True\) needs the replies of single sites"):
        fs.FedKMeans(5, post_labels=True).fit(fs.federate(X, sites=labels, policy=policy))


def test_a_site_that_vanishes_is_not_in_the_centres():
    X, _ = blobs(200, k=4, apart=20.0)
    labels = np.arange(200) % 5
    fed = fs.federate(X, sites=labels, seed=1)

    def gone(replies, bad, rng, call):
        return {site: ({} if call.number > 6 else replies[site]) for site in bad}

    with pytest.warns(UserWarning, match="no labels of the rows of these sites, which did not post them: 3"):
        model = fs.FedKMeans(4, post_labels=True).fit(fed.corrupt(gone, ["3"]))
    rest = X[labels != 3]
    again = KMeans(4, init=model.cluster_centers_, n_init=1, max_iter=1).fit(rest)
    np.testing.assert_allclose(model.cluster_centers_, again.cluster_centers_, atol=1e-9)
    assert len(model.labels_) == 160


def test_wrong_labels_cost_their_site_its_place():
    X, _ = blobs(100)
    fed = fs.federate(X, sites=np.arange(100) % 4)

    def lying(replies, bad, rng, call):
        return {
            site: {**replies[site], "labels": replies[site]["labels"] + 99}
            if "labels" in replies[site]
            else replies[site]
            for site in bad
        }

    with pytest.warns(UserWarning, match=": 2"):
        model = fs.FedKMeans(3, post_labels=True, random_state=0).fit(fed.corrupt(lying, ["2"]))
    assert len(model.labels_) == 75
    assert any("labels must be whole numbers from 0 to 2" in why for _, _, why in model.run_.failures)


def test_hostile_sums_get_a_sentence():
    X, _ = blobs(100)
    fed = fs.federate(X, sites=np.arange(100) % 4).corrupt(fs.attacks.RandomNoise(1e200), ["2"])
    with pytest.raises(FedspanError, match=r"numbers beyond|non-finite|overflow"):
        fs.FedKMeans(3).fit(fed)


def test_the_labels_of_both_sums_of_a_round_are_computed_once(monkeypatch):
    calls = []
    whole = closest_rows.closest
    monkeypatch.setattr(closest_rows, "closest", lambda X, C: calls.append(1) or whole(X, C))
    X, _ = blobs(100)
    model = fs.FedKMeans(3, init=X[:3], max_iter=4, tol=0.0).fit(X)
    assert len(calls) == model.n_iter_  # that of the last round stands for the inertia: the centres moved no more
    assert sum(call.step.endswith("local_means") for call in model.run_.calls) == model.n_iter_


def test_blocks_change_nothing(monkeypatch):
    X, _ = blobs(200)
    whole = fs.FedKMeans(6, random_state=0).fit(X.astype(np.float32))
    monkeypatch.setattr(closest_rows, "_BLOCK_BYTES", 8 * 6 * 20)
    monkeypatch.setattr(closest_rows, "_KEPT_BYTES", 0)
    parts = fs.FedKMeans(6, random_state=0).fit(X.astype(np.float32))
    np.testing.assert_allclose(parts.cluster_centers_, whole.cluster_centers_, atol=1e-10)
    assert parts.transform(X[:3].astype(np.float32)).dtype == np.float32


def test_transform_of_a_federation_is_at_its_sites():
    X, _ = blobs(60)
    model = fs.FedKMeans(3, random_state=0).fit(X)
    seen = model.transform(fs.federate(X, sites=np.arange(60) % 2, wire=True))
    np.testing.assert_allclose(fs.FedStandardScaler().fit(seen).mean_, model.transform(X).mean(axis=0))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"n_clusters": 41}, r"n_clusters=41 must be a whole number between 1 and 40, the number of rows"),
        ({"least_rows": 41}, "n_samples=40 is fewer than least_rows=41"),
        ({"init": "random"}, "init='random' must be 'split' or an array"),
        ({"n_clusters": 2, "init": np.zeros((3, 4))}, r"init has the shape \(3, 4\)"),
        ({"n_clusters": 2, "init": np.zeros((2, 3))}, "init has 3 columns, and the rows have 4"),
        ({"n_clusters": 2, "init": np.zeros((2, 4)), "n_init": 3}, "n_init=3 must be 1 with a given start"),
        ({"tol": -1}, "tol=-1"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"post_labels": "no"}, "post_labels='no' must be True or False"),
    ],
)
def test_settings_that_cannot_work_are_refused(parameters, message):
    with pytest.raises(InputError, match=message):
        fs.FedKMeans(**{"n_clusters": 3, **parameters}).fit(blobs(40)[0])


def test_rows_that_are_all_the_same():
    model = fs.FedKMeans(3, random_state=0).fit(np.ones((20, 2)))
    np.testing.assert_array_equal(model.cluster_centers_, np.ones((3, 2)))
    np.testing.assert_array_equal(model.cluster_sizes_, [20, 0, 0])
    assert model.inertia_ == 0.0

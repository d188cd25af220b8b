"""k-means with noise: how far a row moves a round, what is found, what is spent, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedspan as fs
from fedspan.clustering.noisy_k_means import SENSITIVITY, local_noisy_cells
from fedspan.errors import InputError
from fedspan.privacy import GaussianMoments, Ledger
from tests.privacy.noisy_steps import D, exact_reply, moved, neighbours

SECURE = fs.Policy(secure_sum=True)
BOX = {"lower": -4.0, "upper": [16.0, 16.0, 5.0]}


def groups(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, 3)) + 12.0 * np.eye(3)[y] * [1.0, 1.0, 0.0], y


@settings(max_examples=60, deadline=None)
@given(neighbours(), st.integers(0, 10**6))
def test_no_row_moves_a_round_beyond_the_bound(tables, seed):
    *tables, bounds = tables
    centres = np.random.default_rng(seed).uniform(-0.9, 0.9, size=(5, D))
    with pytest.MonkeyPatch.context() as patch:
        assert moved(tables, local_noisy_cells, patch, centres=centres, **bounds) <= SENSITIVITY


@pytest.mark.parametrize(("box", "row"), [(False, 9.0 * np.eye(1, D)), (True, np.full((1, D), -9.0))])
def test_the_bound_is_attained(box, row, monkeypatch):
    bounds = {"center": np.zeros(D), "width": np.full(D, 2.0), "box": box, "centres": np.zeros((2, D))}
    found = moved((np.zeros((3, D)), np.concatenate([np.zeros((3, D)), row])), local_noisy_cells, monkeypatch, **bounds)
    assert found == pytest.approx(SENSITIVITY, rel=1e-6)


def test_cells_are_those_of_the_units_of_the_rows(monkeypatch):
    """A wide column decides, as it does without noise, although the box has a width of its own for each column."""
    X = np.array([[0.0, 0.9], [9.0, 0.1]])
    bounds = {"center": np.array([5.0, 0.5]), "width": np.array([5.0, 0.5]), "box": True}
    length = np.linalg.norm(bounds["width"])
    centres = (np.array([[1.0, 0.1], [8.0, 0.9]]) - bounds["center"]) / length
    found = exact_reply(X, local_noisy_cells, monkeypatch, centres=centres, **bounds)
    np.testing.assert_allclose(found[:2], [0.5, 0.5])
    np.testing.assert_allclose(found[2:].reshape(2, 2), (X - bounds["center"]) / length, atol=1e-7)


@pytest.mark.parametrize("bounds", [BOX, {"clip": 14.0, "center": 4.0}], ids=["box", "ball"])
@pytest.mark.parametrize("policy", [None, SECURE], ids=["plain", "secure"])
def test_with_next_to_no_noise_it_is_plain_k_means(bounds, policy):
    X, _ = groups()
    fed = fs.federate(X, sites=np.arange(len(X)) % 4, policy=policy)
    plain = fs.FedKMeans(3, random_state=0).fit(fed)
    noisy = fs.FedKMeans(3, privacy=GaussianMoments(1e7, 1e-5, **bounds), random_state=0).fit(fed)
    apart = np.linalg.norm(plain.cluster_centers_[:, None] - noisy.cluster_centers_, axis=2).min(axis=1)
    assert apart.max() < 0.1
    assert noisy.inertia_ == pytest.approx(plain.inertia_, rel=0.1)
    assert np.sort(noisy.cluster_sizes_) == pytest.approx(np.sort(plain.cluster_sizes_), abs=10)
    assert noisy.n_iter_ == 7


def test_groups_are_found_with_noise_and_a_public_start():
    X, y = groups()
    fed = fs.federate(X, sites=np.arange(len(X)) % 4, policy=SECURE)
    for init in ("split", 6.0 * np.eye(3)):
        model = fs.FedKMeans(3, init=init, privacy=GaussianMoments(2.0, 1e-5, **BOX), max_iter=4, random_state=0).fit(
            fed
        )
        labels = model.predict(X)
        assert np.mean([(labels[y == g] == np.bincount(labels[y == g]).argmax()).mean() for g in range(3)]) > 0.9
        assert model.n_iter_ == 4


def test_what_is_spent(tmp_path):
    X, _ = groups(900)
    ledgers = [Ledger(tmp_path / f"{i}.ledger", epsilon=9.0, delta=1e-6, strict=True) for i in range(3)]
    sites = [fs.Site(f"s{i}", X[i::3], ledger=ledger) for i, ledger in enumerate(ledgers)]
    model = fs.FedKMeans(3, privacy=GaussianMoments(8.0, 1e-6, **BOX), random_state=0)
    model.fit(fs.LocalFederation(sites, policy=fs.Policy(quorum="all")))
    assert [ledger.spent for ledger in ledgers] == [pytest.approx(8.0)] * 3
    assert model.privacy_.worst == pytest.approx(8.0)
    if model.privacy_.accountant:
        assert max(model.privacy_.accountant.values()) == pytest.approx(8.0, rel=0.01)
    assert "does not cover labels of rows, if they are posted later" in model.privacy_.sentence()
    posted = fs.FedKMeans(3, post_labels=True, privacy=model.privacy).fit(X, sites=np.arange(900) % 3)
    assert "does not cover the posted labels of the rows" in posted.privacy_.sentence()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_init": 2}, r"n_init=2 has no effect with privacy=\.\.\."),
        ({"tol": 0.1}, r"tol=0\.1 has no effect"),
        ({"least_rows": 5}, "least_rows=5 has no effect"),
        ({"privacy": GaussianMoments(0.001, 1e-5, clip=1.0)}, "no centre has more rows than its noise"),
        ({"privacy": 3}, "must be None, or"),
    ],
)
def test_what_cannot_work_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        fs.FedKMeans(**{"n_clusters": 3, "privacy": GaussianMoments(1.0, 1e-5, **BOX), **options}).fit(groups(60)[0])

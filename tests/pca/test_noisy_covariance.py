"""PCA with noise: how far a row moves the sum of products, the symmetric noise, what FedPCA finds and refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import fedspan as fs
from fedspan.errors import InputError
from fedspan.linalg import subspace_distance
from fedspan.pca.noisy_covariance import SENSITIVITY, NoisyCovariance, local_noisy_gram, noisy_covariance
from fedspan.privacy import GaussianMoments, Ledger
from tests.privacy.noisy_steps import D, moved, neighbours

SECURE = fs.Policy(secure_sum=True)


def table(n=8000):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 6)) * [4.0, 3.0, 1.0, 0.5, 0.5, 0.5] + 2.0


@settings(max_examples=60, deadline=None)
@given(neighbours())
def test_no_row_moves_the_sum_beyond_the_bound(tables):
    *tables, bounds = tables
    with pytest.MonkeyPatch.context() as patch:
        assert moved(tables, local_noisy_gram, patch, **bounds) <= SENSITIVITY


@pytest.mark.parametrize(("box", "row"), [(False, 9.0 * np.eye(1, D)), (True, np.full((1, D), -9.0))])
def test_the_bound_is_attained(box, row, monkeypatch):
    bounds = {"center": np.zeros(D), "width": np.full(D, 2.0), "box": box}
    found = moved((np.zeros((3, D)), np.concatenate([np.zeros((3, D)), row])), local_noisy_gram, monkeypatch, **bounds)
    assert found == pytest.approx(SENSITIVITY, rel=1e-6)


@pytest.mark.parametrize(
    "bounds", [{"clip": 40.0, "center": 2.0}, {"lower": -18.0, "upper": 22.0}], ids=["ball", "box"]
)
@pytest.mark.parametrize("options", [{}, {"center": False}, {"scale": True}, {"n_components": 0.9}], ids=repr)
def test_with_next_to_no_noise_it_is_plain_pca(bounds, options):
    X = table()
    plain = fs.FedPCA(**{"n_components": 2, **options}).fit(X, sites=np.arange(len(X)) % 4)
    noisy = fs.FedPCA(**{"n_components": 2, **options}, privacy=GaussianMoments(1e7, 1e-5, **bounds))
    noisy.fit(X, sites=np.arange(len(X)) % 4)
    assert noisy.n_components_ == plain.n_components_
    np.testing.assert_allclose(noisy.mean_, plain.mean_, atol=0.02)
    np.testing.assert_allclose(noisy.explained_variance_, plain.explained_variance_, rtol=0.05)
    assert noisy.noise_variance_ == pytest.approx(plain.noise_variance_, rel=0.2)
    if not options.get("scale"):  # standardised columns have no leading directions
        assert subspace_distance(noisy.components_.T, plain.components_.T) < 0.05
    assert noisy.score(X) == pytest.approx(plain.score(X), rel=0.05)


def test_the_noise_has_the_stated_size_and_shrinks_under_secure_sums():
    X = np.zeros((50, 30))
    privacy = GaussianMoments(1.0, 1e-5, clip=2.0)
    sizes = {}
    for policy in (None, SECURE):
        fed = fs.federate(X, sites=np.arange(50) % 10, policy=policy)
        found = fed.run(noisy_covariance, privacy=privacy, n_columns=30)
        about = found.covariance + np.outer(found.mean, found.mean)
        assert np.array_equal(about, about.T)
        off = about[np.triu_indices(30, 1)] / np.outer(found.noise, found.noise)[np.triu_indices(30, 1)]
        sizes[policy] = np.std(about) * found.n
        assert np.std(off) == pytest.approx(np.sqrt(0.5), rel=0.1)
    assert sizes[None] / sizes[SECURE] == pytest.approx(np.sqrt(7), rel=0.15)


def test_what_is_spent_and_sent(tmp_path):
    X = table(600)
    ledgers = [Ledger(tmp_path / f"{i}.ledger", epsilon=3.0, delta=1e-6, strict=True) for i in range(4)]
    sites = [fs.Site(f"s{i}", X[i::4], ledger=ledger) for i, ledger in enumerate(ledgers)]
    model = fs.FedPCA(2, privacy=GaussianMoments(1.5, 1e-6, clip=20.0, colluding=1))
    model.fit(fs.LocalFederation(sites, policy=fs.Policy(secure_sum=True, quorum="all")))
    assert [ledger.spent for ledger in ledgers] == [pytest.approx(1.5)] * 4
    assert model.privacy_.worst == pytest.approx(1.5)
    assert "at most 1 of which may collude" in model.privacy_.sentence()
    assert {call.step for call in model.run_.calls} <= {
        *("sums.columns", "privacy.ledger", "pca.noisy_gram"),
        *(f"secure_sum.{name}" for name in ("offer", "share", "masked", "confirm", "unmask")),
    }


def test_what_cannot_work_is_refused():
    privacy = GaussianMoments(1.0, 1e-5, clip=1.0)
    with pytest.raises(InputError, match=r"solver='stack' has no noise: with privacy=\.\.\. use 'covariance'"):
        fs.FedPCA(2, solver="stack", privacy=privacy).fit(table(30))
    with pytest.raises(InputError, match="5000 columns are too many"):
        fs.FedPCA(2, privacy=privacy).fit(np.zeros((4, 5000)))


def test_noise_that_hides_all_variance():
    found = NoisyCovariance(9, np.zeros(2), np.diag([1.0, -2.0]), np.ones(2), ("a",))
    with pytest.raises(InputError, match="noise hides all variance"):
        found.axes(center=True, scale=None, rank=1)
    np.testing.assert_array_equal(found.deviations(), [1.0, 1.0])

"""FedPCADetector with noise: model and threshold on one account."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.privacy import GaussianMoments, Ledger

SECURE = fs.Policy(secure_sum=True)
BALL = {"clip": 12.0}


def rows(n=4000, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    axes = np.random.default_rng(9).normal(size=(2, 6))
    return rng.normal(size=(n, 2)) @ axes + noise * rng.normal(size=(n, 6))


@pytest.mark.parametrize("score", ["residual", "mahalanobis", "combined"])
def test_with_next_to_no_noise_it_is_the_plain_detector(score):
    X = rows()
    plain = fs.FedPCADetector(2, distance=score).fit(X, sites=np.arange(len(X)) % 4)
    noisy = fs.FedPCADetector(2, distance=score, privacy=GaussianMoments(1e7, 1e-5, **BALL))
    noisy.fit(X, sites=np.arange(len(X)) % 4)
    assert noisy.offset_ == pytest.approx(plain.offset_, rel=0.02)
    new = rows(seed=1)
    np.testing.assert_allclose(noisy.score_samples(new), plain.score_samples(new), rtol=0.1, atol=0.1)
    assert noisy.score_levels_.shape[1] == 2


def test_anomalies_are_found_with_noise():
    X, bad = rows(), rows(seed=2, noise=1.5)
    fed = fs.federate(X, sites=np.arange(len(X)) % 4, policy=SECURE)
    model = fs.FedPCADetector(2, privacy=GaussianMoments(4.0, 1e-5, **BALL)).fit(fed)
    assert (model.predict(rows(seed=1)) == -1).mean() == pytest.approx(0.05, abs=0.03)
    assert (model.predict(bad) == -1).mean() > 0.8


def test_what_is_spent(tmp_path):
    X = rows(600)
    ledgers = [Ledger(tmp_path / f"{i}.ledger", epsilon=9.0, delta=1e-6, strict=True) for i in range(3)]
    sites = [fs.Site(f"s{i}", X[i::3], ledger=ledger) for i, ledger in enumerate(ledgers)]
    model = fs.FedPCADetector(1, privacy=GaussianMoments(8.0, 1e-6, **BALL))
    model.fit(fs.LocalFederation(sites, policy=fs.Policy(quorum="all")))
    assert [ledger.spent for ledger in ledgers] == [pytest.approx(8.0)] * 3
    shares = [charge.cost.mu2 for charge in ledgers[0].charges]
    assert len(shares) == 6
    assert shares[0] == pytest.approx(0.75 * sum(shares))
    assert model.privacy_.worst == pytest.approx(8.0)
    assert model.privacy_.leaves_out == (
        "the numbers of rows that sites report of their tables, which the head of a journal keeps",
    )
    assert {call.step for call in model.run_.calls} == {
        *("sums.columns", "privacy.ledger", "pca.noisy_gram", "sums.noisy_counts")
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantile": 1.0}, "quantile=1.0 must"),
        ({"solver": "subspace_median"}, "has no noise"),
        ({"n_components": 6, "distance": "residual"}, r"must be below the rank .* nothing does"),
        ({"privacy": 1.0}, "must be None, or"),
    ],
)
def test_what_cannot_work_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        fs.FedPCADetector(**{"n_components": 2, "privacy": GaussianMoments(8.0, 1e-5, **BALL), **options}).fit(
            rows(300)
        )

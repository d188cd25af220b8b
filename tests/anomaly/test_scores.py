"""Scores of batches and of single rows, and the features' shares in them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import InputError

from .unlike_units import DISTANCES, anomalies, labels, rows


@pytest.mark.parametrize("distance", DISTANCES)
def test_shares_are_of_the_score(distance):
    detector = fs.FedPCADetector(3, distance=distance).fit(rows(), sites=labels())
    X = np.vstack([rows(50, seed=9), anomalies(50)])
    shares = detector.explain(X)
    assert shares.shape == X.shape
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(detector.explain(X[3]), shares[3], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(detector.explain(detector.mean_), np.zeros(8))
    with pytest.raises(InputError, match="NaN"):
        detector.explain([np.nan] * 8)
    huge = detector.mean_ + detector.scale_ * 1e200 * np.eye(8)[2]
    np.testing.assert_allclose(detector.explain(huge).sum(), 1.0)


def test_a_feature_that_goes_wrong_is_named():
    pd = pytest.importorskip("pandas")
    names = [f"column {j}" for j in range(8)]
    frame = pd.DataFrame(rows(), columns=names)
    for distance in DISTANCES:
        detector = fs.FedPCADetector(3, distance=distance).fit(frame, sites=labels())
        row = frame.iloc[0].copy()
        row["column 5"] += 60 * detector.scale_[5]
        (name, share), *others = detector.top_features(row)
        assert name == "column 5"
        assert share > 0.3
        assert len(others) == 4
        assert detector.top_features(frame.iloc[:1], 1)[0][0] in names


@pytest.mark.parametrize("distance", DISTANCES)
def test_one_row_has_the_score_of_a_batch(distance):
    detector = fs.FedPCADetector(3, distance=distance).fit(rows(), sites=labels())
    inside = detector.mean_ + (np.eye(3) @ detector.components_) * detector.scale_
    X = np.vstack([rows(100, seed=4), anomalies(100), rows(50, seed=6) * 1e3, inside + 1e-4 * detector.scale_])
    scores = detector.score_samples(X)
    np.testing.assert_allclose([detector.score_one(x) for x in X], scores, rtol=1e-12)
    assert detector.score_one(X[0].tolist()) == detector.score_one(X[0])
    with pytest.raises(InputError, match="one row of 8 numbers"):
        detector.score_one(X[:1])
    with pytest.raises(InputError, match="NaN"):
        detector.score_one([np.nan] * 8)


@pytest.mark.parametrize("distance", DISTANCES)
def test_batches_of_any_size_and_precision(distance):
    detector = fs.FedPCADetector(3, distance=distance).fit(rows(), sites=labels())
    X = rows(9001, seed=4)  # more than two blocks
    scores = detector.score_samples(X)
    np.testing.assert_allclose(detector.score_samples(X[::-1])[::-1], scores, rtol=1e-11)
    np.testing.assert_allclose(detector.score_samples(X[4095:4099]), scores[4095:4099], rtol=1e-11)
    single = detector.score_samples(X.astype(np.float32))
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, detector.score_samples(X.astype(np.float32).astype(np.float64)), rtol=1e-11)
    assert detector.score_samples(np.asfortranarray(X)) == pytest.approx(scores, rel=1e-11)


@pytest.mark.parametrize("distance", DISTANCES)
def test_huge_rows_are_outliers_and_never_nan(distance):
    detector = fs.FedPCADetector(3, distance=distance).fit(rows(), sites=labels())
    X = np.array([[1e308] * 8, [-1e308, 1e308] * 4, [1e160] * 8, [1e308, 0, 0, 0, 0, 0, 0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = detector.score_samples(X)
        assert not np.isnan(scores).any()
        assert (detector.predict(X) == -1).all()
        assert (detector.decision_function(X) < 0).all()
        assert [detector.score_one(x) for x in X] == pytest.approx(scores.tolist(), rel=1e-9)
        np.testing.assert_allclose(detector.explain(X).sum(axis=1), 1.0)


def test_tiny_residuals_keep_their_digits():
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    X = 1e3 * rng.normal(size=(400, 2)) @ U.T + 1e-4 * rng.normal(size=(400, 6))
    detector = fs.FedPCADetector(2, scale=False, distance="residual").fit(X, sites=np.arange(400) % 4)
    D = X - detector.mean_
    exact = D.astype(np.longdouble) - (D.astype(np.longdouble) @ detector.components_.T) @ detector.components_
    np.testing.assert_allclose(-detector.score_samples(X), np.sum(exact**2, axis=1).astype(float), rtol=1e-6)

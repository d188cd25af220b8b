"""The common base of the detectors, on the simplest one: a row's anomaly score is its first value."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.aggregation import CoordinateMedian
from fedspan.anomaly.detector import FedDetector, usual_dimension
from fedspan.errors import InputError
from fedspan.federation import step, transform


@transform
def first_value(X, sign):
    return sign * np.asarray(X[:, :1], dtype=np.float64)


@step
def local_rows(site):
    return {"rows": np.asarray(site.X, dtype=np.float64)}


class FirstValue(FedDetector):
    def __init__(self, *, quantile=0.95, sign=1.0, aggregator=None):
        self.quantile = quantile
        self.sign = sign
        self.aggregator = aggregator

    def fit(self, X, y=None, *, sites=None):
        self._check_quantile()
        with self._fitting(X, y, sites) as fed:
            self._learn_threshold(fed, self.aggregator)
        return self

    def _score_transform(self):
        return first_value, {"sign": self.sign}


X = np.column_stack([np.arange(1.0, 21.0), np.zeros(20)])
LABELS = np.arange(20) % 3


def test_by_hand():
    detector = FirstValue(quantile=0.9).fit(X, sites=LABELS)
    assert detector.offset_ == pytest.approx(-18.0, rel=1e-8)
    np.testing.assert_array_equal(detector.score_samples(X), -X[:, 0])
    np.testing.assert_allclose(detector.decision_function(X), 18.0 - X[:, 0], atol=1e-7)
    np.testing.assert_array_equal(detector.predict(X), [1] * 18 + [-1] * 2)
    np.testing.assert_array_equal(FirstValue(quantile=0.9).fit_predict(X, sites=LABELS), [1] * 18 + [-1] * 2)
    np.testing.assert_array_equal(FirstValue(quantile=1).fit_predict(X), 1)


def test_negative_thresholds_have_their_margin_on_the_right_side():
    detector = FirstValue(quantile=0.9, sign=-1.0).fit(X, sites=LABELS)
    assert 3.0 - 1e-7 < detector.offset_ < 3.0
    np.testing.assert_array_equal(detector.predict(X), [-1] * 2 + [1] * 18)


def test_equal_rows_stay_together_although_scores_have_rounding():
    tied = np.repeat([[1.0, 0.0], [2.0, 0.0]], [90, 10], axis=0)
    detector = FirstValue(quantile=0.9).fit(tied, sites=np.arange(100) % 3)
    assert (detector.predict(tied * (1 + 1e-13)) == np.repeat([1, -1], [90, 10])).all()


def test_the_sites_of_a_federation_see_their_own_results():
    fed = fs.federate(X, sites=LABELS)
    detector = FirstValue(quantile=0.9).fit(fed)
    for method in ("score_samples", "decision_function", "predict"):
        results = getattr(detector, method)(fed).ask(local_rows)
        found = np.concatenate([reply["rows"][:, 0] for reply in results.values()])
        np.testing.assert_array_equal(found, getattr(detector, method)(X[np.argsort(LABELS, kind="stable")]))
    assert isinstance(FirstValue().fit_predict(fed), fs.Federation)


def test_columns_must_be_those_of_the_fit():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b"])
    detector = FirstValue().fit(frame)
    other = fs.federate(frame.rename(columns={"a": "c"}), sites=LABELS)
    with pytest.raises(fs.errors.QuorumError, match="this transform was fitted on"):
        detector.predict(other).ask(local_rows)
    with pytest.raises(ValueError, match="feature names"):
        detector.predict(frame[["b", "a"]])
    with pytest.raises(ValueError, match="3 features"):
        FirstValue().fit(X).predict(np.zeros((2, 3)))


def test_the_aggregator_is_used():
    def deny(replies, bad, rng, call):
        return {s: {**replies[s], "fractions": 0.0 * replies[s]["fractions"]} for s in bad if "fractions" in replies[s]}

    fed = fs.federate(X, sites=LABELS).corrupt(deny, sites=["2"])
    assert 10 < -FirstValue(quantile=0.6, aggregator=CoordinateMedian()).fit(fed).offset_ < 15


@pytest.mark.parametrize("quantile", [0, 1.01, -1, "0.9", None, np.nan, True])
def test_other_quantiles_are_refused(quantile):
    with pytest.raises(InputError, match="quantile="):
        FirstValue(quantile=quantile).fit(X)


def test_the_usual_dimension():
    assert [usual_dimension(d) for d in (1, 2, 3, 8, 20, 500)] == [1, 1, 1, 4, 10, 10]


def test_it_keeps_some_training_scores_of_the_search():
    rows = np.random.default_rng(0).gamma(2.0, size=(400, 1))
    for aggregator in (None, CoordinateMedian()):
        detector = FirstValue(aggregator=aggregator).fit(rows, sites=np.arange(400) % 4)
        scores, shares = detector.score_levels_.T
        assert (np.diff(scores) >= 0).all()
        assert (np.diff(shares) >= 0).all()
        # Scores are kept in single precision: one on the wrong side of a row's own is one row of 400.
        true = (rows <= scores).mean(axis=0)
        np.testing.assert_allclose(shares, true, atol=0.003 if aggregator is None else 0.05)
        assert (shares[0], shares[-1]) == (0.0, 1.0)
        assert 20 < len(scores) <= 28  # a picture can be drawn of it, and a model stays small


def test_scores_beyond_single_precision_have_a_threshold_and_no_picture():
    detector = FirstValue(quantile=0.5).fit(np.array([[1e200], [2e200], [3e200]]))
    assert detector.offset_ == pytest.approx(-2e200, rel=1e-8)
    assert np.isfinite(detector.score_levels_).all()
    assert (detector.score_levels_[:, 1] == 0).all()

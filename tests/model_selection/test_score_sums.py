"""Totals over held-out rows, against scikit-learn on the pooled rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mean_absolute_error, r2_score, roc_auc_score

import fedspan as fs
from fedspan.errors import InputError
from fedspan.model_selection.score_sums import error_totals, hit_rate, roc_area, value_totals, verdict_counts


def federation(values, y, sites=3, **kwargs):
    values = np.asarray(values, dtype=float)
    return fs.federate(values[:, None], y, sites=np.arange(len(values)) % sites, **kwargs)


@pytest.mark.parametrize("secure", [False, True])
def test_errors_are_those_of_the_pooled_rows(secure):
    rng = np.random.default_rng(0)
    y = rng.normal(size=90) + 1e3
    predicted = y + rng.normal(size=90) / 3
    found = error_totals(federation(predicted, y, policy=fs.Policy(secure_sum=secure)))
    assert found.n == 90
    np.testing.assert_allclose(1 - found.squared / found.spread, r2_score(y, predicted), rtol=1e-6)
    np.testing.assert_allclose(found.absolute / 90, mean_absolute_error(y, predicted), rtol=1e-6)


def test_classes_may_be_numbers_or_flags():
    predicted = np.array([0, 1, 1, 0, 1, 1])
    assert hit_rate(federation(predicted, np.array([0, 1, 0, 0, 1, 0]))) == pytest.approx(4 / 6)
    assert hit_rate(federation(predicted, np.array([0, 1, 0, 0, 1, 0], dtype=bool))) == pytest.approx(4 / 6)


def test_verdicts_by_either_kind_of_label():
    verdicts = [-1, -1, 1, 1, 1, -1]
    for y in ([1, 1, 1, 0, 0, 0], [-1, -1, -1, 1, 1, 1]):
        assert verdict_counts(federation(verdicts, np.array(y))) == (3, 2, 3, 1)
    with pytest.raises(InputError, match="3 labels that are neither"):
        verdict_counts(federation(verdicts, np.array([1, 1, 1, 2, 2, 2])))


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(-1e6, 1e6).map(lambda x: round(x, 9)) | st.sampled_from([0.0, 1.0, 1.0 + 1e-12]), st.booleans()
        ),
        min_size=4,
        max_size=40,
    ).filter(lambda rows: len({label for _, label in rows}) == 2)
)
def test_the_area_is_that_of_scikit_learn(rows):
    scores, bad = (np.array(column) for column in zip(*rows, strict=True))
    found = roc_area(federation(scores, bad.astype(int), sites=2))
    assert found == pytest.approx(roc_auc_score(bad, -scores), abs=2e-4)


@pytest.mark.parametrize("scale", [1e-25, 1e-3, 1.0, 1e20])
def test_the_area_does_not_depend_on_units(scale):
    rng = np.random.default_rng(0)
    bad = rng.random(2000) < 0.1
    scores = rng.normal(size=2000) - bad
    expected = roc_auc_score(bad, -scores)
    assert roc_area(federation(scale * scores, bad)) == pytest.approx(expected, abs=1.01e-4)
    assert roc_area(federation(scale * (scores + 1e4), bad)) == pytest.approx(expected, abs=1.01e-4)


def test_what_can_not_be_scored_is_refused():
    with pytest.raises(InputError, match="needs both kinds"):
        roc_area(federation([1.0, 2.0, 3.0], np.zeros(3)))
    with pytest.raises(fs.errors.QuorumError, match="has no y"):
        error_totals(federation([1.0, 2.0, 3.0], None))
    with pytest.raises(fs.errors.QuorumError, match="needs numbers"):
        error_totals(federation([1.0, 2.0, 3.0], np.array(["a", "b", "c"])))


def test_sums_of_values_and_of_least_squares():
    fed = fs.federate(np.array([[1.0, 2.0], [4.0, 3.0], [0.5, 9.0]]), sites=["a", "b", "b"])
    assert value_totals(fed) == (3, 5.5)
    assert value_totals(fed, of="least squares") == (3, 1.0 + 9.0 + 0.25)

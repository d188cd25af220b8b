from __future__ import annotations

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from lifelines.statistics import logrank_test

import fedspan as fs
from fedspan.errors import InputError, PolicyError

from .lung_patients import institutions, lung, target

FRAME = lung()
Y, SITES = target(FRAME), institutions(FRAME)


def assert_same_curve(times, survival, bands, rows, *, confidence=0.95):
    theirs = KaplanMeierFitter(alpha=1 - confidence).fit(rows[:, 0], rows[:, 1])
    np.testing.assert_allclose(survival, theirs.survival_function_at_times(times), rtol=1e-10)
    at = np.isin(times, theirs.confidence_interval_.index)
    np.testing.assert_allclose(bands[at], theirs.confidence_interval_.loc[times[at]], rtol=1e-10, atol=1e-12)
    return theirs.median_survival_time_


@pytest.mark.parametrize("times", [None, range(1, 1100)], ids=["all", "days"])
def test_the_curve_is_that_of_the_pooled_rows(times):
    model = fs.FedKaplanMeier(times=times).fit(FRAME[["age"]], Y, sites=SITES)
    median = assert_same_curve(model.times_, model.survival_function_, model.confidence_interval_, Y)
    assert model.median_survival_time_ == median
    assert model.n_obs_ == len(Y)
    assert np.isnan(model.log_rank_p_value_)
    assert f"{len(Y):12d}" in model.summary()
    assert model.events_.sum() == Y[:, 1].sum()


def test_groups_have_curves_of_their_own_and_may_be_text():
    frame = FRAME[["age"]].assign(sex=np.where(FRAME["sex"] == 1, "male", "female"))
    model = fs.FedKaplanMeier(by="sex", confidence=0.9).fit(fs.federate(frame, Y, sites=SITES))
    assert model.groups_ == ("female", "male")
    theirs = logrank_test(*(Y[frame["sex"] == name, k] for k in (0, 1) for name in model.groups_))
    np.testing.assert_allclose(model.log_rank_statistic_, theirs.test_statistic, rtol=1e-8)
    np.testing.assert_allclose(model.log_rank_p_value_, theirs.p_value, rtol=1e-8)
    assert f"p-value {theirs.p_value:.4g}" in model.summary()
    for k, name in enumerate(model.groups_):
        rows = Y[frame["sex"] == name]
        bands = model.confidence_interval_[k]
        median = assert_same_curve(model.times_, model.survival_function_[k], bands, rows, confidence=0.9)
        assert model.median_survival_time_[k] == median
    assert model.predict([0.0, 310.0]).shape == (2, 2)


def test_a_grid_moves_events_up_and_censored_rows_down():
    weeks = np.arange(7, 1100, 7)
    model = fs.FedKaplanMeier(times=weeks).fit(FRAME[["age"]], Y, sites=SITES)
    moved = np.where(Y[:, 1] == 1, np.ceil(Y[:, 0] / 7) * 7, np.floor(Y[:, 0] / 7) * 7)
    assert_same_curve(weeks, model.survival_function_, model.confidence_interval_, np.column_stack([moved, Y[:, 1]]))


def test_events_after_the_last_time_are_rows_at_risk():
    model = fs.FedKaplanMeier(times=[100.0, 200.0]).fit(FRAME[["age"]], Y, sites=SITES)
    early = np.column_stack([np.minimum(Y[:, 0], 200.5), Y[:, 1] * (Y[:, 0] <= 200)])
    exact = fs.FedKaplanMeier().fit(FRAME[["age"]], early, sites=SITES)
    assert model.at_risk_.tolist() == [
        int(((Y[:, 0] > 0) & ((Y[:, 0] >= 100) | (Y[:, 1] == 1))).sum()),
        int(model.at_risk_[1]),
    ]
    assert model.events_.sum() == exact.events_.sum()


def test_all_censored_sites_and_rows():
    y = Y.copy()
    y[np.isin(SITES, [1, 12]), 1] = 0
    model = fs.FedKaplanMeier().fit(FRAME[["age"]], y, sites=SITES)
    assert_same_curve(model.times_, model.survival_function_, model.confidence_interval_, y)
    none = fs.FedKaplanMeier(times=[10.0, 50.0]).fit(FRAME[["age"]], y * [1, 0], sites=SITES)
    assert none.survival_function_.tolist() == [1.0, 1.0]
    assert none.median_survival_time_ == np.inf


def test_an_empty_group_survives():
    model = fs.FedKaplanMeier(times=range(1, 1100), by=0, groups=["1", "2", "9"]).fit(FRAME[["sex"]], Y, sites=SITES)
    assert model.n_obs_.tolist() == [*np.bincount(FRAME["sex"].astype(int))[1:].tolist(), 0]
    assert (model.survival_function_[2] == 1.0).all()
    assert np.isfinite(model.confidence_interval_).all()


def test_secure_sums_need_a_grid_and_names():
    fed = fs.federate(FRAME[["sex"]], Y, sites=SITES, policy=fs.Policy(secure_sum=True))
    with pytest.raises(PolicyError, match="times=None"):
        fs.FedKaplanMeier().fit(fed)
    secure = fs.FedKaplanMeier(times=range(1, 1100), by="sex", groups=[1, 2]).fit(fed)
    plain = fs.FedKaplanMeier(times=range(1, 1100), by="sex").fit(fs.federate(FRAME[["sex"]], Y, sites=SITES))
    np.testing.assert_array_equal(secure.survival_function_, plain.survival_function_)


def test_a_structured_target_is_two_columns():
    fields = np.array([(bool(e), t) for t, e in Y], dtype=[("died", bool), ("days", float)])
    plain = fs.FedKaplanMeier().fit(FRAME[["age"]], Y, sites=SITES)
    for model in (
        fs.FedKaplanMeier().fit(FRAME[["age"]], fields, sites=SITES),
        fs.FedKaplanMeier().fit(fs.federate(FRAME[["age"]], fields, sites=SITES)),
    ):
        np.testing.assert_array_equal(model.survival_function_, plain.survival_function_)


@pytest.mark.parametrize(
    ("settings", "y", "words"),
    [
        ({}, Y[:, 0], "two columns, time and event"),
        ({}, None, "y is None"),
        ({}, Y + np.array([0, 1]), "neither 1 nor 0"),
        ({}, Y * np.array([-1, 1]), r"y has \d+ rows whose time is below 0"),
        ({}, Y[:5], "y has 5 rows, and X has"),
        ({"by": "sexe"}, Y, "by='sexe' is the name of no column"),
        ({"by": 3}, Y, "by=3 must be"),
        ({"times": []}, Y, "times must be one or more finite numbers"),
        ({"groups": ["a"]}, Y, "by=..., which is None"),
        ({"confidence": 2}, Y, "confidence=2 must"),
    ],
)
def test_what_cannot_work_is_refused(settings, y, words):
    with pytest.raises(InputError, match=words):
        fs.FedKaplanMeier(**settings).fit(FRAME[["sex"]], y)

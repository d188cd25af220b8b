from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.report.models.picture import pictures_of

RNG = np.random.default_rng(0)
X = np.column_stack([np.arange(80) % 2, RNG.normal(size=80)])
Y = np.column_stack([np.ceil(10 * RNG.exponential(size=80)), RNG.uniform(size=80) < 0.7])


def test_a_curve_has_its_band_and_median():
    (picture,) = pictures_of(fs.FedKaplanMeier().fit(X, Y))
    assert picture.title == "Survival"
    assert picture.body.count("<polyline") == 3
    assert "80 rows" in picture.remark
    assert "median" in picture.remark


def test_groups_have_a_curve_each():
    (picture,) = pictures_of(fs.FedKaplanMeier(by=0).fit(X, Y))
    assert [name for _, name in picture.key] == ["0", "1"]
    assert picture.body.count("<polyline") == 2


def test_cox_regression_has_coefficients_and_a_baseline():
    titles = [picture.title for picture in pictures_of(fs.FedCoxRegression().fit(X, Y), ["arm", "dose"])]
    assert sorted(titles) == ["Baseline survival", "Coefficients"]
    stratified = fs.FedCoxRegression(strata="site").fit(X, Y, sites=np.arange(80) % 3)
    assert [picture.title for picture in pictures_of(stratified)] == ["Coefficients"]


def test_a_group_without_events_has_no_median():
    (picture,) = pictures_of(fs.FedKaplanMeier(times=[5.0]).fit(X, Y * [1, 0]))
    assert "more than half" in picture.remark

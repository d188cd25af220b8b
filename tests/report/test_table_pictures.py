"""Pictures of scalers and encoders."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

import fedspan as fs
from fedspan.report.models.model_section import models_section
from fedspan.report.models.table_pictures import MOST_FEATURES, encoded_columns

from .report_reading import Page


@pytest.fixture
def X():
    columns = [f"column {j}" for j in range(5)]
    return pd.DataFrame(np.random.default_rng(0).normal(size=(40, 5)) * [9, 5, 3, 2, 1] + 7, columns=columns)


def page_of(*fitted) -> Page:
    return Page(models_section(fitted))


def test_scaler_has_a_table_of_its_first_features(X):
    scaler = StandardScaler().fit(X)
    page = page_of(scaler)
    assert "Centre and scale" in page.words
    assert f"column 0 {scaler.mean_[0]:.4g} {scaler.scale_[0]:.4g}" in page.text
    many = page_of(StandardScaler().fit(np.random.default_rng(0).normal(size=(9, 20))))
    assert f"The first {MOST_FEATURES} of 20 features" in many.text
    assert "feature 11" in many.text
    assert "feature 12" not in many.text


def test_scaler_without_scale_has_the_mean_alone(X):
    page = page_of(StandardScaler(with_std=False).fit(X))
    assert "mean" in page.words
    assert "scale" not in page.words


def test_an_encoder_has_what_becomes_of_each_column():
    rows = [["tcp", "80", 1e6], ["udp", "53", 300.0], ["tcp", "-", 12.0], ["icmp", "0", 0.0]]
    model = fs.FedTabularEncoder(log=[2]).fit(rows, sites=["a", "a", "b", "b"])
    picture = encoded_columns(model)
    page = Page(picture.body)
    assert "x0 text: icmp, tcp, udp x1 number; a column marks missing cells x2 number, its logarithm" in page.text
    assert picture.remark == "3 columns become 8."
    assert "x0_icmp" in Page(models_section([model])).text  # the encoded columns have centre and scale

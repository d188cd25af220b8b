from __future__ import annotations

import numpy as np

import fedspan as fs
from fedspan.report.models.picture import pictures_of

X = np.random.default_rng(0).normal(size=(90, 3))


def test_coefficients_have_the_names_of_their_features_without_the_offset():
    model = fs.FedLinearRegression(offset=1).fit(X, X[:, 0] + np.random.default_rng(1).normal(size=90))
    (picture,) = pictures_of(model, ["age", "shift", "dose"])
    assert picture.title == "Coefficients"
    assert picture.body.count("<rect") == 4
    assert "age: " in picture.body
    assert "shift" not in picture.body


def test_every_class_but_the_first_has_its_own():
    y = np.digitize(X[:, 0] + np.random.default_rng(1).normal(size=90), [-0.5, 0.5])
    (picture,) = pictures_of(fs.FedLogisticRegression().fit(X, y), ["a", "b", "c"])
    assert picture.title == "Coefficients relative to 0"
    assert "a: 2" in picture.body

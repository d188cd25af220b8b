"""The section on models: pictures chosen by attributes, in a pipeline one after another."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedspan.report.markup import Html
from fedspan.report.models import picture as pictures
from fedspan.report.models.model_section import models_section
from fedspan.report.models.picture import Picture, array_of, image_shape, picture, pixel_names

from .report_reading import Fitted, Page


@pytest.fixture
def X():
    columns = [f"column {j}" for j in range(5)]
    return pd.DataFrame(np.random.default_rng(0).normal(size=(40, 5)) * [9, 5, 3, 2, 1] + 7, columns=columns)


def page_of(*fitted) -> Page:
    return Page(models_section(fitted))


def test_pipeline_shows_its_steps(X):
    page = page_of(make_pipeline(StandardScaler(), "passthrough", PCA(2)).fit(X))
    assert page.text.index("StandardScaler") < page.text.index("PCA")
    assert len(page.all("figure")) == 3


@pytest.mark.parametrize(
    "model",
    [
        Fitted(components_="text", explained_variance_ratio_=[[1.0]]),
        Fitted(components_=np.zeros((0, 3)), explained_variance_ratio_=[]),
        Fitted(mean_=None, scale_=None),
        KMeans(2, n_init=1).fit(np.arange(8.0).reshape(4, 2)),
    ],
)
def test_model_without_pictures_is_named(model):
    page = page_of(model)
    assert page.all("figure") == []
    assert f"No picture for this kind of model: {type(model).__name__}" in page.text


def test_a_new_picture_is_registered_where_it_is_drawn(monkeypatch):
    monkeypatch.setattr(pictures, "_registered", list(pictures._registered))

    @picture(marks_=1)
    def marks(model, names, found):
        return Picture("Marks", Html(f"<b>{found.sum():g} here</b>"))

    assert "Fitted Marks 3 here" in page_of(Fitted(marks_=[1, 2])).text
    assert "Marks" not in page_of(Fitted(marks_=[[1, 2]])).text
    assert marks(Fitted()) is None


def test_what_a_model_has_is_read_with_care():
    model = Fitted(a=[1, 2], b="text", c=[[1.0]], d=[])
    assert array_of(model, "a", 1).tolist() == [1.0, 2.0]
    assert [array_of(model, name, 1) for name in "bcde"] == [None] * 4
    assert pixel_names((1, 2)) == ["pixel_0_0", "pixel_0_1"]
    assert image_shape(pixel_names((8, 9))) == (8, 9)
    assert image_shape(["age", "dose"]) is None

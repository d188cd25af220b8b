"""The section on models: pictures chosen by attributes, in a pipeline one after another."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedspan.report.models.model_section import models_section

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

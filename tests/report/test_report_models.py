"""The models' pictures: chosen by attributes, with the models' numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from report_reading import Page
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedspan as fs
from fedspan.report.markup import Html
from fedspan.report.models import model_section as models
from fedspan.report.models.model_section import MOST_COLUMNS, PICTURES, Picture, models_section


class Fitted:
    """A model with whatever attributes it is given."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


@pytest.fixture
def X():
    columns = [f"column {j}" for j in range(5)]
    return pd.DataFrame(np.random.default_rng(0).normal(size=(40, 5)) * [9, 5, 3, 2, 1] + 7, columns=columns)


def page_of(*fitted) -> Page:
    return Page(models_section(fitted))


def test_pca_has_variance_and_loadings(X):
    pca = PCA(3).fit(X)
    page = page_of(pca)
    for words in ("PCA", "Explained variance", "Loadings of the first components"):
        assert words in page.words
    heights = np.array([float(a["height"]) for a in page.all("rect", "s0")])
    assert heights / heights[0] == pytest.approx(
        pca.explained_variance_ratio_ / pca.explained_variance_ratio_[0], abs=1e-3
    )
    assert f"{100 * pca.explained_variance_ratio_.sum():.3g} % in 3 components" in page.text
    assert len(page.all("rect", "plus")) + len(page.all("rect", "minus")) == 15
    assert "column 0" in page.words


def test_cumulative_line_ends_at_the_sum():
    page = page_of(Fitted(explained_variance_ratio_=np.array([0.5, 0.25])))
    assert [w for w in page.words if w in ("50 %", "75 %")].count("75 %") == 1
    (line,) = page.all("polyline")
    assert line["class"] == "line s6"


def test_many_components_are_cut():
    page = page_of(Fitted(explained_variance_ratio_=np.full(100, 0.01)))
    assert len(page.all("rect")) == 40
    assert "100 % in 100 components; the first 40 are shown" in page.text


def test_loadings_show_the_largest_features_by_component():
    components = np.zeros((2, 30))
    components[0, 20], components[0, 3], components[1, 7] = 0.5, -0.9, 0.8
    page = page_of(Fitted(components_=components))
    names = [words for words in page.words if words.startswith("feature ") and "," not in words]
    assert list(dict.fromkeys(names))[:2] == ["feature 3", "feature 20"]
    assert "feature 7" in names
    assert "The 12 of 30 features with the largest loadings" in page.text
    assert "feature 3, 1: −0.9" in page.words


def test_scaler_has_a_table_of_its_first_features(X):
    scaler = StandardScaler().fit(X)
    page = page_of(scaler)
    assert "Centre and scale" in page.words
    assert f"column 0 {scaler.mean_[0]:.4g} {scaler.scale_[0]:.4g}" in page.text
    many = page_of(StandardScaler().fit(np.random.default_rng(0).normal(size=(9, 20))))
    assert f"The first {MOST_COLUMNS} of 20 features" in many.text
    assert "feature 11" in many.text
    assert "feature 12" not in many.text


def test_scaler_without_scale_has_the_mean_alone(X):
    page = page_of(StandardScaler(with_std=False).fit(X))
    assert "mean" in page.words
    assert "scale" not in page.words


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


def test_numbers_that_are_not_finite_are_left_out_and_said():
    page = page_of(Fitted(explained_variance_ratio_=[0.5, np.nan], components_=[[1.0, np.nan, np.inf]]))
    assert "1 not finite" in page.text
    assert len(page.all("rect", "plus")) == 1


def test_new_picture_is_added_in_one_place(monkeypatch):
    def landmarks(model, names):
        return Picture("Landmarks", Html("<b>here</b>")) if hasattr(model, "landmarks_") else None

    monkeypatch.setattr(models, "PICTURES", [*PICTURES, landmarks])
    assert "Fitted Landmarks here" in page_of(Fitted(landmarks_=1)).text


def test_detectors_say_what_an_outlier_is(X):
    page = page_of(Fitted(offset_=-2.5, quantile=0.95, score="residual"))
    for words in ("What is an outlier", "residual", "2.5", "0.95", "5 %"):
        assert words in page.words
    assert "score" not in page_of(Fitted(offset_=-2.5, quantile=0.95, score=lambda X: 0.0)).words
    assert "What is an outlier" not in page_of(Fitted(offset_=np.zeros(3), quantile=0.95)).words


def test_a_detector_has_the_pictures_of_its_subspace(X):
    page = page_of(fs.FedPCADetector(2).fit(X, sites=np.arange(40) % 4))
    for words in ("Explained variance", "Loadings of the first components", "What is an outlier", "column 0"):
        assert words in page.words

"""Pictures of components: explained variance, loadings, and images where columns are pixels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

import fedspan as fs
from fedspan.errors import InputError
from fedspan.report import write_report
from fedspan.report.models.cluster_pictures import cluster_centres
from fedspan.report.models.component_pictures import explained_variance, loadings
from fedspan.report.models.map_pictures import landmarks
from fedspan.report.models.model_section import models_section
from fedspan.report.models.picture import pixel_names

from .report_reading import Fitted, Page, a_record


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


def test_numbers_that_are_not_finite_are_left_out_and_counted():
    page = page_of(Fitted(explained_variance_ratio_=[0.5, np.nan], components_=[[1.0, np.nan, np.inf]]))
    assert "1 not finite" in page.text
    assert len(page.all("rect", "plus")) == 1


def test_one_component_is_one_component():
    assert explained_variance(Fitted(explained_variance_ratio_=np.array([1.0]))).remark == "100 % in 1 component"


def test_pixels_are_drawn_as_images_where_the_columns_are_pixels(tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 12))
    pca = fs.FedPCA(3).fit(X)
    assert 'class="tile"' not in loadings(pca, None).body
    picture = loadings(pca, pixel_names((3, 4)))
    assert picture.body.count('class="tile"') == 3
    km = fs.FedKMeans(2, random_state=0).fit(X)
    assert cluster_centres(km, pixel_names((3, 4))).body.count('class="tile"') == 2
    assert landmarks(Fitted(landmarks_=X), pixel_names((3, 4))).remark == "The first 16 of 50."
    scaler = fs.FedStandardScaler().fit(X)
    page = write_report(tmp_path / "r.html", title="t", records=a_record(), models=[scaler, pca], image=(3, 4))
    text = page.read_text()
    assert text.count('class="tile"') == 3
    assert "pixel_2_3" in text


@pytest.mark.parametrize(
    ("image", "message"), [((3, 3), "has 9 pixels"), ((3,), "height and a width"), ("28x28", "such as")]
)
def test_an_image_of_another_size_is_refused(tmp_path, image, message):
    pca = fs.FedPCA(1).fit(np.random.default_rng(0).normal(size=(9, 12)))
    with pytest.raises(InputError, match=message):
        write_report(tmp_path / "r.html", title="t", records=a_record(), models=[pca], image=image)
    with pytest.raises(InputError, match=message):
        write_report(tmp_path / "r.html", title="t", records=a_record(), image=image)

"""The pictures of single kinds of models, with the numbers that they must show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_reading import Page, a_record
from test_report_models import Fitted

import fedspan as fs
from fedspan.errors import InputError
from fedspan.report import write_report
from fedspan.report.models.cluster_pictures import (
    cluster_centres,
    cluster_models,
    eigenvalues,
    rows_by_cluster,
    sites_by_cluster,
    whole_numbers,
)
from fedspan.report.models.encoded_columns import encoded_columns
from fedspan.report.models.landmark_pictures import landmarks
from fedspan.report.models.model_attributes import pixel_names
from fedspan.report.models.model_section import models_section
from fedspan.report.models.principal_components import explained_variance, loadings
from fedspan.report.models.site_weights import site_weights
from fedspan.report.models.task_pictures import of_a_new_task, representation, task_errors


def test_centres_are_shaded_by_their_distance_from_the_mean_and_tell_their_values():
    model = Fitted(cluster_centers_=np.array([[1.0, 50.0], [3.0, 50.0]]), cluster_sizes_=np.array([30, 10]))
    page = Page(cluster_centres(model, ["age", "dose"]).body)
    assert {"age, 0: 1", "age, 1: 3", "dose, 0: 50", "dose, 1: 50"} <= set(page.words)
    shades = {a["class"]: float(a["fill-opacity"]) for a in page.all("rect") if float(a["fill-opacity"]) > 0}
    # The mean of all rows is 1.5: cluster 1 is three times as far above as cluster 0 is below.
    assert shades["plus"] == pytest.approx(3 * shades["minus"], rel=0.01)
    assert "Rows by cluster" in Page(models_section([model])).text
    widths = [float(a["width"]) for a in Page(rows_by_cluster(model).body).all("rect")]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.01)


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
    ("image", "said"), [((3, 3), "has 9 pixels"), ((3,), "height and a width"), ("28x28", "such as")]
)
def test_an_image_of_another_size_is_refused(tmp_path, image, said):
    pca = fs.FedPCA(1).fit(np.random.default_rng(0).normal(size=(9, 12)))
    with pytest.raises(InputError, match=said):
        write_report(tmp_path / "r.html", title="t", records=a_record(), models=[pca], image=image)
    with pytest.raises(InputError, match=said):
        write_report(tmp_path / "r.html", title="t", records=a_record(), image=image)


def test_landmarks_are_dots_at_their_principal_components():
    points = np.array([[0.0, 0, 5], [3, 0, 5], [3, 1, 5], [0, 1, 5]])
    picture = landmarks(Fitted(landmarks_=points))
    assert picture.body.count("h0") == 4
    assert "4 rows of 3 columns" in picture.remark
    assert "100 % of their variance" in picture.remark
    assert landmarks(Fitted(landmarks_=np.ones((1, 1)))).body.count("h0") == 1
    assert landmarks(Fitted(landmarks_=np.full((2, 2), np.nan))) is None


def test_sites_stand_with_their_clusters_and_doubts_are_counted():
    model = Fitted(
        coef_=np.array([[1.0, 0.0], [0.0, -2.0]]),
        proba_=np.array([[1.0, 0.0], [0.4, 0.6], [0.0, 0.0]]),
        labels_=np.array([0, 1, -1]),
        sites_=("north", "south", "west"),
        noise_=np.array([0.5, np.nan]),
        cluster_rows_=np.array([100, 20]),
    )
    page = Page(models_section([model]))
    assert "0: north 1 100 0.5" in page.text
    assert "1: south 1 20 –" in page.text
    assert "No valid answer in the end: west." in page.text
    assert "1 site of 3 with a probability below 95 %" in page.text
    assert "feature 1, 1: −2" in Page(cluster_models(model).body).words
    model.proba_[1] = [0.01, 0.99]
    assert sites_by_cluster(model).remark == "All above 95 % probable."


def test_eigenvalues_of_a_clustering_are_bars():
    model = Fitted(eigenvalues_=np.array([1.0, 0.5]), labels_=np.zeros(3, int))
    heights = [float(a["height"]) for a in Page(eigenvalues(model).body).all("rect")]
    assert heights[0] == pytest.approx(2 * heights[1], rel=0.01)
    assert eigenvalues(Fitted(eigenvalues_=np.ones(2))) is None  # of something else


def test_tasks_have_their_representation_and_errors_the_worst_first():
    model = Fitted(
        representation_=np.eye(4)[:, :2],
        tasks_=np.array(["a", "b", "c"]),
        task_errors_=np.array([1.0, np.nan, 3.0]),
        noise_variance_=4.0,
        representation_error_=0.01,
    )
    assert "feature 0, 1: 1" in Page(representation(model).body).words
    page = Page(task_errors(model).body)
    assert [words for words in page.words if words in ("a: 1", "c: 3")] == ["c: 3", "a: 1"]
    assert "2 in the middle of 2 tasks; 1 had no row to spare." in task_errors(model).remark
    assert "deviation of the noise 2" in Page(of_a_new_task(model).body).text
    model.task_errors_ = np.full(3, np.nan)
    assert task_errors(model) is None


def test_an_encoder_says_what_becomes_of_each_column():
    rows = [["tcp", "80", 1e6], ["udp", "53", 300.0], ["tcp", "-", 12.0], ["icmp", "0", 0.0]]
    model = fs.FedTabularEncoder(log=[2]).fit(rows, sites=["a", "a", "b", "b"])
    picture = encoded_columns(model)
    page = Page(picture.body)
    assert "x0 text: icmp, tcp, udp x1 number; a column tells missing cells x2 number, its logarithm" in page.text
    assert picture.remark == "3 columns become 8."
    assert "x0_icmp" in Page(models_section([model])).text  # the encoded columns have centre and scale


def test_weights_of_sites_are_drawn_where_they_differ():
    model = Fitted(site_weights_=np.array([0.5, 0.5, 0.0]), sites_=("a", "b", "c"), sites_trusted_=("a", "b"))
    picture = site_weights(model)
    assert next(w for w in Page(picture.body).words if w in "abc") == "c"
    assert picture.remark == "2 of 3 have at least half an equal share. Doubted: c."
    model.site_weights_ = np.full(3, 1 / 3)
    assert site_weights(model) is None


def of_sites(names, labels, rows):
    proba = np.eye(int(max(labels)) + 1)[np.maximum(labels, 0)]
    return Fitted(proba_=proba, labels_=np.array(labels), sites_=names, cluster_rows_=np.array(rows))


def test_rows_of_clusters_are_rounded_and_add_up():
    names = [f"s{i}" for i in range(4)]
    for rows, told in (
        ([204.9999999, 1795.0000001], ["0: s0, s1 2 205 –", "1: s2, s3 2 1 795 –"]),
        ([204.4, 1795.6], ["0: s0, s1 2 204 –", "1: s2, s3 2 1 796 –"]),
        ([np.nan, 3.0], ["0: s0, s1 2 – –", "1: s2, s3 2 – –"]),
    ):
        picture = sites_by_cluster(of_sites(names, [0, 0, 1, 1], rows))
        for words in told:
            assert words in Page(picture.body).text
        assert ("shared out by these probabilities" in picture.remark) is (rows[0] == 204.4)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=12))
def test_whole_numbers_are_near_and_add_up(shares):
    found = whole_numbers(np.array(shares))
    assert np.all(np.abs(found - np.array(shares)) <= 1)
    assert sum(found) == pytest.approx(sum(shares), abs=0.51)


def test_long_names_of_sites_leave_room_for_how_many_more_there_are():
    names = [f"site number {i:03d} of the <north> with a name that goes on and on and on and on" for i in range(20)]
    picture = sites_by_cluster(of_sites(names, [-1, *([0] * 19)], [400.0]))
    text = Page(picture.body).text
    assert "site number 012 of the <north>" in text
    assert "and 7 more 19 400 –" in text
    assert "No valid answer in the end: site number 000" in text


def test_one_component_is_one_component():
    assert explained_variance(Fitted(explained_variance_ratio_=np.array([1.0]))).remark == "100 % in 1 component"

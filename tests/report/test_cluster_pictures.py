"""Pictures of clusters of rows and of sites."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.report.models.cluster_pictures import (
    cluster_centres,
    cluster_models,
    eigenvalues,
    rows_by_cluster,
    sites_by_cluster,
    whole_numbers,
)
from fedspan.report.models.model_section import models_section

from .report_reading import Fitted, Page


def test_centres_are_shaded_by_their_distance_from_the_mean_and_hold_their_values():
    model = Fitted(cluster_centers_=np.array([[1.0, 50.0], [3.0, 50.0]]), cluster_sizes_=np.array([30, 10]))
    page = Page(cluster_centres(model, ["age", "dose"]).body)
    assert {"age, 0: 1", "age, 1: 3", "dose, 0: 50", "dose, 1: 50"} <= set(page.words)
    shades = {a["class"]: float(a["fill-opacity"]) for a in page.all("rect") if float(a["fill-opacity"]) > 0}
    # The mean of all rows is 1.5: cluster 1 is three times as far above as cluster 0 is below.
    assert shades["plus"] == pytest.approx(3 * shades["minus"], rel=0.01)
    assert "Rows by cluster" in Page(models_section([model])).text
    widths = [float(a["width"]) for a in Page(rows_by_cluster(model).body).all("rect")]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.01)


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
    assert "No valid reply in the end: west." in page.text
    assert "1 site of 3 with a probability below 95 %." in page.text
    assert "feature 1, 1: −2" in Page(cluster_models(model).body).words
    model.proba_[1] = [0.01, 0.99]
    assert sites_by_cluster(model).remark == "All above 95 % probable."


def test_eigenvalues_of_a_clustering_are_bars():
    model = Fitted(eigenvalues_=np.array([1.0, 0.5]), labels_=np.zeros(3, int))
    heights = [float(a["height"]) for a in Page(eigenvalues(model).body).all("rect")]
    assert heights[0] == pytest.approx(2 * heights[1], rel=0.01)
    assert eigenvalues(Fitted(eigenvalues_=np.ones(2))) is None  # of something else


def of_sites(names, labels, rows):
    proba = np.eye(int(max(labels)) + 1)[np.maximum(labels, 0)]
    return Fitted(proba_=proba, labels_=np.array(labels), sites_=names, cluster_rows_=np.array(rows))


def test_rows_of_clusters_are_rounded_and_add_up():
    names = [f"s{i}" for i in range(4)]
    for rows, words in (
        ([204.9999999, 1795.0000001], ["0: s0, s1 2 205 –", "1: s2, s3 2 1 795 –"]),
        ([204.4, 1795.6], ["0: s0, s1 2 204 –", "1: s2, s3 2 1 796 –"]),
        ([np.nan, 3.0], ["0: s0, s1 2 – –", "1: s2, s3 2 – –"]),
    ):
        picture = sites_by_cluster(of_sites(names, [0, 0, 1, 1], rows))
        for text in words:
            assert text in Page(picture.body).text
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
    assert "No valid reply in the end: site number 000" in text


def test_clusters_are_counted_by_site():
    model = Fitted(labels_=np.array([0, 0, 1, 2, 2]), row_sites_=np.array([0, 0, 0, 1, 1]), sites_=("a", "b"))
    page = Page(models_section([model]))
    assert "Clusters by site cluster 0 (2) cluster 1 (1) cluster 2 (2)" in page.text
    assert [float(a["width"]) for a in page.all("rect")] == pytest.approx([240, 120, 0, 0, 0, 240], abs=0.02)


def test_more_clusters_than_colours_are_added_up():
    labels = np.arange(13)
    model = Fitted(labels_=labels, row_sites_=np.zeros(13, int), sites_=("a",))
    page = Page(models_section([model]))
    widths = [float(a["width"]) for a in page.all("rect")]
    assert len(widths) == 10
    assert widths[-1] == pytest.approx(4 * widths[0], abs=0.05)
    assert "9 to 12" in page.text

"""Maps of rows, and the pictures beside them."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import fedspan as fs
from fedspan.errors import InputError
from fedspan.report import write_report
from fedspan.report.models import map_pictures
from fedspan.report.models.map_pictures import landmarks, map_density, map_of, numbers_within
from fedspan.report.models.model_section import models_section

from .report_reading import Fitted, Page, logging, unpacked


def a_map(n=6, **more) -> Fitted:
    points = np.arange(2.0 * n).reshape(n, 2)
    return Fitted(embedding_=points, row_sites_=np.arange(n, dtype=np.int32) % 2, sites_=("north", "south"), **more)


def words_of(model) -> str:
    return Page(models_section([model])).text


def test_row_is_named_by_site_and_its_number_there():
    scatter = map_of(a_map(5), np.array(list("vwxyz")))
    assert scatter.sites.tolist() == ["north", "south", "north", "south", "north"]
    assert scatter.rows.tolist() == [0, 0, 1, 1, 2]
    assert scatter.labels.tolist() == list("vwxyz")
    assert np.array_equal(scatter.points, np.arange(10.0).reshape(5, 2))
    assert (scatter.x_label, scatter.y_label) == ("", "")


def test_numbers_within_count_each_group_by_itself():
    groups = np.random.default_rng(0).integers(0, 5, 200)
    numbers = numbers_within(groups)
    for group in range(5):
        assert np.array_equal(numbers[groups == group], np.arange(np.count_nonzero(groups == group)))


def test_many_rows_are_thinned_with_their_names(monkeypatch):
    monkeypatch.setattr(map_pictures, "MOST_POINTS", 4)
    scatter = map_of(a_map(9), np.arange(9))
    assert scatter.labels.tolist() == [0, 3, 6]
    assert scatter.sites.tolist() == ["north", "south", "north"]
    assert scatter.rows.tolist() == [0, 1, 3]


def test_third_dimension_is_left_out_and_a_line_is_no_map():
    wide = a_map(4)
    wide.embedding_ = np.ones((4, 3))
    assert map_of(wide).points.shape == (4, 2)
    wide.embedding_ = np.ones((4, 1))
    assert map_of(wide) is None
    assert map_of(Fitted(embedding_=np.ones((4, 2)))) is None


def test_labels_of_another_length_are_refused():
    with pytest.raises(InputError, match="labels has 3 entries, but the map has 6 rows"):
        map_of(a_map(6), np.zeros(3))


def test_clusters_colour_the_landmark_coordinates():
    rng = np.random.default_rng(0)
    factor = np.concatenate([rng.normal(size=(20, 3)) * [5, 1, 0.1]]).astype(np.float32)
    model = Fitted(
        factor_=factor, method="coordinates", labels_=np.arange(20) % 3, row_sites_=np.zeros(20, int), sites_=("a",)
    )
    scatter = map_of(model)
    assert scatter.clusters.tolist() == (np.arange(20) % 3).tolist()
    middle = factor - factor.mean(axis=0)
    spread = np.linalg.svd(middle)[1]
    assert np.linalg.norm(scatter.points, axis=0) == pytest.approx(spread[:2], rel=1e-5)
    model.method = "paper"  # whose factors are no coordinates
    assert map_of(model) is None


def test_clusters_by_the_kernel_are_shown_by_their_spectral_embedding():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 4)) + 8 * np.eye(3, 4)[y]
    model = fs.FedSpectralClustering(3, n_landmarks=20, rounds=3, affinity="kernel", random_state=0)
    scatter = map_of(model.fit(X, sites=np.arange(90) // 30))
    assert scatter.x_label == "first component of the spectral embedding"
    assert scatter.clusters.tolist() == model.labels_.tolist()
    inner = max(np.linalg.norm(scatter.points[y == k] - scatter.points[y == k].mean(0), axis=1).max() for k in range(3))
    means = np.array([scatter.points[y == k].mean(0) for k in range(3)])
    assert inner < 0.2 * min(np.linalg.norm(means[i] - means[i - 1]) for i in range(3))
    one = Fitted(
        spectral_embedding_=np.ones((4, 1)), row_sites_=np.zeros(4, int), sites_=("a",), labels_=np.zeros(4, int)
    )
    assert map_of(one) is None


def test_the_quality_of_a_map_stands_with_it(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 4))
    settings = {"n_landmarks": 20, "rounds": 3, "early_exaggeration_iter": 5, "n_iter": 5, "random_state": 0}
    model = fs.FedTSNE(**settings).fit(X, sites=np.arange(60) % 3)
    landmarks = fs.FedLandmarks(10, rounds=3, random_state=0).fit(X, sites=np.arange(60) % 3)
    write_report(tmp_path / "a.html", title="t", records=model.run_, models=[landmarks, model])
    page = (tmp_path / "a.html").read_text()
    shown, models = (page.split(f'id="{key}"')[1].split("</section>")[0] for key in ("map", "models"))
    for title in ("MMD² per round", "Neighbourhood quality"):
        assert title in shown
    assert models.count("MMD² per round") == 1  # of the other model
    assert "Neighbourhood quality" not in models
    write_report(tmp_path / "b.html", title="t", records=model.run_, models=[model])
    assert "The pictures of FedTSNE are under Map." in (tmp_path / "b.html").read_text()


def test_a_map_of_one_dimension_is_not_drawn_and_stated():
    X = np.random.default_rng(0).normal(size=(40, 4))
    settings = {"n_landmarks": 20, "rounds": 2, "early_exaggeration_iter": 5, "n_iter": 5, "random_state": 0}
    model = fs.FedTSNE(**settings, n_components=1).fit(X)
    assert "1, so that it is not drawn" in words_of(model)
    assert "not drawn" not in words_of(fs.FedTSNE(**settings).fit(X))


def test_report_shows_the_map_of_a_model_by_itself(tmp_path):
    X = np.random.default_rng(0).normal(size=(120, 4))
    fed = fs.federate(X, sites=np.arange(120) % 3)
    tsne = fs.FedTSNE(30, rounds=3, early_exaggeration_iter=10, n_iter=10, random_state=0)
    model = make_pipeline(fs.FedStandardScaler(), tsne).fit(fed)[-1]
    page = Page(write_report(tmp_path / "report.html", title="a map", records=model.run_, models=[model]).read_text())
    data = page.map_data()
    assert np.array_equal(unpacked(data["points"]).reshape(-1, 2), model.embedding_.astype(np.float32))
    assert np.array_equal(unpacked(data["rows"]), np.tile(np.arange(40), 3))
    assert data["axes"] == ["", ""]
    assert list(data["ways"]) == ["site", "density"]
    assert "MMD² per round" in page.text
    assert "kept on the map, of the 10 nearest (120 rows)" in page.text
    assert "found by the search 100 %" in page.text


def test_mmd2_is_drawn_by_round_to_its_end():
    model = Fitted(landmarks_=np.zeros((7, 2)), run_=logging([{"mmd2": v} for v in (0.1, 0.01, 0.0, 0.002)]))
    page = Page(models_section([model]))
    (line,) = page.all("polyline")
    assert len(line["points"].split()) == 3  # nothing is nothing on a logarithmic axis
    assert "0.002 at the end, of 7 landmarks" in page.text
    assert "MMD²" not in words_of(Fitted(landmarks_=np.zeros((7, 2)), run_=logging([{"other": 1.0}])))


def test_descent_has_its_recall_and_sample():
    run = logging(
        [
            {"search": "descent", "neighbors": 90},
            {"search_recall": 0.9871, "search_sample": 500},
            {"site_recall": 0.912, "site_recall_of": 900},
        ]
    )
    words = words_of(a_map(run_=run))
    assert "NN-descent" in words
    assert "found by the search (500 rows) 98.7 %" in words
    assert "nearest by landmark distances 91.2 % of 900" in words


def test_landmarks_are_dots_at_their_principal_components():
    points = np.array([[0.0, 0, 5], [3, 0, 5], [3, 1, 5], [0, 1, 5]])
    picture = landmarks(Fitted(landmarks_=points))
    assert picture.body.count("h0") == 4
    assert "4 rows of 3 columns" in picture.remark
    assert "100 % of their variance" in picture.remark
    assert landmarks(Fitted(landmarks_=np.ones((1, 1)))).body.count("h0") == 1
    assert landmarks(Fitted(landmarks_=np.full((2, 2), np.nan))) is None


def private_map(**more):
    density = np.zeros((64, 64))
    density[0, 0], density[63, 10] = 9.0, 1.0
    centres = np.array([[-5.0, -5.0], [5.0, 5.0]])
    return SimpleNamespace(
        **{"density_": density, "density_extent_": (-5.0, 5.0, -5.0, 5.0), "center_positions_": centres, **more}
    )


def test_a_private_map_has_a_picture_and_others_have_none():
    title, body, remark, _ = map_density(private_map())
    assert title == "Density of the map"
    assert "10 rows, which stay at their sites; dots: 2 centres" in remark
    assert body.count("<rect") == 2
    assert map_density(SimpleNamespace(components_=np.eye(2))) is None
    assert map_density(private_map(center_positions_=None)) is None


def test_dense_places_are_deeper_and_left_is_left_and_up_is_up():
    body = map_density(private_map()).body
    found = re.findall(r'x="([\d.]+)" y="([\d.]+)" .*?fill-opacity="([\d.]+)"', body)
    corner, other = sorted(found, key=lambda cell: float(cell[0]))
    assert (float(corner[0]), float(corner[1])) == (0.0, 360 - 11.25)  # bottom left
    assert float(corner[2]) > float(other[2])
    dots = [tuple(map(float, place)) for place in re.findall(r"M([\d.]+) ([\d.]+)h0", body)]
    assert dots[0][0] < 11.25
    assert dots[0][1] > 348
    assert dots[1][0] > 348
    assert dots[1][1] < 11.25

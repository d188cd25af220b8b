"""The map's data: what the page holds decodes to the points that were given."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest

from fedspan.errors import InputError
from fedspan.report import Scatter
from fedspan.report.models.scatter_map import local_density, packed, scatter_section
from fedspan.report.page import asset

from .report_reading import Page, unpacked


def page_of(points, sites=None, rows=None, labels=None, **more) -> Page:
    n = len(points)
    sites = np.array(["a", "b"])[np.arange(n) % 2] if sites is None else sites
    return Page(scatter_section(Scatter(points, sites, np.arange(n) if rows is None else rows, labels, **more)))


def test_points_sites_rows_and_labels_decode_back():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 2))
    sites = rng.choice(["north", "south", "west"], 500)
    rows = rng.integers(0, 2**32, 500)
    labels = rng.integers(0, 10, 500)
    data = page_of(points, sites, rows, labels, x_label="one", y_label="two").map_data()
    assert np.array_equal(unpacked(data["points"]).reshape(-1, 2), points.astype(np.float32))
    assert np.array_equal(unpacked(data["rows"]), rows)
    way = data["ways"]["site"]
    assert np.array_equal(np.array(way["names"])[unpacked(way["codes"])], sites)
    way = data["ways"]["label"]
    assert np.array_equal(np.array(way["names"])[unpacked(way["codes"])], labels.astype(str))
    assert data["axes"] == ["one", "two"]
    assert not way["ordered"]


def test_packed_bytes_by_hand():
    assert packed(np.array([1, 2], dtype=np.uint8)) == {"kind": "u1", "data": "AQI="}


@pytest.mark.parametrize(("n_sites", "kind"), [(256, "u1"), (257, "u2"), (1000, "u2")])
def test_codes_are_as_small_as_the_number_of_sites_allows(n_sites, kind):
    sites = np.array([f"site {i}" for i in range(n_sites)])
    way = page_of(np.zeros((n_sites, 2)), sites).map_data()["ways"]["site"]
    assert way["codes"]["kind"] == kind
    assert np.array_equal(np.array(way["names"])[unpacked(way["codes"])], sites)


def test_hundred_thousand_points_take_sixteen_bytes_each_at_most():
    n = 100_000
    points = np.random.default_rng(0).normal(size=(n, 2))
    html = page_of(points, labels=np.arange(n) % 10).html
    assert len(html) < n * 16 * 4 / 3 + 5000


def test_points_that_are_not_finite_are_left_out_and_counted():
    points = np.array([[0.0, 0.0], [np.nan, 1.0], [1e300, 1.0], [2.0, -np.inf], [4.0, 5.0]])
    drawn = page_of(points, rows=np.arange(10, 15))
    data = drawn.map_data()
    assert np.array_equal(unpacked(data["points"]), [0, 0, 4, 5])
    assert np.array_equal(unpacked(data["rows"]), [10, 14])
    assert "2 rows of 1 site" in drawn.text
    assert "3 not finite, not drawn" in drawn.text


def test_no_point_at_all():
    drawn = page_of(np.zeros((0, 2)))
    assert "There is no point to draw" in drawn.text
    assert drawn.all("canvas") == []


def test_axes_share_a_scale_unless_the_cloud_is_long():
    square = np.array([[0.0, 0.0], [1.0, 4.0]])
    assert page_of(square).map_data()["equal"]
    assert "Both axes have the same scale" in page_of(square).text
    assert not page_of(square * [1, 1.01]).map_data()["equal"]
    assert "Each axis has its own scale" in page_of(square * [1, 1.01]).text


def test_colour_can_be_chosen_where_there_are_labels():
    points = np.eye(2)
    assert page_of(points).all("select") == []
    labelled = page_of(points, labels=["x", "y"])
    assert len(labelled.all("option")) == 2
    assert all(a["type"] == "button" for a in labelled.all("button"))


def test_few_real_numbers_are_names_and_many_are_a_quantity():
    few = page_of(np.zeros((40, 2)), labels=np.arange(40.0) % 20).map_data()["ways"]["label"]
    assert few["names"][:3] == ["0", "1", "2"]
    assert not few["ordered"]
    values = np.arange(80.0)
    many = page_of(np.zeros((80, 2)), labels=values).map_data()["ways"]["label"]
    assert many["ordered"]
    assert len(many["names"]) == 8
    codes = unpacked(many["codes"])
    assert np.array_equal(np.bincount(codes), np.full(8, 10))
    assert np.all(np.diff(codes.astype(int)) >= 0)
    assert many["names"][0] == "0 to 9.88"


def test_quantity_with_gaps_has_a_step_for_them():
    values = np.append(np.arange(80.0), [np.nan, np.inf])
    way = page_of(np.zeros((82, 2)), labels=values).map_data()["ways"]["label"]
    assert way["names"][-1] == "not finite"
    assert np.array_equal(unpacked(way["codes"])[-2:], [8, 8])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([[1, 2, 3]], ["a"], [0]), r"points has the shape \(1, 3\)"),
        (([["x", "y"]], ["a"], [0]), "must be real numbers"),
        (([[1, 2]], ["a", "b"], [0]), r"sites has the shape \(2,\), but there are 1 points"),
        (([[1, 2]], ["a"], [[0]]), r"rows has the shape \(1, 1\)"),
        (([[1, 2]], ["a"], [0], ["x", "y"]), r"labels has the shape \(2,\)"),
        (([[1, 2]], ["a"], [-1]), "rows must be whole numbers from 0"),
        (([[1, 2]], ["a"], [0.5]), "rows must be whole numbers from 0"),
    ],
)
def test_a_bad_scatter_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        Scatter(*given)


def run_points(body: str, **values):
    """Run `body` with the script's functions and `values`, and return what it returns."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    code = f"{asset('points.js')};const given={json.dumps(values)};console.log(JSON.stringify((()=>{{{body}}})()))"
    done = subprocess.run([node, "-e", code], capture_output=True, text=True, timeout=300, check=True)
    return json.loads(done.stdout)


def test_script_unpacks_what_was_packed():
    points = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    data = page_of(points).map_data()
    read = run_points(
        "return given.parts.map((p) => Array.from(Points.unpack(p)))", parts=[data["points"], data["rows"]]
    )
    assert np.array_equal(np.array(read[0], dtype=np.float32).reshape(-1, 2), points)
    assert read[1] == list(range(20))


def test_script_finds_the_nearest_point_as_a_full_search_does():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(800, 2)).astype(np.float32)
    asked = rng.normal(size=(200, 2)) * 1.5
    radii = np.array([0.3, 0.1])
    found = run_points(
        "const grid = Points.grid(Float32Array.from(given.points));"
        "return given.asked.map(([x, y]) => grid.nearest(x, y, given.radii[0], given.radii[1], (i) => i % 2 === 0))",
        points=points.ravel().tolist(),
        asked=asked.tolist(),
        radii=radii.tolist(),
    )
    away = (((points[None, ::2] - asked[:, None]) / radii) ** 2).sum(axis=2)
    best = np.where(away.min(axis=1) <= 1, 2 * away.argmin(axis=1), -1)
    assert 20 < np.count_nonzero(best >= 0) < 190
    assert found == best.tolist()


def test_script_draws_every_point_of_the_view_once():
    points = np.random.default_rng(2).uniform(size=(1000, 2)).astype(np.float32)
    order, spans = run_points(
        "const grid = Points.grid(Float32Array.from(given.points));"
        "return [Array.from(grid.order), grid.spans([0.2, 0.4, 0.5, 0.9])]",
        points=points.ravel().tolist(),
    )
    assert sorted(order) == list(range(1000))
    seen = {i for start, end in spans for i in order[start:end]}
    inside = np.flatnonzero(np.all((points >= [0.2, 0.5]) & (points <= [0.4, 0.9]), axis=1))
    assert set(inside.tolist()) <= seen
    assert len(seen) < 250


def test_script_blends_by_opacity():
    pixels = run_points(
        "const data = new Int32Array(25).fill(-1);"  # white
        "const stamp = { places: Int32Array.of(0, 1), opacities: Int32Array.of(128, 64) };"
        "const target = { data, stride: 5, pad: 1, right: 4, bottom: 4 };"
        "const points = Float32Array.of(2, 2, 9, 9, 2, 3);"
        "const place = { ax: 1, bx: 0, ay: 1, by: 0 };"
        "Points.paint(target, points, [0, 1, 2], [0, 3], [0, 0, 1], place, [0x3f90da, 0], [stamp, null]);"
        "return Array.from(data, (v) => v >>> 0)"
    )
    assert pixels[12] == 0xFF3F90DA
    half = [(pixels[13] >> shift) & 255 for shift in (16, 8, 0)]
    assert half == pytest.approx([(c + 255) / 2 for c in (0x3F, 0x90, 0xDA)], abs=1)
    assert pixels.count(0xFFFFFFFF) == 23  # what lies outside, or has no stamp, leaves no trace


def test_script_has_round_ticks():
    assert run_points("return Points.ticks(-0.6, 1.1, 4)") == [[-0.5, "−0.5"], [0, "0"], [0.5, "0.5"], [1, "1.0"]]


def test_script_thins_the_same_points_wherever_a_stretch_begins():
    drawn = run_points(
        "const at = (span, every) => {"
        "  const data = new Int32Array(22).fill(-1);"
        "  const stamp = { places: Int32Array.of(0), opacities: Int32Array.of(128) };"
        "  const points = Float32Array.from({ length: 40 }, (_, i) => (i % 2 ? 0 : i / 2 + 1));"
        "  const order = Array.from({ length: 20 }, (_, i) => i);"
        "  const target = { data, stride: 22, pad: 0, right: 22, bottom: 1 };"
        "  const place = { ax: 1, bx: 0, ay: 1, by: 0 };"
        "  Points.paint(target, points, order, span, new Uint8Array(20), place, [0], [stamp], every);"
        "  return Array.from(data).flatMap((v, i) => (v === -1 ? [] : [i - 1])) };"
        "return [at([0, 20], 1), at([0, 20], 3), at([4, 14], 3)]"
    )
    assert drawn == [list(range(20)), list(range(0, 20, 3)), [6, 9, 12]]


def test_labels_and_clusters_come_first_and_a_map_has_no_axes():
    n = 150
    points = np.random.default_rng(0).normal(size=(n, 2))
    drawn = page_of(points, labels=np.arange(n) % 3, clusters=np.arange(n) % 5, x_label="", y_label="")
    data = drawn.map_data()
    assert list(data["ways"]) == ["label", "cluster", "site", "density"]
    assert np.array_equal(unpacked(data["ways"]["cluster"]["codes"]), np.arange(n) % 5)
    assert data["axes"] == ["", ""]
    assert "the axes mean nothing by themselves" in drawn.text
    density = data["ways"]["density"]
    assert density["ordered"]
    assert np.bincount(unpacked(density["codes"])).max() <= n / 8 + 2


def test_density_follows_the_crowd():
    rng = np.random.default_rng(0)
    crowd, few = rng.normal(size=(2000, 2)), rng.normal(size=(100, 2)) + 20
    density = local_density(np.concatenate([crowd, few]))
    assert np.median(density) == pytest.approx(1)
    assert np.median(density[2000:]) < 0.3
    near, far = (np.linalg.norm(crowd, axis=1) < 0.5), (np.linalg.norm(crowd, axis=1) > 2.5)
    assert density[:2000][near].min() > density[:2000][far].max()


@pytest.mark.parametrize("points", [np.ones((150, 2)), np.column_stack([np.arange(150.0), np.zeros(150)])])
def test_density_of_a_point_or_a_line_is_finite(points):
    assert np.isfinite(local_density(points)).all()

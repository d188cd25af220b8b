"""The picture of a private map."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np

from fedspan.report.models.density_map_pictures import density_picture
from fedspan.report.models.model_section import map_density


def model(**more):
    density = np.zeros((64, 64))
    density[0, 0], density[63, 10] = 9.0, 1.0
    centres = np.array([[-5.0, -5.0], [5.0, 5.0]])
    return SimpleNamespace(
        **{"density_": density, "density_extent_": (-5.0, 5.0, -5.0, 5.0), "center_positions_": centres, **more}
    )


def test_a_private_map_has_a_picture_and_others_have_none():
    title, body, remark, _ = map_density(model())
    assert title == "Density of the map"
    assert "10 rows, which stay at their sites; dots: 2 centres" in remark
    assert body.count("<rect") == 2
    assert map_density(SimpleNamespace(components_=np.eye(2))) is None
    assert map_density(model(center_positions_=None)) is None


def test_dense_places_are_deeper_and_left_is_left_and_up_is_up():
    body = map_density(model()).body
    found = re.findall(r'x="([\d.]+)" y="([\d.]+)" .*?fill-opacity="([\d.]+)"', body)
    corner, other = sorted(found, key=lambda cell: float(cell[0]))
    assert (float(corner[0]), float(corner[1])) == (0.0, 360 - 11.25)  # bottom left
    assert float(corner[2]) > float(other[2])
    dots = [tuple(map(float, place)) for place in re.findall(r"M([\d.]+) ([\d.]+)h0", body)]
    assert dots[0][0] < 11.25
    assert dots[0][1] > 348
    assert dots[1][0] > 348
    assert dots[1][1] < 11.25


def test_what_is_not_finite_is_not_drawn():
    body = density_picture(np.eye(3), (0.0, 1.0, 0.0, 1.0), np.array([[np.nan, 0.0], [0.5, 0.5]]))
    assert body.count("h0") == 1
    assert density_picture(np.zeros((2, 2)), (0.0, 1.0, 0.0, 1.0), np.zeros((0, 2))).count("<rect") == 0

"""Costs and reconstructions of methods on little traffic."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.papers.fedpca.costs_paper import cost_table, views
from fedspan.papers.fedpca.detection_paper import Detections, find
from fedspan.papers.fedpca.methods_paper import BASELINES, principal

from .little_traffic import little_traffic


@pytest.fixture(scope="module")
def found() -> Detections:
    methods = {**BASELINES, "exact (covariance)": principal()["exact (covariance)"]}
    return find(lambda seed: little_traffic(), methods, range(1))


def test_every_federated_method_has_a_row_of_costs(found):
    rows = {row[0]: row[1:] for row in cost_table(found, repeats=1).rows}
    assert list(rows) == ["self-learning PCA", "exact (covariance)"]
    assert rows["exact (covariance)"][0] == "moments"
    triangle = 8 * 14 * 15 / 2
    per_round, in_all = (float(cell.replace(",", "")) for cell in rows["exact (covariance)"][1:3])
    assert triangle < per_round < 2 * triangle
    assert in_all > per_round


def test_reconstructions_of_normal_rows_are_near_them(found):
    clouds = views(found, ["exact (covariance)", "self-learning PCA"], rows=50)
    before, after = (np.array(clouds.pictures[name]["normal"]) for name in ("before", "after: exact (covariance)"))
    assert before.shape == (50, 3)
    assert np.abs(before - after).max() < 0.5
    assert set(clouds.pictures) == {"before", "after: exact (covariance)", "after: self-learning PCA"}

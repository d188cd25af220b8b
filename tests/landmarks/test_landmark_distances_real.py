"""Landmarks and neighbours of images, one class a site: what the paper's method and ours reach."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

import fedspan as fs
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.landmark_distances import landmark_distances
from fedspan.linalg import mmd2, nearest
from fedspan.linalg.kernels.landmark_form import landmark_form
from tests.landmarks.image_sites import images, recall

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "rows", "n_y", "least", "paper"),
    [
        ("mice", 1080, 100, 0.995, (0.79, 0.87)),
        ("coil20", 1440, 200, 0.94, (0.70, 0.82)),
        ("fashion", 1000, 300, 0.955, (0.78, 0.84)),
    ],
)
def test_landmarks_follow_the_rows_and_keep_their_neighbours(name, rows, n_y, least, paper):
    X, y = images(name, rows)
    fed = fs.federate(X, sites=[f"{label:02}" for label in y])
    found = fed.run(feddl, n_landmarks=n_y, precision="single")
    rng = np.random.default_rng(0)
    reference = mmd2(X, X[rng.choice(len(X), n_y, replace=False)], found.gamma)
    exact = mmd2(X, found.points, found.gamma)
    assert exact <= 0.3 * reference
    assert found.mmd2 == pytest.approx(exact, rel=0.15)
    B = np.concatenate(list(fed.run(landmark_distances, landmarks=found).values()))
    Y = (found.points - found.centre) / found.scale
    truth = NearestNeighbors(n_neighbors=10).fit(X).kneighbors(return_distance=False)
    found = {m: recall(nearest(landmark_form(Y, m).of(B), 10)[0], truth) for m in ("coordinates", "squared", "paper")}
    assert found["coordinates"] >= least
    assert found["squared"] >= least
    assert paper[0] <= found["paper"] <= paper[1]

"""Neighbours by coarse scores: those of the exact search, at any number of rows, and with residuals."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.linalg.kernels import coarse_neighbors
from fedspan.linalg.kernels.coarse_neighbors import coarse_nearest
from fedspan.linalg.kernels.landmark_form import LowRankDistances
from fedspan.linalg.kernels.neighbors import nearest
from tests.packages import needs

pytestmark = needs("torch")


def form(n, columns=6, seed=0, residuals=False):
    rng = np.random.default_rng(seed)
    C = rng.normal(size=(n, columns)).astype(np.float32)
    offset = np.vecdot(C, C) + (rng.random(n, dtype=np.float32) if residuals else np.float32(0))
    return LowRankDistances(C, np.full(columns, -2, dtype=np.float32), offset, squared=True)


def found(rows, k, **options):
    blocks = list(coarse_nearest(rows, k, "cpu", **options))
    assert [part.start for part, *_ in blocks] == list(range(0, len(rows), coarse_neighbors.QUERIES))
    return [np.concatenate([block[i] for block in blocks]) for i in (1, 2)]


@pytest.mark.parametrize("residuals", [False, True])
@pytest.mark.parametrize("n", [40, 333, 1000])
def test_neighbours_are_those_of_the_exact_search(n, residuals, monkeypatch):
    monkeypatch.setattr(coarse_neighbors, "QUERIES", 256)
    monkeypatch.setattr(coarse_neighbors, "CHUNK", 320)
    rows = form(n, residuals=residuals)
    indices, distances = found(rows, 12, half=False)
    exact, far = nearest(rows, 12)
    np.testing.assert_allclose(distances, far, atol=1e-3)
    assert np.mean([len(np.intersect1d(a, b)) for a, b in zip(indices, exact, strict=True)]) > 11.99
    assert (np.diff(distances, axis=1) >= 0).all()
    assert not (indices == np.arange(n)[:, None]).any()


def test_half_precision_finds_nearly_all_of_them():
    rows = form(2000, 20)
    indices, _ = found(rows, 15)
    exact = nearest(rows, 15)[0]
    assert np.mean([len(np.intersect1d(a, b)) for a, b in zip(indices, exact, strict=True)]) > 0.995 * 15


def test_outliers_and_equal_rows():
    rows = form(200)
    rows.factor[0] *= 1e4
    rows.factor[1:6] = rows.factor[5]
    rows = LowRankDistances(rows.factor, rows.signs, np.vecdot(rows.factor, rows.factor), squared=True)
    for half in (True, False):
        indices, distances = found(rows, 4, half=half)
        assert np.isfinite(distances).all()
        assert set(indices[3]) == {1, 2, 4, 5}
        assert (distances[3] == 0).all()
    zero = LowRankDistances(np.zeros((50, 3), np.float32), rows.signs[:3], np.zeros(50, np.float32), squared=True)
    assert found(zero, 3)[1].max() == 0

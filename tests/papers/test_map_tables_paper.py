"""Measures of maps against what they stand for, and the paper's tables."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.papers.fed_tsne.map_tables_paper import NAMES, quality
from fedspan.papers.results_paper import published


def test_map_that_is_the_rows_themselves_keeps_all():
    rng = np.random.default_rng(1)
    y = np.arange(300) % 3
    Z = rng.normal(size=(300, 2)) + 40 * y[:, None]
    apart = np.linalg.norm(Z[:, None] - Z, axis=2)
    np.fill_diagonal(apart, np.inf)
    found = quality(Z, y, np.argsort(apart, axis=1)[:, :50])
    assert found.accuracy == (1, 1, 1)
    assert found.preserved == (1, 1, 1)
    assert found.nmi == pytest.approx(1)
    assert found.silhouette > 0.9
    noise = quality(rng.normal(size=(300, 2)), y, np.argsort(apart, axis=1)[:, :50])
    assert max(noise.accuracy) < 0.6
    assert noise.preserved[1] < 0.2
    assert len(found.values()) == len(NAMES)


def test_papers_tables_have_what_ours_have():
    maps, clusters = published("fed-tsne")["maps"], published("fed-tsne")["clusters"]
    assert {len(values) for table in maps.values() for values in table.values()} == {len(NAMES)}
    ways = {"centralised", "IID", "IID, noise", "one class", "one class, noise"}
    assert all(set(table) == ways for table in (*maps.values(), *clusters.values()))
    assert all(0 < value < 1 for table in maps.values() for values in table.values() for value in values)

"""FedUMAP: what only UMAP's layout has."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs


def test_a_neighbour_graph_in_several_parts_is_reported():
    X = np.random.default_rng(0).normal(size=(60, 3)) + 100.0 * (np.arange(60) % 3)[:, None]
    model = fs.FedUMAP(n_landmarks=15, rounds=5, n_neighbors=4, n_epochs=5, random_state=0)
    with pytest.warns(UserWarning, match="the neighbour graph has 3 parts"):
        model.fit(X, sites=np.arange(60) % 2)


def test_streamed_rows_give_the_same_map_and_the_record_states_what_the_layout_holds(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    X = np.random.default_rng(1).normal(size=(80, 4))
    names = ["a", "b", "c", "d"]
    parts = {"north": X[:50], "south": X[50:]}
    for site, rows in parts.items():
        parquet.write_table(pyarrow.table(dict(zip(names, rows.T, strict=True))), tmp_path / f"{site}.parquet")
    model = fs.FedUMAP(n_landmarks=15, rounds=5, n_neighbors=6, n_epochs=5, random_state=0)
    whole = model.fit(fs.federate({site: parts[site] for site in parts})).embedding_
    streamed = model.fit(fs.federate({site: fs.stream(tmp_path / f"{site}.parquet") for site in parts}))
    np.testing.assert_allclose(streamed.embedding_, whole, atol=1e-6)
    # A row has five neighbours, each a number and a distance.
    held = streamed.factor_.nbytes + streamed.offset_.nbytes + 16 * 5 * 80
    assert streamed.run_.metric("layout_bytes") == [held]

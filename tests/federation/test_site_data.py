"""What a site holds: arrays and data frames, digests of them, and values in their place."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

import fedspan as fs
from fedspan.federation.site import site_data
from fedspan.federation.site.site_data import invented_values


@pytest.fixture
def mixed():
    return pd.DataFrame({"proto": ["tcp", "udp", "tcp"], "size": [1.0, 2.0, 3.0]})


def test_frames_of_mixed_and_nullable_numbers_are_numbers():
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": [True, False], "c": pd.array([1, None], dtype="Int64")})
    X = fs.Site("s", frame).X
    assert X.dtype == np.float64
    np.testing.assert_array_equal(X, [[1.5, 1.0, 1.0], [2.5, 0.0, np.nan]])


def test_frames_of_text_and_numbers_are_held_once(mixed):
    site = fs.Site("s", mixed)
    assert (len(site), repr(site)) == (3, "Site('s', 3x2)")
    assert "X" not in vars(site._data)
    assert site.X.dtype == object
    assert site.X is site.X
    np.testing.assert_array_equal(site.X, mixed.to_numpy())
    [batch] = site.batches(9)
    np.testing.assert_array_equal(batch.X, mixed.to_numpy())
    assert site.fingerprint() == fs.Site("s", mixed.copy()).fingerprint()
    assert site.fingerprint() != fs.Site("s", mixed.assign(proto="gre")).fingerprint()


def test_what_is_written_to_a_frame_later_does_not_reach_the_site(mixed):
    site = fs.Site("s", mixed)
    mixed.loc[0, "size"] = 99.0
    assert site.frame.loc[0, "size"] == 1.0
    assert site.X[0, 1] == 1.0


def test_what_was_computed_stays_when_the_data_are_digested():
    made = []
    site = fs.Site("s", np.eye(2))
    for _ in range(2):
        site.cached("gram", lambda: made.append(1))
        site.digest()
    assert made == [1]


def test_a_digest_is_of_all_rows_and_columns():
    def digest(name="s", X=0.0, y=0.0, task=0.0, row=0, frame=False):
        values = [np.zeros((9000, 2)), np.zeros(9000), np.zeros(9000)]
        for array, value in zip(values, (X, y, task), strict=True):
            array[row] = value
        rows = pd.DataFrame(values[0], columns=["a", "b"]) if frame else values[0]
        return fs.Site(name, rows, values[1], values[2]).digest()

    changed = [{what: 1.0, "row": row} for what in ("X", "y", "task") for row in (0, 4095, 4096, 8999)]
    assert len({digest(**change) for change in ({}, {"name": "t"}, {"frame": True}, *changed)}) == 3 + len(changed)
    assert digest() == digest()
    assert digest(frame=True) == digest(frame=True)


@pytest.mark.parametrize("kind", ["f8", "f4", "c16", "i8", "u1", "?", "O", "U3"])
def test_invented_values_have_the_kind_and_the_shape_and_nothing_else(kind, monkeypatch):
    few = invented_values(np.dtype(kind), (40, 2), 3.0)
    assert (few.dtype, few.shape, few.flags.writeable) == (np.dtype(kind), (40, 2), False)
    assert len({repr(row) for row in few.tolist()}) > 2  # and not one row again and again
    np.testing.assert_array_equal(few, invented_values(np.dtype(kind), (40, 2), 3.0))
    if few.dtype.kind in "fc":
        np.testing.assert_allclose(few, 3.0 * invented_values(np.dtype(kind), (40, 2), 1.0), rtol=1e-6)
    else:
        assert set(few.ravel().tolist()) == ({"a", "b"} if few.dtype.kind in "OU" else {0, 1})
    monkeypatch.setattr(site_data, "_INVENTED_ROWS", 10)
    many = invented_values(np.dtype(kind), (40, 2), 3.0)
    np.testing.assert_array_equal(many, np.broadcast_to(many[0], (40, 2)))
    assert many.strides[0] == 0  # no memory
    assert invented_values(np.dtype(kind), (10, 2), 3.0).strides[0] > 0


def test_sparse_rows_have_no_rows_of_their_kind():
    site = fs.Site("a", csr_matrix(np.eye(3, dtype=np.float32)))
    assert (site.no_rows().shape, site.no_rows().dtype) == ((0, 3), np.float32)

"""The encoding of a table: labels that differ, and how far out an unexpected missing cell is."""

from __future__ import annotations

import numpy as np

from fedspan.tables.parts.encoding import Encoding, far_out


def test_how_far_out_an_unexpected_cell_is_by_hand():
    assert far_out(np.array([9.0, 1.0, 6.0])) == 20.0  # 5 times the root of a total variance of 16
    assert far_out(np.array([0.5, 0.25, 0.25, 0.0])) == 10.0  # as for four columns of unit variance
    assert np.isfinite(far_out(np.array([1.7e308, 1.7e308])))


def test_labels_differ_where_names_of_columns_and_cells_would_not():
    text, none = np.array([True, False, False]), np.zeros(3, dtype=bool)
    encoding = Encoding(text, none, none, (("x", ""),), other=False)
    assert encoding.labels(["a", "a_x", "a_x"]) == ["a_x", "a_(missing)", "a_x_", "a_x__"]
    assert encoding.stands_for("value").tolist() == [False, False, True, True]

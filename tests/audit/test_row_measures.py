"""Measures of rebuilt rows, by hand, and true rows in another order."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.audit import psnr, reidentified, relative_error
from fedspan.audit.row_measures import check_bounds, matched_order
from fedspan.errors import InputError


def test_measures_by_hand():
    truth = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 0.0], [4.0, 0.0]])
    assert relative_error(truth + np.array([0, 1]), truth) == pytest.approx(np.sqrt(4 / 8))
    assert relative_error(truth[:1], truth[:1]) == 0
    assert relative_error(truth[:1] + 1, truth[:1]) == np.inf
    assert psnr(truth + 0.4, truth, (0, 4)) == pytest.approx(10 * np.log10(16 / ((0.4**2 * 7) / 8)))  # one is clipped
    assert psnr(truth, truth, (0, 4)) == np.inf
    # Row 1 equals row 2, and either is right for it; the last one is mistaken for them.
    assert reidentified(np.array([[0.4, 0], [2.1, 0], [1.9, 0], [2.5, 0]]), truth) == 0.75
    assert reidentified(np.tile(truth.mean(axis=0), (4, 1)), truth) == 0.5  # the mean row is theirs
    for bad in ((1, 0), (0, np.inf), "ab", 3, (1, 2, 3)):
        with pytest.raises(InputError, match="bounds="):
            check_bounds(bad)


def test_reidentification_of_many_rows_searches_for_some_among_all():
    truth = np.arange(12_000.0)[:, None]
    assert reidentified(truth + 0.4, truth) == 1.0
    assert reidentified(truth + 0.6, truth) == pytest.approx(0.0, abs=1e-3)


def test_an_order_is_found_only_where_rows_are_rebuilt_well():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(40, 3))
    order = rng.permutation(40)
    np.testing.assert_array_equal(matched_order(truth[order] + 1e-3, truth), order)
    assert matched_order(truth + 1e-3, truth) is None  # the order is right
    assert matched_order(rng.normal(size=(40, 3)), truth) is None
    assert matched_order(truth[:5], truth) is None


def test_equal_rows_get_one_place_each():
    truth = np.repeat(np.arange(10.0)[:, None], 3, axis=0)
    order = matched_order(truth[::-1] + 1e-3, truth)
    assert sorted(order) == list(range(30))
    np.testing.assert_array_equal(truth[order], truth[::-1])

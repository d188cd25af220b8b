"""Rows that a transform can't take, at sites with strict ledgers: no failure shows them, and no other row moves."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedspan.errors import InputError, PolicyError
from fedspan.federation.site.failing_rows import hiding_failures

W = 1e12 * np.random.default_rng(0).standard_normal((3, 4))


def positive(X):
    X = np.asarray(X, dtype=np.float64)
    if (X[:, 0] < 0).any():
        raise InputError("a cell is below 0")
    return X @ W


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame])
def test_the_other_rows_keep_every_bit(make):
    X = np.abs(np.random.default_rng(1).standard_normal((37, 3)))
    whole = positive(X)
    bad = [0, 5, 36]
    X[bad, 0] = -1.0
    found = hiding_failures(positive)(make(X))
    assert np.isnan(found[bad]).all()
    rest = np.setdiff1d(np.arange(37), bad)
    np.testing.assert_array_equal(found[rest], whole[rest])


def test_where_all_rows_fail_all_are_nan():
    assert np.isnan(hiding_failures(positive)(np.full((3, 3), -1.0))).all()
    assert hiding_failures(positive)(np.full((3, 3), -1.0)).shape == (3, 4)


def test_what_fails_without_rows_fails():
    with pytest.raises(ValueError, match="matmul"):
        hiding_failures(positive)(np.ones((5, 2)))


def test_a_refusal_stays_one():
    def refused(X):
        raise PolicyError("no")

    with pytest.raises(PolicyError):
        hiding_failures(refused)(np.ones((5, 2)))

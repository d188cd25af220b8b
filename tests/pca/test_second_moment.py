"""A site's second moment, as a matrix and by its rows: the same numbers, whichever is cheaper."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import fedspan as fs
from fedspan.pca.parts import second_moment as module
from fedspan.pca.parts.second_moment import is_matrix_cheaper, second_moment
from fedspan.sums.row_blocks import blocks


def moments_both_ways(monkeypatch, site, rows, shape):
    found = []
    for matrix in (True, False):
        monkeypatch.setattr(module, "is_matrix_cheaper", lambda *_, matrix=matrix: matrix)
        found.append(second_moment(site, rows, shape, 100))
    return found


@pytest.mark.parametrize(("n", "d"), [(30, 7), (5, 7), (1, 4), (3, 1), (2000, 3), (0, 3)])
def test_both_ways_are_the_matrix(monkeypatch, n, d):
    rng = np.random.default_rng(0)
    X, U, A = rng.normal(size=(n, d)) + 2.0, rng.normal(size=(d, min(d, 2))), rng.normal(size=(d, min(d, 2)))
    C = X.T @ X / 11.0
    for found in moments_both_ways(monkeypatch, fs.Site("s", X), 11.0, U.shape):
        np.testing.assert_allclose(found.add_product(A, -1.5, U), A - 1.5 * C @ U, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.product(U), C @ U, rtol=1e-12, atol=1e-12)
        assert found.captured(U) == pytest.approx(np.trace(U.T @ C @ U), rel=1e-12)
        assert found.trace == pytest.approx(np.trace(C), rel=1e-12)
        assert found.top == pytest.approx(np.linalg.eigvalsh(C)[-1], rel=1e-11, abs=1e-15)


def test_the_largest_eigenvalue_by_rows_where_several_are_equal(monkeypatch):
    X = np.vstack([3.0 * np.eye(40)[:5], np.eye(40)])
    for found in moments_both_ways(monkeypatch, fs.Site("s", X), 1.0, (40, 2)):
        assert found.top == pytest.approx(10.0, rel=1e-11)


def test_the_choice_goes_by_cost():
    assert is_matrix_cheaper(n=1000, d=40, k=2, products=1000)
    assert not is_matrix_cheaper(n=1000, d=40, k=2, products=3)  # 800,000 multiplications to make the matrix
    assert is_matrix_cheaper(n=1000, d=40, k=2, products=4)
    assert is_matrix_cheaper(n=1, d=40, k=2, products=10)  # a walk through a single row costs more than the matrix
    assert not is_matrix_cheaper(n=99, d=400, k=2, products=10**9)  # the rows are smaller than half the matrix
    assert not is_matrix_cheaper(n=10**9, d=5000, k=2, products=10**9)  # too large, however cheap


def test_many_columns_make_no_matrix_of_them_and_many_rows_no_second_table(tmp_path):
    rng = np.random.default_rng(0)
    wide = fs.Site("wide", rng.normal(size=(20, 3000)))
    long = tmp_path / "long.npy"
    np.save(long, rng.normal(size=(300_000, 8)))
    for site, d, most in ((wide, 3000, 3e6), (fs.Site("long", np.load(long, mmap_mode="r")), 8, 9e6)):
        tracemalloc.start()
        C = second_moment(site, 1.0, (d, 2), 1000)
        C.product(np.ones((d, 2)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most  # 72 MB a matrix of the wide one's columns, 19 MB the long one's rows
        assert C.trace == pytest.approx(sum(np.vdot(X, X) for X in blocks(site)))


def test_it_is_made_once(monkeypatch):
    site = fs.Site("s", np.random.default_rng(0).normal(size=(50, 4)))
    second_moment(site, 50.0, (4, 1), 1000)
    monkeypatch.setattr(module, "blocks", lambda site: pytest.fail("the rows were read again"))
    assert second_moment(site, 25.0, (4, 1), 1000).top == 2 * second_moment(site, 50.0, (4, 1), 1000).top

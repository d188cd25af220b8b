"""Repulsion from a histogram: against direct sums, and laws that the optimiser relies on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan.linalg.layout.grid_repulsion import Grid, _extent, grid_around


def direct(Y):
    D = Y[:, None] - Y
    q = 1 / (1 + np.sum(D**2, axis=2))
    return q.sum(axis=1), np.einsum("ij,ijk->ik", q**2, D)


def around(Y, size):
    low = Y.min(axis=0) - 0.1
    return Grid(low, float(np.ptp(Y, axis=0).max() + 0.2) / (size - 1), size)


def test_fine_grids_come_close_to_direct_sums():
    Y = 5 * np.random.default_rng(0).normal(size=(300, 2))
    q, force = direct(Y)
    errors = []
    for size in (64, 256, 1024):
        grid = around(Y, size)
        found = grid.between(grid.repulsion(grid.histogram(Y)), Y)
        errors.append(np.linalg.norm(found[:, 1:] - force) / np.linalg.norm(force))
        Z = found[:, 0].sum() - grid.own_kernel(Y)
        assert pytest.approx(q.sum() - 300, rel=30 * grid.cell**2) == Z
    assert errors[2] < 1e-3
    assert errors[0] > 10 * errors[1] > 100 * errors[2]  # of second order in the width of a cell


def test_points_on_nodes_are_exact():
    grid = Grid(np.array([-2.0, 1.0]), 0.5, 9)
    Y = grid.low + 0.5 * np.array([[0, 0], [3, 4], [8, 8], [2, 7]])
    q, force = direct(Y)
    found = grid.between(grid.repulsion(grid.histogram(Y)), Y)
    np.testing.assert_allclose(found[:, 0], q, atol=1e-12)
    np.testing.assert_allclose(found[:, 1:], force, atol=1e-12)
    assert grid.own_kernel(Y) == pytest.approx(4.0)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 40), size=st.integers(8, 40))
def test_no_point_pushes_itself_and_all_pushes_cancel(seed, n, size):
    Y = np.random.default_rng(seed).uniform(-9, 9, size=(n, 2))
    grid = Grid(np.array([-10.0, -10.0]), 20.0 / (size - 1), size)
    one = grid.between(grid.repulsion(grid.histogram(Y[:1])), Y[:1])
    np.testing.assert_allclose(one[:, 1:], 0.0, atol=1e-12)
    assert one[0, 0] == pytest.approx(grid.own_kernel(Y[:1]))
    force = grid.between(grid.repulsion(grid.histogram(Y)), Y)[:, 1:]
    np.testing.assert_allclose(force.sum(axis=0), 0.0, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(0, 50))
def test_a_histogram_counts_every_point_once_wherever_it_is(seed, n):
    Y = np.random.default_rng(seed).normal(size=(n, 2)) * 30
    grid = Grid(np.array([-10.0, -5.0]), 1.0, 12)
    counted = grid.histogram(Y)
    assert counted.sum() == pytest.approx(n)
    assert (counted >= 0).all()
    parts = grid.histogram(Y[: n // 2]) + grid.histogram(Y[n // 2 :])
    np.testing.assert_allclose(parts, counted, atol=1e-12)


def test_the_next_grid_is_around_all_but_the_outermost_points():
    rng = np.random.default_rng(1)
    Y = np.r_[rng.uniform(-3, 3, size=(200, 2)), [[60.0, 60.0]]]
    grid = Grid(np.array([-100.0, -100.0]), 1.0, 201)
    wide, close = grid_around(grid.histogram(Y), grid, 1.0, 0.5), grid_around(grid.histogram(Y), grid, 1.0, 5)
    assert wide.high.min() == pytest.approx(60, abs=1.1)
    assert close.high.max() < 5  # one point far out does not count
    assert (close.low < -2).all()
    again = grid_around(grid.histogram(Y), grid, 1.5, 5)
    assert again.cell == pytest.approx(1.5 * close.cell)


def test_points_at_one_place_have_a_grid_still():
    grid = Grid(np.zeros(2), 1.0, 16)
    after = grid_around(grid.histogram(np.full((9, 2), 4.0)), grid, 1.1, 5)
    assert 0 < after.cell < 1
    assert (after.low < 4.0).all()
    assert (after.high > 4.0).all()


def test_a_grid_around_points_by_hand():
    old = Grid(np.array([10.0, 20.0]), 1.0, 5)
    histogram = np.zeros((5, 5))
    histogram[1, 3] = histogram[4, 3] = 10.0
    wide = grid_around(histogram, old, grow=2.0, few=1.0)  # from 11 to 14 and at 23: twice as wide, about 12.5 and 23
    assert (wide.low.tolist(), wide.cell, wide.size) == ([9.5, 20.0], 1.5, 5)
    histogram[4, 3] = 0.0
    narrow = grid_around(histogram, old, grow=2.0, few=1.0)  # all at one node: as if half a cell wide
    assert (narrow.low.tolist(), narrow.cell) == ([10.5, 22.5], 0.25)
    least = grid_around(histogram, Grid(np.zeros(2), 1e-9, 5), grow=2.0, few=1.0)
    assert least.cell == pytest.approx(0.5e-4)


def test_the_corners_of_a_grid():
    grid = Grid(np.array([1.0, 2.0]), 0.5, 5)
    assert grid.high.tolist() == [3.0, 4.0]
    assert grid.histogram(np.array([grid.low, grid.high]))[[0, 4], [0, 4]].tolist() == [1.0, 1.0]


def test_the_extent_of_points_by_hand():
    assert _extent(np.array([1.0, 0.0, 8.0, 0.0, 1.0]), 0.5) == (0, 4)
    assert _extent(np.array([1.0, 0.0, 8.0, 0.0, 1.0]), 1.0) == (2, 2)
    assert _extent(np.array([1.0, 1.0, 1.0, 1.0]), 3.0) == (1, 2)  # never more than a quarter of them
    assert _extent(np.zeros(4), 1.0) == (0, 3)

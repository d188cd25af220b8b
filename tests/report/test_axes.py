"""Axes: scales and ticks, by hand and for any values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.report.charts.axes import LARGEST, Scale, axis, drawable, log_ticks, span, tick_texts, ticks

finite = st.floats(allow_nan=False, allow_infinity=False).filter(drawable)


@given(finite, finite, st.booleans())
def test_span_and_ticks_hold_for_any_values(a, b, whole):
    low, high = span([a, b])
    assert low <= min(a, b)
    assert high >= max(a, b)
    assert low < high
    inside = ticks(low, high, 5, whole=whole)
    slack = 1e-6 * (high - low)
    assert len(inside) <= 6
    assert inside == sorted(set(inside))
    assert all(low - slack <= tick <= high + slack for tick in inside)
    assert len(tick_texts(inside)) == len(inside)
    if whole:
        assert all(tick == round(tick) for tick in inside)
    around = ticks(low, high, 5, around=True)
    assert around[0] <= low + slack
    assert around[-1] >= high - slack
    assert len(around) <= 8


def test_scale_by_hand():
    assert Scale(0, 10, 180, 12)(5) == 96
    assert Scale(0.01, 100, 0, 100, log=True)(1.0) == pytest.approx(50)
    assert not drawable(math.nan)
    assert not drawable(-math.inf)
    assert not drawable(LARGEST)


def test_ticks_by_hand():
    assert ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(-3, 3, 3) == [-2, 0, 2]
    assert ticks(0, 2, 5, whole=True) == [0, 1, 2]
    assert ticks(0, 0.589, 4, around=True) == pytest.approx([0, 0.2, 0.4, 0.6])
    assert tick_texts([0.0, 0.2, 0.4]) == ["0", "0.2", "0.4"]
    assert tick_texts([0, 5000, 10000]) == ["0", "5\u202f000", "10\u202f000"]
    assert tick_texts([0, 2e9]) == ["0", "2×10⁹"]
    assert [value for value, _ in log_ticks(1e-12, 1.0, 4)] == pytest.approx([1e-12, 1e-9, 1e-6, 1e-3, 1])
    assert span([], zero=True) == (0.0, 1.0)
    assert span([0, 0], zero=True) == (0, 1)
    assert span([3, 1, 2]) == (1, 3)
    assert span([3, 1], zero=True) == (0, 3)
    assert span([5, 5]) == (4.5, 5.5)
    assert tick_texts([0, 0.5, 1.0]) == ["0", "0.5", "1.0"]
    assert [text for _, text in log_ticks(0.001, 10.0, most=4)] == ["10⁻³", "10⁻²", "10⁻¹", "10⁰", "10¹"]


def test_an_axis_with_zero_begins_and_ends_with_a_tick():
    scale, found = axis([0.5, 9.5], 0.0, 100.0, most=5, zero=True)
    assert [place for place, _ in found] == [0, 2, 4, 6, 8, 10]
    assert (scale(0), scale(10)) == (0.0, 100.0)
    scale, found = axis([0.5, 9.5], 0.0, 100.0, most=5, show=lambda value: f"{value:g} s")
    assert (scale(0.5), scale(9.5)) == (0.0, 100.0)
    assert found == [(2.0, "2 s"), (4.0, "4 s"), (6.0, "6 s"), (8.0, "8 s")]


def test_a_logarithmic_axis_of_less_than_two_powers_has_more_than_one_tick():
    assert [value for value, _ in log_ticks(2e-4, 2e-2)] == pytest.approx([1e-3, 1e-2])
    assert [text for _, text in log_ticks(3e-3, 3e-2)] == ["5 × 10⁻³", "10⁻²", "2 × 10⁻²"]
    assert [value for value, _ in log_ticks(0.21, 0.9)] == pytest.approx([0.5])

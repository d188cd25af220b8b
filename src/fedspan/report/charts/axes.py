"""Axes: from values to places on a chart, and their ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedspan.report.markup import number, number_with, superscript

# Beyond it a difference of two values may overflow, and a chart is of no use.
LARGEST = 1e300
Ticks = list[tuple[float, str]]


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic map of [low, high] to the pixels [start, end]."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of `value`, in pixels."""
        low, high, value = (math.log10(x) if self.log else x for x in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def axis(
    values: Sequence[float],
    start: float,
    end: float,
    *,
    most: int,
    zero: bool = False,
    log: bool = False,
    show: Callable[[float], str] | None = None,
) -> tuple[Scale, Ticks]:
    """Return a scale for drawable values, and its ticks: round, at most about `most`, whole where all values are.

    With `zero` the axis includes zero, and begins and ends with a tick.
    """
    low, high = span(values, zero=zero)
    if log:
        return Scale(low, high, start, end, log=True), log_ticks(low, high)
    places = ticks(low, high, most, whole=all(v == int(v) for v in values), around=zero)
    texts = [show(place) for place in places] if show else tick_texts(places)
    scale = Scale(min([low, *places]), max([high, *places]), start, end)
    return scale, list(zip(places, texts, strict=True))


def drawable(value: float) -> bool:
    """Return whether a chart has a place for `value`: neither NaN nor infinite, nor close to the largest number."""
    return abs(value) < LARGEST  # false for NaN


def span(values: Sequence[float], *, zero: bool = False) -> tuple[float, float]:
    """Return the least and the greatest of drawable values, and of `zero`; equal values are spread a little."""
    inside = [*values, 0.0] if zero or not values else values
    low, high = min(inside), max(inside)
    largest = max(abs(low), abs(high))
    if high - low > max(1e-9 * largest, 1e-300):
        return low, high
    around = 0.1 * largest if largest > 1e-290 else 1.0
    return (low if zero and low >= 0 else low - around), high + around


def ticks(low: float, high: float, most: int = 5, *, whole: bool = False, around: bool = False) -> list[float]:
    """Return round values in [low, high], at most `most` + 1, one, two or five times a power of ten apart.

    Only whole numbers where they are `whole`; with `around` also one at or below `low` and one at or above `high`.
    """
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in (1, 2, 5) if factor * power >= rough * (1 - 1e-9)), 10 * power)
    step = max(1.0, step) if whole else step
    if around:
        return [i * step for i in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]
    slack = 1e-9 * (high - low)
    every = (i * step for i in range(math.floor(low / step), math.ceil(high / step) + 1))
    return [tick for tick in every if low - slack <= tick <= high + slack]


def tick_texts(values: Sequence[float]) -> list[str]:
    """Return the texts of evenly spaced ticks, all with the same number of decimals."""
    step = values[1] - values[0] if len(values) > 1 else abs(values[0]) if values else 0.0
    if not 1e-4 <= step < 1e6 or max(map(abs, values)) >= 1e7:
        return [number(value, 6) for value in values]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return ["0" if value == 0 else number_with(value, decimals) for value in values]


def log_ticks(low: float, high: float, most: int = 5) -> Ticks:
    """Return powers of ten in [low, high] with their texts, not too many; where there is only one, also 2 and 5."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last > first:
        every = max(1, math.ceil((last - first) / most))
        return [(10.0**e, f"10{superscript(e)}") for e in range(first, last + 1, every)]
    steps = [(times * 10.0**e, times, e) for e in range(first - 1, last + 2) for times in (1, 2, 5)]
    return [
        (value, f"{times} × 10{superscript(e)}" if times > 1 else f"10{superscript(e)}")
        for value, times, e in steps
        if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
    ]

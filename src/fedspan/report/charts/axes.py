"""Axes: from values to places on a chart, and where the ticks stand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedspan.report.markup import number, power_of_ten

# Beyond it a difference of two values may overflow, and no chart is any use.
LARGEST = 1e300


@dataclass(frozen=True)
class Scale:
    """A straight or logarithmic map of [low, high] to the pixels [start, end].

    Examples
    --------
    >>> Scale(0, 10, 100, 200)(5), Scale(1, 100, 0, 50, log=True)(10)
    (150.0, 25.0)
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of `value`, in pixels."""
        if self.log:
            low, high, value = math.log10(self.low), math.log10(self.high), math.log10(value)
        else:
            low, high = self.low, self.high
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def drawable(value: float) -> bool:
    """Whether a chart has a place for `value`: neither NaN nor infinite, nor close to the largest number there is."""
    return abs(value) < LARGEST  # false for NaN


def span(values: Sequence[float], *, zero: bool = False) -> tuple[float, float]:
    """Return the smallest and the largest value, spread a little where they are all the same.

    Parameters
    ----------
    values : sequence of float
        All of them `drawable`; may be empty.
    zero : bool, default=False
        Whether zero has to be within.

    Examples
    --------
    >>> span([3, 1, 2]), span([3, 1], zero=True), span([5, 5])
    ((1, 3), (0.0, 3), (4.5, 5.5))
    """
    inside = [*values, 0.0] if zero or not values else values
    low, high = min(inside), max(inside)
    largest = max(abs(low), abs(high))
    if high - low > max(1e-9 * largest, 1e-300):
        return low, high
    around = 0.1 * largest if largest > 1e-290 else 1.0
    return (low if zero and low >= 0 else low - around), high + around


def ticks(low: float, high: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Return round values in [low, high], at most `most` + 1 of them, one, two or five times a power of ten apart.

    Parameters
    ----------
    low, high : float
        With ``low < high``, as `span` gives them.
    most : int, default=5
    whole : bool, default=False
        Whether only whole numbers make sense, as for rounds.

    Examples
    --------
    >>> ticks(0, 10), ticks(0, 3, whole=True)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [0.0, 1.0, 2.0, 3.0])
    """
    step = _step(low, high, most, whole)
    slack = 1e-9 * (high - low)
    every = (i * step for i in range(math.floor(low / step), math.ceil(high / step) + 1))
    return [tick for tick in every if low - slack <= tick <= high + slack]


def up_to_ticks(low: float, high: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Return round values from just below `low` to just above `high`: for axes that begin and end with a tick.

    Examples
    --------
    >>> up_to_ticks(0, 9.5)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    step = _step(low, high, most, whole)
    return [i * step for i in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]


def _step(low: float, high: float, most: int, whole: bool) -> float:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * power for factor in (1, 2, 5) if factor * power >= rough * (1 - 1e-9)), 10 * power)
    return max(1.0, step) if whole else step


def tick_texts(values: Sequence[float]) -> list[str]:
    """Return the texts of evenly spaced ticks, all with the same number of decimals.

    Examples
    --------
    >>> tick_texts([0, 0.5, 1.0])
    ['0', '0.5', '1.0']
    """
    step = values[1] - values[0] if len(values) > 1 else abs(values[0]) if values else 0.0
    if not 1e-4 <= step < 1e6 or max(map(abs, values)) >= 1e7:
        return [number(value, 6) for value in values]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return ["0" if value == 0 else number_with(value, decimals) for value in values]


def number_with(value: float, decimals: int) -> str:
    """Return a number with so many decimals and thin separators.

    Examples
    --------
    >>> number_with(-0.5, 2)
    '−0.50'
    """
    whole, _, fraction = f"{abs(value):.{decimals}f}".partition(".")
    sign = "−" if value < 0 and float(f"{value:.{decimals}f}") != 0 else ""
    return sign + f"{int(whole):,}".replace(",", "\u202f") + (f".{fraction}" if fraction else "")


def log_ticks(low: float, high: float, most: int = 5) -> list[tuple[float, str]]:
    """Return powers of ten in [low, high] with their texts, not too many; 2 and 5 times these where there is but one.

    Examples
    --------
    >>> log_ticks(0.004, 0.03)
    [(0.005, '5 × 10⁻³'), (0.01, '10⁻²'), (0.02, '2 × 10⁻²')]
    >>> log_ticks(0.001, 10.0, most=4)
    [(0.001, '10⁻³'), (0.01, '10⁻²'), (0.1, '10⁻¹'), (1.0, '10⁰'), (10.0, '10¹')]
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last <= first:
        steps = [(times * 10.0**e, times, e) for e in range(first - 1, last + 2) for times in (1, 2, 5)]
        inside = [step for step in steps if low * (1 - 1e-9) <= step[0] <= high * (1 + 1e-9)]
        return [(value, f"{times} × {power_of_ten(e)}" if times > 1 else power_of_ten(e)) for value, times, e in inside]
    every = max(1, math.ceil((last - first) / most))
    return [(10.0**e, power_of_ten(e)) for e in range(first, last + 1, every)]

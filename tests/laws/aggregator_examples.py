"""An example of every aggregation rule and the laws that hold for it.

A rule without an entry in `EXAMPLES` is made by itself and must keep all laws; one that claims more, or
cannot keep one of them, adds a line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from fedspan import aggregation
from fedspan.aggregation import (
    Aggregator,
    ClipNorm,
    CoordinateMedian,
    GeometricMedian,
    Krum,
    MajorityMean,
    Mean,
    MedianOfMeans,
    MultiKrum,
    SpectralFilter,
    TrimmedMean,
)

from .discovery import arguments, callables_of, name_of


@dataclass(frozen=True)
class Example:
    """A rule, and what may be asked of it.

    `least` is the smallest number of values that it takes. `tolerates(L)` is how many of L values may be bad, and
    `bound(L, bad, d)` how far it may then be from the centre of a unit ball that holds the honest ones. Where ties
    are not exact, rounding decides which of two equal means is trusted.
    """

    rule: Aggregator
    least: int = 1
    any_order: bool = True
    exact_ties: bool = True
    translates: bool = True
    scales: bool = True
    in_hull: bool = True
    tolerates: Callable[[int], int] = lambda L: 0
    bound: Callable[[int, int, int], float] = lambda L, bad, d: 1.0

    def __repr__(self) -> str:
        return name_of(self.rule)


def minority(L: int) -> int:
    return (L - 1) // 2


def by_entry(L: int, bad: int, d: int) -> float:
    """Every entry lies between honest ones."""
    return sqrt(d)


def median_bound(L: int, bad: int, d: int) -> float:
    """2 (1 - a) / (1 - 2 a) for a part a of bad values."""
    return 2 * (L - bad) / (L - 2 * bad)


def krum_bound(L: int, bad: int, d: int) -> float:
    """An honest score is at most (L - f - 2) squared diameters, and a chosen value has an honest neighbour within."""
    return 1 + 2 * sqrt(L - bad - 2)


EXAMPLES: dict[str, list[Example]] = {
    "Mean": [Example(Mean())],
    "CoordinateMedian": [Example(CoordinateMedian(), tolerates=minority, bound=by_entry)],
    "TrimmedMean": [
        Example(TrimmedMean(0)),
        Example(TrimmedMean(2), least=5, tolerates=lambda L: 2, bound=by_entry),
    ],
    "GeometricMedian": [Example(GeometricMedian(), tolerates=minority, bound=median_bound)],
    "MedianOfMeans": [
        Example(MedianOfMeans(1)),
        Example(
            MedianOfMeans(3),
            least=3,
            any_order=False,
            exact_ties=False,
            tolerates=lambda L: 1,
            bound=lambda L, b, d: median_bound(3, b, d),
        ),
    ],
    "Krum": [Example(Krum(1), least=5, tolerates=lambda L: 1, bound=krum_bound)],
    "MultiKrum": [
        Example(MultiKrum(1, 2), least=5, tolerates=lambda L: 1, bound=krum_bound),
        Example(MultiKrum(2, 5), least=7, tolerates=lambda L: 2, bound=krum_bound),
    ],
    # The ball of a majority has an honest value, and at most the honest radius.
    "MajorityMean": [
        Example(MajorityMean(), tolerates=minority, bound=lambda L, b, d: 7.0),
        Example(MajorityMean(1.0), tolerates=minority, bound=lambda L, b, d: 5.0),
    ],
    "SpectralFilter": [
        # What is far away is shortened to the median distance, which is an honest one.
        Example(SpectralFilter(), tolerates=lambda L: int(0.45 * L), bound=lambda L, b, d: 6.0),
        Example(SpectralFilter(0.2, 3.0), tolerates=lambda L: int(0.2 * L), bound=lambda L, b, d: 6.0),
    ],
    "ClipNorm": [
        Example(ClipNorm(Mean()), translates=False, in_hull=False, tolerates=minority, bound=lambda L, b, d: 10.0),
        Example(
            ClipNorm(GeometricMedian(), factor=2.0),
            translates=False,
            in_hull=False,
            tolerates=minority,
            bound=median_bound,
        ),
        Example(ClipNorm(TrimmedMean(1), norm=1e6), least=3, translates=False, scales=False, in_hull=False),
    ],
}

#: For the parameters of rules that have no example.
USUAL = {"f": 1, "m": 2, "groups": 3, "aggregator": GeometricMedian()}


#: What the package exports beside its rules: what they return, and what they are.
OTHERS = ("Aggregate", "Aggregator")


def rules_of(package: ModuleType) -> dict[str, Any]:
    return callables_of(package, OTHERS, "OTHERS in tests/laws/aggregator_examples.py")


def example_of(found: Any) -> Example:
    """Return a rule without an example as one that keeps all laws and survives an attack, unless it believes counts.

    A function is a rule as it is.
    """
    given = arguments(found, USUAL, "EXAMPLES in tests/laws/aggregator_examples.py") if inspect.isclass(found) else None
    rule: Aggregator = found if given is None else found(**given)
    resilient = not getattr(rule, "believes_reported_weights", False)
    least = next((count for count in range(1, 10) if takes(rule, count)), 1)
    return Example(rule, least, tolerates=lambda L: int(resilient), bound=lambda L, b, d: 10.0 * sqrt(d))


def takes(rule: Aggregator, count: int) -> bool:
    try:
        rule(np.arange(float(count)))
    except Exception:  # of whatever kind: the laws ask why
        return False
    return True


def examples_of(package: ModuleType) -> list[Example]:
    return [law for name, kind in rules_of(package).items() for law in EXAMPLES.get(name) or [example_of(kind)]]


ALL = examples_of(aggregation)


def rules(having: Callable[[Example], bool]) -> pytest.MarkDecorator:
    """Return what lets a test run for each rule that has a property."""
    return pytest.mark.parametrize("law", [law for law in ALL if having(law)], ids=repr)


every_rule = rules(lambda law: True)
quick = settings(max_examples=25, deadline=None)


def close(a: np.ndarray, b: np.ndarray, size: float = 1.0) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * size)

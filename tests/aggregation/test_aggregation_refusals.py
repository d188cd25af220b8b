"""What aggregators refuse, and in which words; and numbers so large or small that squares of them do not exist."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.laws.aggregator_examples import ALL, Example

from fedspan.aggregation import (
    ClipNorm,
    CoordinateMedian,
    GeometricMedian,
    Krum,
    Mean,
    MedianOfMeans,
    MultiKrum,
    SpectralFilter,
    TrimmedMean,
)
from fedspan.aggregation.fewer_values import for_fewer_values
from fedspan.errors import InputError

every_rule = pytest.mark.parametrize("law", ALL, ids=repr)


@every_rule
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, complex(0, np.nan)])
def test_what_is_not_finite_is_refused_with_its_index(law: Example, wrong: complex) -> None:
    values = np.zeros((9, 2, 2), dtype=complex if isinstance(wrong, complex) else float)
    values[6, 1, 0] = wrong
    with pytest.raises(InputError, match=r"values\[6\] holds NaN or infinity"):
        law.rule(values)


@every_rule
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (3.0, "at least one value along its first axis"),
        (np.zeros((0, 3)), "at least one value along its first axis"),
        (["a"] * 9, "must be numbers"),
        ([True] * 9, "must be numbers"),
        ([[1.0], [1.0, 2.0]], "must have the same shape"),
        (np.array([None] * 9), "must be numbers, not object"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(law: Example, values: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        law.rule(values)


@every_rule
@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0] * 8, r"weights has the shape \(8,\) .* each of the 9 values"),
        (["1"] * 9, "must have one number for each of the 9 values"),
        ([1.0] * 8 + [-0.5], r"weights\[8\]=-0.5 must be finite and at least 0"),
        ([1.0, np.nan] + [1.0] * 7, r"weights\[1\]=nan must be finite"),
        ([0.0] * 9, "weights are all 0"),
    ],
)
def test_weights_that_are_none_are_refused(law: Example, weights: list[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        law.rule(np.arange(9.0), weights)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TrimmedMean(-1), "f=-1 must be a whole number of at least 0"),
        (lambda: TrimmedMean(1.0), "f=1.0 must be a whole number of at least 0"),  # type: ignore[arg-type]
        (lambda: TrimmedMean(True), "f=True must be a whole number of at least 0"),
        (lambda: Krum(-1), "f=-1 must be"),
        (lambda: MultiKrum(-1, 1), "f=-1 must be"),
        (lambda: MultiKrum(1, 0), "m=0 must be a whole number of at least 1"),
        (lambda: MedianOfMeans(0), "groups=0 must be a whole number of at least 1"),
        (lambda: SpectralFilter(0.5), "fraction=0.5 must be a finite number above 0 and below 0.5"),
        (lambda: SpectralFilter(True), "fraction=True must be a finite number"),
        (lambda: SpectralFilter(threshold=np.inf), "threshold=inf must be a finite number above 0"),
        (lambda: ClipNorm(Mean(), norm=0), "norm=0 must be a finite number above 0"),
        (lambda: ClipNorm(Mean(), norm=np.inf), "norm=inf must be"),
        (lambda: ClipNorm(Mean(), factor=-1.0), "factor=-1.0 must be"),
        (lambda: ClipNorm(Mean(), factor=np.nan), "factor=nan must be"),
        (lambda: ClipNorm(Mean(), factor="2"), "factor='2' must be"),  # type: ignore[arg-type]
        (lambda: ClipNorm(Mean), "must be an aggregator, such as Mean()"),  # type: ignore[arg-type]
        (lambda: ClipNorm("mean"), "must be an aggregator"),  # type: ignore[arg-type]
    ],
)
def test_a_parameter_is_refused_when_the_rule_is_made(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize(
    ("rule", "fits", "words"),
    [
        (TrimmedMean(2), 5, "f=2 is too many for the 4 values that came: 2 f must be below their number"),
        (Krum(2), 7, r"f=2 is too many for the 6 values that came: Krum needs at least 2 f \+ 3"),
        (MultiKrum(2, 1), 7, r"f=2 is too many for the 6 values that came: Krum needs at least 2 f \+ 3"),
        (MultiKrum(1, 5), 6, "m=5 is too many for f=1 and the 5 values that came: at most L - f"),
        (MedianOfMeans(4), 4, "groups=4 is more than the 3 values that came"),
    ],
)
def test_too_few_values_for_a_rule_are_an_error_and_never_a_clamp(rule: Any, fits: int, words: str) -> None:
    values = np.arange(float(fits)) ** 2
    rule(values)
    with pytest.raises(InputError, match=words):
        rule(values[1:])
    with pytest.raises(InputError, match=words):  # who has no weight did not come
        rule(values, [0.0] + [1.0] * (fits - 1))


def test_parameters_from_numpy_look_like_python_ones() -> None:
    assert repr(TrimmedMean(np.int64(2))) == "TrimmedMean(f=2)"  # type: ignore[arg-type]
    assert repr(MultiKrum(np.int32(1), np.int64(3))) == "MultiKrum(f=1, m=3)"  # type: ignore[arg-type]
    assert repr(MedianOfMeans(np.uint8(3))) == "MedianOfMeans(groups=3)"  # type: ignore[arg-type]
    clip = ClipNorm(Krum(1), norm=np.float32(2), factor=3)  # type: ignore[arg-type]
    assert repr(clip) == "ClipNorm(aggregator=Krum(f=1), norm=2.0, factor=3.0)"
    assert TrimmedMean(1) != TrimmedMean(2)
    assert Krum(1) != TrimmedMean(1)


# Numbers at the ends of the floating-point range.

HONEST = np.array([[0.0, 1.0], [1.0, 1.5], [3.0, 1.0], [7.0, 2.0], [2.5, 0.0], [0.5, 0.25]])


@every_rule
@pytest.mark.parametrize("size", [1e300, 1.7e308])
def test_huge_values_on_both_sides_give_a_finite_result(law: Example, size: float) -> None:
    signs = np.array([1, -1, 1, 1, -1, 1, -1, -1, 1.0])
    result = law.rule(signs[:, None] * np.array([size, 1.0, -size]))
    assert np.isfinite(result.value).all()
    assert (np.abs(result.value) <= size).all()
    assert result.weights.sum() == pytest.approx(1)


def test_the_mean_of_huge_values_does_not_overflow() -> None:
    assert Mean()([1e308, 1.5e308, 1.1e308]).value == pytest.approx(1.2e308)
    assert Mean()([1.7976931348623157e308] * 7).value == 1.7976931348623157e308
    assert MedianOfMeans(1)([1e308, 1.5e308, 1.1e308]).value == pytest.approx(1.2e308)


@pytest.mark.parametrize("rule", [Krum(1), Krum(2), MultiKrum(2, 3), MultiKrum(2, 5)], ids=repr)
@pytest.mark.parametrize("size", [1e160, 1e300])
def test_krum_chooses_the_same_whether_the_bad_values_are_large_or_huge(rule: Any, size: float) -> None:
    large = rule(np.concatenate([HONEST, [[1e6, 1e6]], [[-1e6, 1e6]]]))
    huge = rule(np.concatenate([HONEST, [[size, size]], [[-size, size]]]))
    if rule.f == 2:  # with f = 1 both may hide behind the honest ones
        assert huge.weights[6:].tolist() == [0.0, 0.0]
        np.testing.assert_array_equal(huge.value, large.value)
    np.testing.assert_array_equal(huge.weights, large.weights)


@pytest.mark.parametrize("factor", [2.0**-700, 2.0**-530, 2.0**530, 2.0**1000])
def test_krum_scores_neither_overflow_nor_vanish(factor: float) -> None:
    usual, scaled = Krum(1)(HONEST), Krum(1)(HONEST * factor)
    assert usual.weights.max() == 1.0
    np.testing.assert_array_equal(scaled.weights, usual.weights)
    np.testing.assert_array_equal(scaled.value, usual.value * factor)


@pytest.mark.parametrize("rule", [CoordinateMedian(), TrimmedMean(2), GeometricMedian()], ids=repr)
def test_small_honest_values_survive_huge_bad_ones(rule: Any) -> None:
    honest = 1e-12 * HONEST
    bad = np.array([[1e300, -1e300], [1e300, 1e300]])
    value = rule(np.concatenate([honest, bad])).value
    assert np.isfinite(value).all()
    assert (np.abs(value) < 1e-10).all()
    assert np.abs(value).max() > 1e-13
    large = rule(np.concatenate([HONEST, 1e-280 * bad])).value
    np.testing.assert_allclose(value, 1e-12 * large, rtol=1e-9, atol=1e-21)


def test_clipping_huge_values_keeps_their_direction() -> None:
    clipped = ClipNorm(Mean(), norm=10.0)([[3e307, 4e307], [0.0, 0.0]]).value
    np.testing.assert_allclose(clipped, [3.0, 4.0])
    clipped = ClipNorm(Mean(), factor=1.0)([[1.2e308, 1.6e308], [0.3, 0.4], [0.3, 0.4]]).value
    np.testing.assert_allclose(clipped, [0.3, 0.4])
    tiny = ClipNorm(Mean(), factor=1.0)([[3e-200, 4e-200], [6e-200, 8e-200]]).value
    np.testing.assert_allclose(tiny, [3e-200, 4e-200])


@pytest.mark.slow
def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, fedspan; before = set(sys.modules); import fedspan.aggregation; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {".".join(name.split(".")[:2]) for name in done.stdout.split() if name.startswith("fedspan")}
    assert packages <= {"fedspan.aggregation", "fedspan.checks", "fedspan.errors", "fedspan.linalg"}
    assert not re.search(r"\b(sklearn|pandas|rich)\b", done.stdout)


def test_the_rule_for_fewer_values_is_the_strictest_that_is_defined():
    """Every rule that was set up for nine values is defined for whatever is left, down to three."""
    rules = (MedianOfMeans(9), Krum(3), MultiKrum(3, 6), TrimmedMean(4), ClipNorm(TrimmedMean(4)), GeometricMedian())
    for rule in rules:
        assert for_fewer_values(rule, 9) is rule
        for count in range(3, 9):
            fitting = for_fewer_values(rule, count)
            assert np.isfinite(fitting(np.arange(float(count))).value)
    assert for_fewer_values(MultiKrum(2, 6), 7) == MultiKrum(2, 5)
    assert for_fewer_values(MultiKrum(2, 4), 7) == MultiKrum(2, 4)
    assert for_fewer_values(ClipNorm(TrimmedMean(4)), 7) == ClipNorm(TrimmedMean(3))
    none_left = [for_fewer_values(rule, 0) for rule in rules[:4]]  # there is a rule yet, which then says what is wrong
    assert none_left == [MedianOfMeans(1), Krum(0), MultiKrum(0, 1), TrimmedMean(0)]

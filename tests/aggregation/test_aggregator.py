"""What all aggregators refuse, and what they do with huge numbers."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

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
from fedspan.aggregation.aggregator import believed
from fedspan.errors import InputError
from tests.laws.aggregator_examples import ALL, Example


def test_counts_that_sites_report_are_for_the_mean_alone() -> None:
    others = (CoordinateMedian(), GeometricMedian(), Krum(1), MultiKrum(1, 2), TrimmedMean(1), MedianOfMeans(3))
    for rule in (Mean(), *others, ClipNorm(Mean()), SpectralFilter()):
        counts = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
        assert np.isfinite(rule(np.arange(5.0)).value)
        assert (believed(rule, counts) is counts) is (type(rule) is Mean), rule


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
        ([[1.0], [1.0, 2.0]], "all sites must have values of one shape"),
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
        ([1.0] * 8, r"one number for each of the 9 values, not float64\(8,\)"),
        (["1"] * 9, "must be one number for each of the 9 values"),
        ([1.0] * 8 + [-0.5], r"weights\[8\]=-0.5 must be finite and at least 0"),
        ([1.0, np.nan] + [1.0] * 7, r"weights\[1\]=nan must be finite"),
        ([0.0] * 9, "weights are all 0"),
    ],
)
def test_invalid_weights_are_refused(law: Example, weights: list[Any], words: str) -> None:
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
        (MultiKrum(1, 5), 6, "m=5 is too many for the 5 values that came: at most L - f may be chosen"),
        (MedianOfMeans(4), 4, "groups=4 is more than the 3 values that came"),
    ],
)
def test_too_few_values_for_a_rule_are_an_error_and_never_a_clamp(rule: Any, fits: int, words: str) -> None:
    values = np.arange(float(fits)) ** 2
    rule(values)
    with pytest.raises(InputError, match=words):
        rule(values[1:])
    with pytest.raises(InputError, match=words):  # a site without weight did not come
        rule(values, [0.0] + [1.0] * (fits - 1))


def test_parameters_from_numpy_look_like_python_ones() -> None:
    assert repr(TrimmedMean(np.int64(2))) == "TrimmedMean(f=2)"  # type: ignore[arg-type]
    assert repr(MultiKrum(np.int32(1), np.int64(3))) == "MultiKrum(f=1, m=3)"  # type: ignore[arg-type]
    assert repr(MedianOfMeans(np.uint8(3))) == "MedianOfMeans(groups=3)"  # type: ignore[arg-type]
    clip = ClipNorm(Krum(1), norm=np.float32(2), factor=3)  # type: ignore[arg-type]
    assert repr(clip) == "ClipNorm(aggregator=Krum(f=1), norm=2.0, factor=3.0)"
    assert TrimmedMean(1) != TrimmedMean(2)
    assert Krum(1) != TrimmedMean(1)


HONEST = np.array([[0.0, 1.0], [1.0, 1.5], [3.0, 1.0], [7.0, 2.0], [2.5, 0.0], [0.5, 0.25]])


@every_rule
@pytest.mark.parametrize("size", [1e300, 1.7e308])
def test_huge_values_on_both_sides_give_a_finite_result(law: Example, size: float) -> None:
    signs = np.array([1, -1, 1, 1, -1, 1, -1, -1, 1.0])
    result = law.rule(signs[:, None] * np.array([size, 1.0, -size]))
    assert np.isfinite(result.value).all()
    assert (np.abs(result.value) <= size).all()
    assert result.weights.sum() == pytest.approx(1)


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


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, fedspan; before = set(sys.modules); import fedspan.aggregation; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {".".join(name.split(".")[:2]) for name in done.stdout.split() if name.startswith("fedspan")}
    assert packages <= {"fedspan.aggregation", "fedspan.checks", "fedspan.errors", "fedspan.linalg"}
    assert not re.search(r"\b(sklearn|pandas|rich)\b", done.stdout)

"""Every aggregation rule of the package, found by itself, against every law of ordinary values."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedspan import aggregation

from .aggregator_examples import EXAMPLES, Example, close, every_rule, quick, rules, rules_of
from .discovery import check_exported

SHAPES: list[tuple[int, ...]] = [(), (1,), (4,), (2, 3), (2, 1, 2)]


@st.composite
def several(draw: st.DrawFn, ties: bool = True, complex_too: bool = True) -> np.ndarray:
    """Draw 9 values of some shape: numbers without ties, or few small integers with many."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (9, *draw(st.sampled_from(SHAPES)))

    def part() -> np.ndarray:
        return rng.integers(-2, 3, shape).astype(float) if ties and draw(st.booleans()) else rng.normal(size=shape)

    return part() + 1j * part() if complex_too and draw(st.booleans()) else part()


counts = st.integers(1, 9)
weightings = st.one_of(st.none(), st.lists(st.sampled_from([0.25, 1.0, 2.0, 3.5]), min_size=9, max_size=9))


def used(law: Example, values: np.ndarray, count: int) -> np.ndarray:
    return values[: max(count, law.least)]


def cut(weights: list[float] | None, values: np.ndarray) -> np.ndarray | None:
    return None if weights is None else np.array(weights[: len(values)])


def close_trust(law: Example, values: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    if law.exact_ties or not np.array_equal(values, np.round(values)):
        close(a, b, 1000)


def test_every_rule_is_exported_and_every_example_is_of_its_rule() -> None:
    found = rules_of(aggregation)
    assert len(found) >= 9
    check_exported(found, aggregation)
    for name, examples in EXAMPLES.items():
        assert examples
        for law in examples:
            assert found[name] in (law.rule, type(law.rule)), f"{law} is no {name}"


@every_rule
def test_only_the_mean_believes_reported_weights(law: Example) -> None:
    believes = getattr(law.rule, "believes_reported_weights", False)  # a function does not say
    assert believes is (type(law.rule) is aggregation.Mean)


@every_rule
def test_it_is_called_with_values_and_weights(law: Example) -> None:
    values, weights = np.random.default_rng(0).normal(size=(9, 3)), np.linspace(1.0, 2.0, 9)
    named: Any = law.rule
    np.testing.assert_array_equal(named(values=values, weights=weights).value, law.rule(values, weights).value)
    np.testing.assert_array_equal(named(values=values).value, law.rule(values, None).value)


@rules(lambda law: not inspect.isfunction(law.rule))
def test_repr_is_complete_and_equality_is_by_value(law: Example) -> None:
    names = {name: getattr(aggregation, name) for name in aggregation.__all__}
    again = eval(repr(law.rule), names)
    assert again == law.rule
    assert again is not law.rule
    assert hash(again) == hash(law.rule)
    assert repr(again) == repr(law.rule)
    for field in fields(law.rule):
        assert f"{field.name}={getattr(law.rule, field.name)!r}" in repr(law.rule)


@every_rule
@quick
@given(several(), counts, weightings)
def test_the_value_and_the_trust_have_their_shapes(
    law: Example, values: np.ndarray, count: int, weights: list[float] | None
) -> None:
    values = used(law, values, count)
    result = law.rule(values, cut(weights, values))
    assert isinstance(result.value, np.ndarray)
    assert result.value.shape == values.shape[1:]
    assert result.value.dtype == (np.complex128 if np.iscomplexobj(values) else np.float64)
    assert result.weights.shape == (len(values),)
    assert result.weights.dtype == np.float64
    assert (result.weights >= 0).all()
    assert result.weights.sum() == pytest.approx(1)
    assert result.certificate is None or (type(result.certificate) is float and result.certificate >= 0)


@every_rule
@quick
@given(several(), counts, weightings, st.randoms(use_true_random=False))
def test_order_makes_no_difference(
    law: Example, values: np.ndarray, count: int, weights: list[float] | None, random: object
) -> None:
    values = used(law, values, count)
    w = cut(weights, values)
    order = np.arange(len(values))
    if law.any_order:
        random.shuffle(order)  # type: ignore[attr-defined]
    else:
        order = order[::-1] if len(order) % 3 == 0 else order  # whole groups change places
    straight, mixed = law.rule(values, w), law.rule(values[order], None if w is None else w[order])
    close(mixed.value, straight.value)
    close_trust(law, values, mixed.weights, straight.weights[order])


@rules(lambda law: law.translates)
@quick
@given(several(), counts, weightings, st.sampled_from([-3.0, 0.5, 1024.0]))
def test_a_shift_of_all_values_shifts_the_result(
    law: Example, values: np.ndarray, count: int, weights: list[float] | None, shift: float
) -> None:
    values = used(law, values, count)
    before, after = law.rule(values, cut(weights, values)), law.rule(values + shift, cut(weights, values))
    close(after.value, before.value + shift, 100)
    close_trust(law, values, after.weights, before.weights)


@rules(lambda law: law.scales)
@quick
@given(several(), counts, weightings, st.sampled_from([-1.0, 3.0, -(2.0**-30), 2.0**300, 2.0**-300]))
@example(np.arange(9.0) ** 2, 9, None, 2.0**1000)
def test_a_factor_of_all_values_is_one_of_the_result(
    law: Example, values: np.ndarray, count: int, weights: list[float] | None, factor: float
) -> None:
    values = used(law, values, count)
    before, after = law.rule(values, cut(weights, values)), law.rule(values * factor, cut(weights, values))
    close(after.value / factor, before.value)
    close_trust(law, values, after.weights, before.weights)


@every_rule
@quick
@given(several(), counts, weightings, st.sampled_from([0.1, 7.0, 5e307]))
def test_only_the_proportions_of_the_weights_count(
    law: Example, values: np.ndarray, count: int, weights: list[float] | None, factor: float
) -> None:
    values = used(law, values, count)
    given_weights = cut(weights, values)
    before = law.rule(values, given_weights)
    after = law.rule(values, factor * (np.ones(len(values)) if given_weights is None else given_weights))
    close(after.value, before.value)
    close_trust(law, values, after.weights, before.weights)


@rules(lambda law: law.in_hull)
@quick
@given(several(complex_too=False), counts, weightings)
def test_the_result_is_between_the_smallest_and_the_largest(
    law: Example, values: np.ndarray, count: int, weights: list[float] | None
) -> None:
    values = used(law, values, count)
    value = law.rule(values, cut(weights, values)).value
    assert (value >= values.min(axis=0)).all()
    assert (value <= values.max(axis=0)).all()


@every_rule
@quick
@given(several(), counts, weightings)
def test_the_input_is_not_modified_and_the_result_is_repeatable(
    law: Example, values: np.ndarray, count: int, weights: list[float] | None
) -> None:
    values = used(law, values, count)
    w = cut(weights, values)
    kept, kept_weights = values.copy(), None if w is None else w.copy()
    first = law.rule(values, w)
    np.testing.assert_array_equal(values, kept, "the values are others afterwards")
    for array in (values, w):
        if array is not None:
            array.flags.writeable = False  # as replies are
    second = law.rule(values, w)
    np.testing.assert_array_equal(first.value, second.value)
    np.testing.assert_array_equal(first.weights, second.weights)
    assert first.certificate == second.certificate
    assert not np.shares_memory(first.value, values)
    if w is not None:
        np.testing.assert_array_equal(w, kept_weights, "the weights are others afterwards")
        assert not np.shares_memory(first.weights, w)


@every_rule
@quick
@given(several(), counts, weightings)
def test_equal_values_are_returned_exactly(
    law: Example, values: np.ndarray, count: int, weights: list[float] | None
) -> None:
    same = np.repeat(values[:1], max(count, law.least), axis=0)
    result = law.rule(same, cut(weights, same))
    np.testing.assert_array_equal(result.value, values[0])
    if weights is None and law.any_order:
        close(result.weights, np.full(len(same), 1 / len(same)))


@every_rule
@quick
@given(several(complex_too=False), counts)
def test_single_precision_is_computed_in_double(law: Example, values: np.ndarray, count: int) -> None:
    single = used(law, values, count).astype(np.float32)
    result, double = law.rule(single), law.rule(single.astype(np.float64))
    assert result.value.dtype == np.float64
    np.testing.assert_array_equal(result.value, double.value)
    np.testing.assert_array_equal(result.weights, double.weights)


@every_rule
@quick
@given(several(ties=False))
def test_the_shape_of_a_value_makes_no_difference(law: Example, values: np.ndarray) -> None:
    flat = np.ascontiguousarray(values.reshape(9, -1))
    turned = np.asfortranarray(values)
    np.testing.assert_array_equal(law.rule(turned).value.reshape(-1), law.rule(flat).value)
    np.testing.assert_array_equal(law.rule(turned).weights, law.rule(flat).weights)

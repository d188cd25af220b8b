"""Every aggregation rule of the package, found by itself, against every law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedspan import aggregation
from fedspan.errors import InputError

from .aggregator_examples import ALL, EXAMPLES, Example, rules_of
from .discovery import check_exported


def rules(having: Callable[[Example], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("law", [law for law in ALL if having(law)], ids=repr)


every_rule = rules(lambda law: True)
quick = settings(max_examples=25, deadline=None)
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


def close(a: np.ndarray, b: np.ndarray, size: float = 1.0) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * size)


def close_trust(law: Example, values: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    if law.exact_ties or not np.array_equal(values, np.round(values)):
        close(a, b, 1000)


def test_every_rule_is_exported_and_every_example_is_of_its_rule() -> None:
    found = rules_of(aggregation)
    assert len(found) >= 9
    check_exported(found, aggregation)
    for name, examples in EXAMPLES.items():
        assert examples
        assert all(type(law.rule) is found[name] for law in examples)


@every_rule
def test_only_the_mean_believes_reported_weights(law: Example) -> None:
    assert law.rule.believes_reported_weights is (type(law.rule) is aggregation.Mean)


@every_rule
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
    for array in (values, w):
        if array is not None:
            array.flags.writeable = False  # as replies are
    first, second = law.rule(values, w), law.rule(values, w)
    np.testing.assert_array_equal(values, kept)
    np.testing.assert_array_equal(first.value, second.value)
    np.testing.assert_array_equal(first.weights, second.weights)
    assert first.certificate == second.certificate
    assert not np.shares_memory(first.value, values)
    if w is not None:
        np.testing.assert_array_equal(w, kept_weights)
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


@every_rule
def test_a_site_of_weight_zero_is_as_if_it_had_not_come(law: Example) -> None:
    values = np.random.default_rng(1).normal(size=(9, 4))
    values[[2, 5]] = 1e9
    there = [0, 1, 3, 4, 6, 7, 8]
    weights = np.array([1.0, 2.0, 0.0, 1.0, 1.5, 0.0, 1.0, 1.0, 3.0])
    result, without = law.rule(values, weights), law.rule(values[there], weights[there])
    np.testing.assert_array_equal(result.value, without.value)
    np.testing.assert_array_equal(result.weights[there], without.weights)
    assert (result.weights[[2, 5]] == 0).all()
    assert result.certificate == without.certificate


@every_rule
def test_values_without_entries_have_a_result(law: Example) -> None:
    result = law.rule(np.zeros((9, 0, 2)))
    assert result.value.shape == (0, 2)
    close(result.weights, np.full(9, 1 / 9))


@rules(lambda law: law.least == 1)
def test_a_single_value_is_its_own_result(law: Example) -> None:
    result = law.rule(np.array([[0.1, -7e8, 3.0]]), [0.3])
    np.testing.assert_array_equal(result.value, [0.1, -7e8, 3.0])
    assert result.weights.tolist() == [1.0]


@rules(lambda law: law.least > 1)
def test_too_few_values_are_refused(law: Example) -> None:
    law.rule(np.arange(float(law.least)))
    with pytest.raises(InputError, match=f"the {law.least - 1} values that came"):
        law.rule(np.arange(float(law.least - 1)))


@rules(lambda law: law.tolerates(9) > 0)
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(5, 11), st.sampled_from([1, 3, 6]), st.sampled_from(["same", "spread"]))
def test_bad_values_move_a_resilient_rule_no_further_than_its_bound(
    law: Example, seed: int, count: int, d: int, how: str
) -> None:
    rng = np.random.default_rng(seed)
    count = max(count, law.least)
    bad = law.tolerates(count)
    assert bad > 0
    values = rng.normal(size=(count, d))
    values /= np.maximum(1, np.linalg.norm(values, axis=1))[:, None]  # in the unit ball
    away = rng.normal(size=(1 if how == "same" else bad, d))
    where = rng.choice(count, bad, replace=False)
    values[where] = 1e8 * away / np.linalg.norm(away, axis=1)[:, None]
    assert np.linalg.norm(law.rule(values).value) <= law.bound(count, bad, d) * (1 + 1e-9)


@every_rule
@quick
@given(st.integers(0, 2**32), st.sampled_from([1e308, 1e300, 1e-300, 5e-324]), st.booleans())
def test_extreme_values_give_a_result_that_is_finite(law: Example, seed: int, size: float, all_of_them: bool) -> None:
    values = np.random.default_rng(seed).choice([-1.0, 0.0, 1.0], size=(9, 4)) * 0.75
    values[slice(None) if all_of_them else [2, 5]] *= size
    result = law.rule(values)
    assert np.isfinite(result.value).all()
    assert np.isfinite(result.weights).all()
    assert np.abs(result.value).max() <= np.abs(values).max()


@rules(lambda law: law.tolerates(9) == 0 and law.scales)
def test_one_bad_value_moves_the_others_as_far_as_it_likes(law: Example) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, size=(9, 3))
    values[4] = 1e8
    assert np.linalg.norm(law.rule(values).value) > 1e7


def test_the_battery_asks_each_law_of_most_rules() -> None:
    assert sum(law.tolerates(9) > 0 for law in ALL) >= 8
    for flag in ("any_order", "translates", "scales", "in_hull"):
        assert sum(getattr(law, flag) for law in ALL) >= len(ALL) - 3

"""Every aggregation rule of the package, found by itself, with few values, bad ones and extreme ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan.errors import InputError

from .aggregator_examples import ALL, Example, close, every_rule, quick, rules


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

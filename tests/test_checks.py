from fractions import Fraction

import numpy as np
import pytest

from fedspan.checks import json_value, one_of, real_number, whole_number
from fedspan.errors import InputError


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3)])
def test_whole_numbers_of_any_kind_become_ints(value):
    found = whole_number("k", value, 1, 3)
    assert found == 3
    assert type(found) is int


@pytest.mark.parametrize("value", [0, 4, True, 2.0, "2", None, np.nan, 10**400])
def test_what_is_no_whole_number_within_bounds_is_refused(value):
    with pytest.raises(InputError, match=r"k=.* must be a whole number between 1 and 3, as said"):
        whole_number("k", value, 1, 3, why=", as said")


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), Fraction(1, 2), np.int16(1)])
def test_numbers_of_any_kind_become_floats(value):
    found = real_number("share", value, above=0, most=1)
    assert found == float(value)
    assert type(found) is float


@pytest.mark.parametrize("value", [0, 1.5, -1, np.nan, np.inf, True, "0.5", None, 1j, 10**400, np.ones(1)])
def test_what_is_no_number_within_bounds_is_refused(value):
    with pytest.raises(InputError, match=r"share=.* must be a finite number above 0 and at most 1$"):
        real_number("share", value, above=0, most=1)


def test_each_bound_is_kept_and_said():
    assert real_number("x", 0.0, least=0, below=1) == 0.0
    for value in (-0.1, 1.0):
        with pytest.raises(InputError, match=f"x={value} must be a finite number of at least 0 and below 1$"):
            real_number("x", value, least=0, below=1)
    with pytest.raises(InputError, match=r"x=inf must be a finite number$"):
        real_number("x", np.inf)


def test_words_are_compared_as_words():
    one_of("order", "first", ("first", "last"))
    for value in ("First", None, 1, ["first"], np.array(["first"])):
        with pytest.raises(InputError, match="must be one of 'first', 'last'"):
            one_of("order", value, ("first", "last"))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, "x", "[1] [2]", b"\xff"]
)
def test_json_from_outside_is_a_value_or_a_value_error(text):
    with pytest.raises(ValueError, match=r".+"):
        json_value(text)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        json_value("[1, 2, 3, 4]", 10)

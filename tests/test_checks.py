from datetime import timedelta
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from fedspan.checks import (
    MOST_BRACKETS,
    as_table,
    dict_of,
    duration,
    first_of,
    gaps,
    held,
    json_value,
    list_of,
    one_of,
    printable,
    real_number,
    time_columns,
    whole_number,
)
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


@pytest.mark.parametrize("text", ["[" * MOST_BRACKETS + "0]", b"{" * MOST_BRACKETS + b"[]"])
def test_json_of_many_lists_is_refused_before_it_is_read(text):
    with pytest.raises(ValueError, match=f"more than {MOST_BRACKETS} lists|brackets inside"):
        json_value(text, 2**24)
    with pytest.raises(ValueError, match=f"more than {MOST_BRACKETS} lists"):
        json_value(text + text[:1] * 2, 2**24)
    assert len(json_value("[" + "0," * MOST_BRACKETS + "0]", 2**24)) == MOST_BRACKETS + 1


@pytest.mark.parametrize(("value", "seconds"), [("90s", 90.0), ("15 min", 900.0), (" 6h ", 21600.0), ("2d", 172800.0),
                                                (timedelta(minutes=1), 60.0)])  # fmt: skip
def test_durations(value, seconds):
    assert duration("every", value) == seconds


@pytest.mark.parametrize("value", [60, "0s", "-1h", "h", "1 hour", "1h30m", None, timedelta(0)])
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(InputError, match="must be a duration above 0"):
        duration("every", value)


def test_lists_and_dicts_are_taken_as_they_are():
    assert list_of("columns", np.array([1, 2]), "columns") == [1, 2]
    for value in ("age", b"age", 3, None, {"age": 1}):
        with pytest.raises(InputError, match=r"columns=.* must be a list of columns"):
            list_of("columns", value, "columns")
    assert dict_of("settings", None, "settings", ["a"]) == {}
    assert dict_of("settings", {"b": 1}, "settings") == {"b": 1}
    for value in ("age", ["age"], 3):
        with pytest.raises(InputError, match=r"settings=.* must be a dict of settings, or None"):
            dict_of("settings", value, "settings")


def test_lists_for_people():
    assert first_of("abc", 3) == "a, b, c"
    assert first_of("abcd", 3) == "a, b, c and 1 more"
    assert first_of(range(2000), 1) == "0 and 1,999 more"
    assert printable("a\nb\x1b\u202e") == "a\nb\\x1b\\u202e"
    assert gaps(np.full((2, 12), np.nan)).endswith("number 9 (2 values) and 2 more")
    assert gaps([["a"]]) == ""


def test_masked_cells_become_missing_ones():
    mask = [False, True]
    assert held("X", [1]) == [1]
    assert held("X", np.ma.masked_array([1, 2])).tolist() == [1, 2]
    assert held("X", np.ma.masked_array(["a", "b"], mask)).tolist() == ["a", None]
    assert np.isnan(held("X", np.ma.masked_array([1.0, 2.0], mask))[1])
    with pytest.raises(InputError, match=r"masked cells of the type datetime64"):
        held("X", np.ma.masked_array(np.array(["2020", "2021"], dtype="M8[Y]"), mask))


def test_what_is_no_table_is_refused():
    for value, words in ((None, "NoneType"), ("age", "str"), (pd.DataFrame(), "no columns"), ([[1j]], "complex"),
                         (pd.DataFrame([[1, 2, 3, 4]], columns=list("abab")), "two columns named 'a'")):  # fmt: skip
        with pytest.raises(InputError, match=words):
            as_table(value)
    assert time_columns(pd.DataFrame({"a": [1], "b": pd.to_datetime(["2020"]), "c": pd.to_timedelta([1])})) == [
        "'b'",
        "'c'",
    ]
    assert time_columns([[1]]) == []

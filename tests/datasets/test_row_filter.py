"""The row filter: what it keeps is what pandas keeps, and what it cannot read it says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.datasets.sources import RowFilter
from fedspan.errors import InputError

FRAME = pd.DataFrame(
    {
        "age": [17.0, 18.0, np.nan, 40.0, -3.5, 18.0],
        "count": [0, 1, 2, 3, -1, 2],
        "done": [True, False, True, True, False, False],
        "ward": pd.Series(["A", "B", None, "C", "B", ""], dtype="str"),
        "blood type": ["0", "A", "AB", "A", "0", "B"],
        "seen": pd.to_datetime(
            ["2026-01-01", "2026-02-01", None, "2026-01-31 12:00", "2025-12-31", "2026-02-01"], format="ISO8601"
        ),
        "kind": pd.Categorical(["x", "y", "x", None, "y", "x"]),
        "level": pd.Categorical([1, 2, None, 2, 1, 3]),
        "gone": [np.nan] * 6,
    }
)
NUMBERS = st.one_of(st.integers(-4, 41), st.sampled_from([17.5, -3.5, 1e3, 18.0]))
WORDS = st.sampled_from(["A", "B", "C", "", "AB", "other"])


def numbers_test(draw_column, sign, value):
    return f"{draw_column} {sign} {value}", f"{draw_column} {sign} {value}"


def texts_test(column, sign, value):
    return f"{column} {sign} '{value}'", f"{column} {sign} '{value}'"


def missing_test(column, turned):
    return f"{column} is {'not ' if turned else ''}missing", f"{column}.{'notna' if turned else 'isna'}()"


def listed_test(column, turned, values):
    return f"{column}{' not' if turned else ''} in {values!r}", f"{column}{' not' if turned else ''} in {values!r}"


SIGNS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
COLUMNS = st.sampled_from(["age", "count"])
TEXTS = st.sampled_from(["ward", "`blood type`"])
LEAVES = st.one_of(
    st.builds(numbers_test, COLUMNS, SIGNS, NUMBERS),
    st.builds(numbers_test, COLUMNS, SIGNS, COLUMNS),
    st.builds(texts_test, TEXTS, SIGNS, WORDS),
    st.builds(missing_test, st.one_of(COLUMNS, TEXTS), st.booleans()),
    st.builds(listed_test, COLUMNS, st.booleans(), st.lists(NUMBERS, min_size=1, max_size=3)),
    st.builds(listed_test, TEXTS, st.booleans(), st.lists(WORDS, min_size=1, max_size=3)),
)
TESTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda a: (f"not ({a[0]})", f"not ({a[1]})"), inner),
        st.builds(
            lambda a, word, b: (f"({a[0]}) {word} ({b[0]})", f"({a[1]}) {word} ({b[1]})"),
            inner,
            st.sampled_from(["and", "or"]),
            inner,
        ),
        st.builds(
            lambda a, b, c: (f"{a[0]} or {b[0]} and {c[0]}", f"{a[1]} or ({b[1]} and {c[1]})"), LEAVES, LEAVES, LEAVES
        ),
    ),
    max_leaves=6,
)


@given(TESTS)
def test_it_keeps_what_pandas_keeps(pair):
    ours, theirs = pair
    expected = FRAME.eval(theirs, engine="python").to_numpy(dtype=bool)
    np.testing.assert_array_equal(RowFilter(ours)(FRAME), expected)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("done", None),
        ("done == true", [0, 2, 3]),
        ("not done == true", [1, 4, 5]),
        ("count == true", [1]),
        ("seen >= '2026-01-31 12:00'", [1, 3, 5]),
        ("seen is missing", [2]),
        ("seen == '2026-02-01'", [1, 5]),
        ("kind == 'x'", [0, 2, 5]),
        ("kind in ['x', 'y']", [0, 1, 2, 4, 5]),
        ("level >= 2", [1, 3, 5]),
        ("gone == 3 or gone == 'x' or gone < 1", []),
        ("gone != 3", [0, 1, 2, 3, 4, 5]),
        ("age = 18", [1, 5]),
        ("18 < age", [3]),
        ('age > -4 and not age > 18 or ward == "C"', [0, 1, 3, 4, 5]),
        ("not (age < 18)", [1, 2, 3, 5]),
        ("count >= 99999999999999999999999", []),
    ],
)
def test_by_hand(text, kept):
    if kept is None:
        with pytest.raises(InputError, match="a comparison such as"):
            RowFilter(text)
    else:
        assert np.flatnonzero(RowFilter(text)(FRAME)).tolist() == kept


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at character 1 it ends instead of a column or a value"),
        ("age >", "at character 6 it ends instead of a value"),
        ("age > 3 dose", "at character 9 there is 'dose' instead of 'and', 'or' or the end"),
        ("1 < age < 3", "there is '<' instead of 'and', 'or' or the end"),
        ("(age > 3", r"it ends instead of '\)'"),
        ("age in [1, ]", "there is ']' instead of a value"),
        ("age in 3", r"there is '3' instead of '\['"),
        ("age is 3", "there is '3' instead of 'missing'"),
        ("age not 3", "there is '3' instead of 'in'"),
        ("1 == 2", "name a column"),
        ("3 in [1]", "before 'in' stands 3, not a column"),
        ("__import__('os')", r"there is '\(' instead of a comparison"),
        ("age.sum() > 3", r"'\.' at character 4 is no word"),
        ("age > 3; drop", "';' at character 8 is no word"),
        ("@x > 3", "'@' at character 1 is no word"),
        ("age > 'open", '"\'" at character 7 is no word'),
        ("(" * 60 + "age > 3" + ")" * 60, "nested more than 50 deep"),
        ("age > 3 and " * 1000 + "age > 3", "has 12,007 characters"),
    ],
)
def test_what_cannot_be_read_is_said(text, said):
    with pytest.raises(InputError, match=said):
        RowFilter(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age == 'A'", "column 'age', which holds numbers, with the text 'A'"),
        ("ward > 3", "column 'ward', which holds texts, with the number 3"),
        ("ward == age", "column 'ward', which holds texts, with column 'age', which holds numbers"),
        ("seen > 3", "column 'seen', which holds times, with the number 3"),
        ("seen > 'soon'", "compares times with 'soon', which is none"),
        ("seen > ward", "compares column 'ward' with times, and some of its cells"),
    ],
)
def test_kinds_that_cannot_be_compared_are_said(text, said):
    with pytest.raises(InputError, match=said):
        RowFilter(text)(FRAME)


def test_it_knows_its_columns():
    assert RowFilter("a > 1 and (`b c` == 'x' or not a < d)").columns == ("a", "b c", "d")
    assert repr(RowFilter("a > 1")) == "RowFilter('a > 1')"

"""The row filter: SQL conditions keep what pandas keeps, and can do nothing else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedspan.datasets.sources import RowFilter
from fedspan.errors import InputError

FRAME = pd.DataFrame(
    {
        "row": range(6),
        "age": [17.0, 18.0, None, 40.0, -3.5, 18.0],
        "count": [0, 1, 2, 3, -1, 2],
        "done": [True, False, True, True, False, False],
        "ward": ["A", "B", None, "C", "B", ""],
        "blood type": ["0", "A", "AB", "A", "0", "B"],
        "seen": pd.to_datetime(
            ["2026-01-01", "2026-02-01", None, "2026-01-31 12:00", "2025-12-31", "2026-02-01"], format="ISO8601"
        ),
    }
)
TABLE = pa.Table.from_pandas(FRAME)


def kept(text):
    return RowFilter(text).kept(TABLE, "the table").column("row").to_pylist()


COLUMNS, SIGNS = st.sampled_from(["age", "count"]), st.sampled_from(["=", "<", "<=", ">", ">="])
LEAVES = st.tuples(COLUMNS, SIGNS, st.one_of(st.integers(-4, 41), st.sampled_from([17.5, -3.5, 1e3])))


@given(LEAVES, LEAVES, st.sampled_from(["and", "or"]))
def test_it_keeps_what_pandas_keeps(first, second, word):
    """Comparisons with a missing cell are unknown in SQL and false in pandas: the row is left out by both."""
    ours = f" {word} ".join(f"({column} {sign} {value})" for column, sign, value in (first, second))
    expected = np.flatnonzero(FRAME.eval(ours.replace(" = ", " == "), engine="python"))
    assert kept(ours) == expected.tolist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("done", [0, 2, 3]),
        ("not done", [1, 4, 5]),
        ("seen >= '2026-01-31 12:00'", [1, 3, 5]),
        ("seen is null", [2]),
        ("ward is not null and ward <> ''", [0, 1, 3, 4]),
        ("ward in ('A', 'C') or age > 18", [0, 3]),
        ("age = 18", [1, 5]),
        ("not (age < 18)", [1, 3, 5]),
        ("\"blood type\" like 'A%'", [1, 2, 3]),
        ("count % 2 = 0 and abs(age) < 20", [0, 5]),
        ("age between 17 and 18 -- a comment", [0, 1, 5]),
    ],
)
def test_conditions_by_hand(text, rows):
    assert kept(text) == rows


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has 0 characters"),
        ("age > 1 or " * 1000 + "age > 3", "has 11,007 characters"),
        ("age >", "is no SQL condition"),
        ("age > 3; drop table rows", "is no SQL condition"),
        ("1 = 1", "names no column"),
        ("age > (select max(age) from rows)", "without a SELECT"),
        ("exists (select * from '/etc/passwd')", "without a SELECT"),
        ("age > 3) union (select * from rows", "must be one condition|is no SQL condition"),
        ("age > 3); select (1", "must be one condition|is no SQL condition"),
    ],
)
def test_all_but_one_condition_is_refused(text, problem):
    with pytest.raises(InputError, match=problem):
        RowFilter(text)


@pytest.mark.parametrize(
    "text", ["ward > 3", "cast(ward as integer) = 1", "gone > 1", "read_text('/etc/passwd') = ward"]
)
def test_conditions_that_do_not_fit_the_table_are_refused_without_a_value(text):
    with pytest.raises(InputError, match="can't be used for the table") as caught:
        kept(text)
    assert "'A'" not in str(caught.value).replace(text, "")


def test_it_knows_its_columns():
    assert RowFilter("a > 1 and (\"b c\" = 'x' or not a < d)").columns == ("a", "b c", "d")
    assert repr(RowFilter("a > 1")) == "RowFilter('a > 1')"


def test_durations_stay_durations():
    table = pa.table({"took": pa.array([1, 2, None], pa.duration("us")), "n": [1, 2, 3]})
    kept = RowFilter("n > 1").kept(table, "demo")
    assert kept.schema == table.schema
    assert kept.to_pylist() == table.to_pylist()[1:]

"""Cells of mixed tables: what is a number, a name, or missing, whatever the column is stored as."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedspan as fs
from fedspan.errors import InputError
from fedspan.gateway.cell_text import number
from fedspan.tables.parts.cells import BLOCK_CELLS, name, names, number_blocks, read, runs, signed_log, tables


def as_numbers(cells):
    return read(pd.DataFrame({"a": cells})).values[:, 0]


NUMBERS = {
    "12": 12.0,
    " 12 ": 12.0,
    "-1.5e3": -1500.0,
    "+.5": 0.5,
    "5.": 5.0,
    "0x1F": 31.0,
    "TRUE": 1.0,
    "false": 0.0,
    "1e70": 1e70,
}
NO_NUMBERS = ["tcp", "192.168.1.1", "1,234", "1_000", "12 34", "0x", "e5", "\u0661\u0662"]
MISSING = ["", " ", "-", "--", "?", "NA", "n/a", "NaN", "null", "<NA>", "NaT", "inf", "-Infinity"]
MISSING += ["1e71", "-" + "9" * 400]  # too large to be measured


def test_text_that_reads_as_a_number():
    np.testing.assert_array_equal(as_numbers(list(NUMBERS)), list(NUMBERS.values()))
    assert np.isnan(as_numbers(NO_NUMBERS)).all()
    assert np.isnan(as_numbers(MISSING)).all()


@pytest.mark.parametrize("text", ["1" * 2**18 + "x", "1" * 2**17 + " " * 2**17 + "x", "1." + "1" * 2**18 + "e"])
def test_a_cell_of_many_digits_that_is_no_number(text):
    """In the square of its length it would stop a gateway for hours."""
    assert np.isnan(number(text))
    assert name(text) == " ".join(text.split())


def test_missing_cells_are_distinguished_from_text():
    table = pd.DataFrame(
        {"a": [*MISSING, "tcp", "5"], "b": [np.nan, None, pd.NA, pd.NaT, np.inf, *["x"] * (len(MISSING) - 3)]}
    )
    assert read(table).missing.tolist() == [len(MISSING), 5]
    assert {name(text) for text in MISSING} == {""}


ODD = [3, 2.5, True, np.float32(0.5), np.int64(7), decimal.Decimal("1.25"), b"4", "tcp", None, np.nan, {"a": 1}]


def test_objects_of_any_kind_are_read():
    expected = [3.0, 2.5, 1.0, 0.5, 7.0, 1.25, 4.0, np.nan, np.nan, np.nan, np.nan]
    np.testing.assert_array_equal(as_numbers(pd.Series(ODD, dtype=object)), expected)
    found, codes = names(pd.Series(ODD, dtype=object))
    assert [found[code] for code in codes] == [
        *("3", "2.5", "True", "0.5", "7", "1.25", "4", "tcp", "", "", "{'a': 1}")
    ]


@pytest.mark.parametrize(
    "column",
    [
        np.array([1, 0, 3], dtype=np.uint8),
        np.array([1, 0, 3], dtype=np.float32),
        np.array(["1", "0", "3.0"]),
        np.array([b"1", b"0", b"3"]),
        pd.Series([1, 0, 3], dtype="Int64"),
        pd.Series([1, 0, 3], dtype="category"),
        pd.Series(["1", "0", "3"], dtype="category"),
        pd.Series(["1", "0", "3"], dtype="string"),
        pd.Series([True, 0, 3.0], dtype=object),
        pd.to_datetime(pd.Series([1, 0, 3]), unit="s"),
        pd.to_datetime(pd.Series([1, 0, 3]), unit="s", utc=True),
        pd.to_timedelta(pd.Series([1, 0, 3]), unit="s"),
    ],
    ids=lambda column: str(column.dtype),
)
def test_a_column_is_the_same_numbers_however_it_is_stored(column):
    rows = column[:, None] if isinstance(column, np.ndarray) else pd.DataFrame({"a": column})
    found = read(rows)
    np.testing.assert_array_equal(found.values[:, 0], [1.0, 0.0, 3.0])
    assert found.missing.tolist() == [0]


def test_gaps_of_every_type_are_missing():
    frame = pd.DataFrame(
        {
            "nullable": pd.array([1, None], dtype="Int64"),
            "date": pd.to_datetime(pd.Series([1, None]), unit="s"),
            "zoned": pd.to_datetime(pd.Series([1, None]), unit="s", utc=True),
            "category": pd.Categorical(["1", None]),
            "string": pd.array(["1", None], dtype="string"),
            "bool": pd.array([True, None], dtype="boolean"),
            "float": [1.0, np.nan],
            "object": pd.Series([datetime.date, None], dtype=object).map(lambda cell: 1 if cell else cell),
        }
    )
    found = read(frame)
    np.testing.assert_array_equal(found.values, [[1.0] * 8, [np.nan] * 8])
    assert found.missing.tolist() == [1] * 8
    for column in frame:
        texts, codes = names(frame[column])
        assert [texts[code] for code in codes] == ["True" if column == "bool" else "1", ""], column


def test_whole_numbers_are_one_name_however_they_are_written():
    for column in ([80, 443], [80.0, 443.0], ["80", "443"], ["80.0", "443.00"], [np.uint64(80), "443"]):
        texts, codes = names(pd.Series(column))
        assert [texts[code] for code in codes] == ["80", "443"]
    big = np.array([2**64 - 1, 2**64 - 2], dtype=np.uint64)
    assert names(big)[0] == ["18446744073709551614", "18446744073709551615"]  # as floats they would be one
    assert names(np.array([-0.0, 0.0, 1e300]))[0] == ["0", ""]


def test_names_are_tidy_text():
    assert name("  a\t b\n") == "a b"
    assert name("\ud800x") == "?x"
    assert name("TRUE") == "True"
    texts, codes = names(np.array(["a", " a", "a "]))
    assert texts == ["a"]
    assert codes.tolist() == [0, 0, 0]


def test_complex_columns_are_refused():
    with pytest.raises(InputError, match="complex128"):
        read(np.array([[1j]]))


def test_nothing_is_written_to_the_table():
    X = np.array([[1.0, 1e80], [np.nan, 2.0]])
    X.flags.writeable = False
    frame = pd.DataFrame(X.copy())
    np.testing.assert_array_equal(read(X).values, [[1.0, np.nan], [np.nan, 2.0]])
    read(frame).values[:] = 7.0
    np.testing.assert_array_equal(frame.to_numpy(), X)


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from([*NUMBERS, *NO_NUMBERS, *MISSING]),
)


@given(st.lists(CELLS, min_size=1, max_size=12))
def test_a_cell_is_read_alone_as_among_others(cells):
    """What a cell is must not depend on its column's type, which other cells decide, nor on the block it is in."""
    whole = np.empty((len(cells), 1), dtype=object)
    whole[:, 0] = cells
    found, (texts, codes) = read(whole), names(whole[:, 0])
    alone = [read(whole[i : i + 1]) for i in range(len(cells))]
    np.testing.assert_array_equal(found.values, np.concatenate([part.values for part in alone]))
    assert found.missing == sum(part.missing for part in alone)
    assert np.all(np.isnan(found.values) | (np.abs(found.values) <= 1e70))
    assert len(set(texts)) == len(texts)
    for i, code in enumerate(codes):
        assert names(whole[i : i + 1, 0])[0] == [texts[code]]


def test_large_tables_come_in_blocks_and_small_ones_are_kept():
    X = np.arange(2.0 * BLOCK_CELLS).reshape(-1, 4)
    for data in (X, pd.DataFrame(X).assign(text="7")):
        site = fs.Site("a", data)
        parts = [block.values[:, :4] for block in number_blocks(site)]
        assert len(parts) > 1
        np.testing.assert_array_equal(np.concatenate(parts), X)
        assert sum(map(len, tables(site))) == len(X)
    small = fs.Site("b", X[:10])
    assert next(number_blocks(small)) is next(number_blocks(small))


def test_signed_log_is_odd_and_exact_near_zero():
    np.testing.assert_allclose(signed_log(np.array([np.e - 1, -1e-20, 0.0, 1 - np.e])), [1.0, -1e-20, 0.0, -1.0])


@given(st.lists(st.integers(0, 30), unique=True).map(sorted))
def test_runs_cover_all_places_in_order(places):
    found = [at + i for start, stop, at in runs(np.array(places, dtype=np.intp)) for i in range(stop - start)]
    assert found == places


def test_a_cell_is_one_number_whatever_stands_beside_it():
    """Single precision beside a gap was read from its text: one more row then moved all others to another bin."""
    for kind in (np.float16, np.float32, np.longdouble, np.float64, np.bool_, np.uint64):
        cells = np.array([kind(1) / kind(10), True, 2**63 + 1, "x", None], dtype=object)
        alone = [read(cells[:3, None]).values[i, 0] for i in range(3)]
        assert alone == [read(cells[:, None]).values[i, 0] for i in range(3)]

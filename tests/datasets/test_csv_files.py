"""CSV files: a column is what all of its cells are, under the name that the header gives it, or the file is refused."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

from fedspan.datasets.sources import Dialect, FileSource, missing_words, read_as_shown, read_table
from fedspan.datasets.sources.csv_dialect import detected
from fedspan.errors import InputError


def written(tmp_path, text, name="rows.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("age,patient\n20,7000\n21,7001,\n", r"rows.csv: line 3 has 3 fields, and the header names 2 columns"),
        ("age,patient\n" + "20,7000,\n" * 5, "line 2 has 3 fields"),
        ("age,dose\n" + "7000,20,1.5\n" * 5, "line 2 has 3 fields"),
        ("a,b\n1,2\n3\n", "line 3 has 1 fields"),
        ("a;b\n1;2\n", "state what separates its fields"),
        ("a\tb\n1\t2\n", "state what separates its fields"),
        ("a,b,\n1,2,\n3,4,7001\n", "has values in column 3, which has no name"),
        ("a,,b\n1,7001,2\n", "has values in column 2, which has no name"),
        ("a,b,a\n1,2,3\n", "two columns named 'a'"),
        ("", "is empty: its first line must name the columns"),
        ("\n\n", "is empty"),
    ],
)
def test_lines_that_do_not_fit_the_header_are_refused_without_a_value(tmp_path, text, problem):
    with pytest.raises(InputError, match=problem) as caught:
        read_table(written(tmp_path, text))
    assert "7000" not in str(caught.value)
    assert "7001" not in str(caught.value)


def test_columns_without_a_name_are_left_out(tmp_path):
    assert read_table(written(tmp_path, "a,b,\n1,2,\n3,4,\n")).to_dict("list") == {"a": [1, 3], "b": [2, 4]}
    assert read_table(written(tmp_path, ",a,b\n0,1,2\n1,3,4\n")).to_dict("list") == {"a": [1, 3], "b": [2, 4]}


def test_blank_lines_marks_of_unicode_and_line_ends_change_nothing(tmp_path):
    for text in ("\ufeffa,b\n1,x\n\n  \n2,y\n", "a,b\r\n1,x\r\n2,y\r\n", '"a","b"\n1,"x"\n2,y'):
        frame = read_table(written(tmp_path, text))
        assert frame.to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}


@pytest.mark.parametrize("data", [b"a,b\n\xff\xfe,1\n", b"a,b\n" + b"x,1\n" * 30_000 + b"\xff,1\n", b"a\xff,b\n1,2\n"])
def test_a_file_that_is_no_text_is_said(tmp_path, data):
    path = tmp_path / "rows.csv"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"cannot be read as \.csv: it is not UTF-8 text"):
        read_table(path)


CELLS = st.sampled_from(["1", "-3", "2.5", "1e3", "true", "false", "x", "", "NA", "None", "inf", "1" + "0" * 30])


@settings(max_examples=60, deadline=None)
@given(cells=st.lists(CELLS, min_size=1, max_size=12))
def test_a_column_is_what_all_of_its_cells_are_wherever_they_are(tmp_path_factory, cells):
    """In front of the cells stand so many numbers that the reader has settled on a type before it sees the cells."""
    folder = tmp_path_factory.mktemp("csv")
    column = read_table(written(folder, "a,b\n" + "".join(f"{cell},1\n" for cell in cells)))["a"]
    present = [cell for cell in cells if cell not in ("", "NA", "None")]
    numbers = all(cell not in ("true", "false", "x") for cell in present)
    if numbers:
        expected = [float("nan") if cell not in present else float(cell) for cell in cells]
        np.testing.assert_array_equal(column.to_numpy(dtype=float), expected)
    elif all(cell in ("true", "false") for cell in present):
        expected = [float("nan") if cell not in present else float(cell == "true") for cell in cells]
        np.testing.assert_array_equal(column.to_numpy(dtype=float), expected)
    else:  # of text, only the empty field is missing, and all else is as it stands
        assert column.isna().tolist() == [cell == "" for cell in cells]
        assert column.dropna().tolist() == [cell for cell in cells if cell]


@pytest.mark.parametrize("last", ["n/b", "2.5", "", "true"])
def test_a_late_cell_decides_the_whole_column(tmp_path, last):
    """The reader guesses the type from the first megabyte; the last cell of a longer file contradicts it."""
    many = 200_000
    column = read_table(written(tmp_path, "a,b\n" + "00017,1\n" * many + f"{last},2\n"))["a"]
    if last in ("n/b", "true"):
        assert column.iloc[0] == "00017"
        assert column.iloc[-1] == last
    else:
        assert column.iloc[0] == 17
        assert column.iloc[-1] == 2.5 or (not last and np.isnan(column.iloc[-1]))


def test_what_is_missing(tmp_path):
    path = written(tmp_path, "n,t,b\n1,NA,true\nNA,None,null\n?,x,\n,,false\n")
    frame = read_table(path, Dialect(missing=("?",)))
    np.testing.assert_array_equal(frame["n"], [1, np.nan, np.nan, np.nan])
    assert frame["t"].fillna("-").tolist() == ["NA", "None", "x", "-"]
    np.testing.assert_array_equal(frame["b"].to_numpy(dtype=float), [1, np.nan, np.nan, 0])
    assert read_table(path, Dialect(missing=("?", "NA")))["t"].fillna("-").tolist() == ["-", "None", "x", "-"]
    assert read_table(path)["n"].tolist()[:3] == ["1", "NA", "?"]  # one word makes it text, as it stands


@pytest.mark.parametrize(
    ("dialect", "encoding"),
    [(Dialect(";", ",", "cp1252"), "cp1252"), (Dialect("\t", ".", "utf-16"), "utf-16"), (Dialect("|"), "utf-8")],
)
def test_dialects_are_detected_and_read(tmp_path, dialect, encoding):
    rows = [["Größe", "Wert"], ["klein", "1.5"], ["groß", "-20.25"], ["mittel", "1e3"]]
    text = "\n".join(dialect.separator.join(row) for row in rows).replace(".", dialect.decimal)
    path = tmp_path / "rows.csv"
    path.write_bytes((text + "\n").encode(encoding))
    assert detected(path) == dialect
    frame = read_table(path, dialect)
    assert frame["Größe"].tolist() == ["klein", "groß", "mittel"]
    assert frame["Wert"].tolist() == [1.5, -20.25, 1000.0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"separator": ";;"}, "must be one character"),
        ({"decimal": "x"}, "must be '.' or ','"),
        ({"separator": ",", "decimal": ","}, "they must differ"),
        ({"encoding": "klingon"}, "is not known"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands are both ','"),
        ({"thousands": "x"}, "an apostrophe or a space"),
    ],
)
def test_impossible_dialects_are_refused(options, problem):
    with pytest.raises(InputError, match=problem):
        Dialect(**options)


@pytest.mark.parametrize(
    ("text", "thousands", "numbers"),
    [
        ("n;x\n1.250;0,5\n999;1,5\n12.000;-3,25\n", None, [1250, 999, 12000]),  # never 1.25 beside 999
        ("n;x\n1.250,75;0,5\n;1,5\n-1.000.000;2\n", None, [1250.75, np.nan, -1e6]),
        ('n,x\n"1,250",0.5\n999,1.5\n"2,000,000",2\n', ",", [1250, 999, 2e6]),
        ('n,x\n"1,250.5",0.5\nNA,1.5\n7.25,2\n', ",", [1250.5, np.nan, 7.25]),
        ("n;x\n1'250.5;0.5\n12;1.5\n1'000;2.5\n", "'", [1250.5, 12, 1000]),
        ("n;x\n1\u00a0250,5;0,5\n12;1,5\n1\u00a0000;2,5\n", "\u00a0", [1250.5, 12, 1000]),
        ("n;x\n12.5;0,5\n1.25;1,5\n3;2,5\n", None, [12.5, 1.25, 3]),  # no groups of three digits: decimals
        ("n;x\n36.125;0.5\n37.250;1.5\n1.125;2.5\n", None, [36.125, 37.25, 1.125]),
    ],
)
def test_thousands_are_detected_and_read(tmp_path, text, thousands, numbers):
    path = written(tmp_path, text)
    found = detected(path)
    assert found.thousands == thousands
    np.testing.assert_array_equal(read_table(path, found)["n"].to_numpy(dtype=float), numbers)


def test_percent_signs_behind_numbers_are_read_as_numbers(tmp_path):
    path = written(tmp_path, "n;w;x\n97 %;a%;1,5%\nNA;b;-2,25 %\n8%;c;.\n")
    frame = read_table(path, Dialect(";", ",", missing=(".",)))
    np.testing.assert_array_equal(frame["n"], [97, np.nan, 8])
    np.testing.assert_array_equal(frame["x"], [1.5, -2.25, np.nan])
    assert frame["w"].tolist() == ["a%", "b", "c"]


def test_titles_above_the_names_are_skipped(tmp_path):
    for above in ("Report 2024\n", "# made by device 7\n\n# twice\n", '"two\nlines"\n'):
        path = written(tmp_path, above + "a;b\n1;x\n2;y\n")
        assert detected(path).separator == ";"
        assert read_table(path, Dialect(";")).to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}
    with pytest.raises(InputError, match="line 4 has 3 fields"):
        read_table(written(tmp_path, "Report\na,b\n1,2\n1,2,3\n"))
    assert read_table(written(tmp_path, "a\n1\n2\n")).to_dict("list") == {"a": [1, 2]}
    with pytest.raises(InputError, match="line 2 has 3 fields, and the header names 1 columns"):
        read_table(written(tmp_path, "a b c\n1,x,3\n4,y,6\n"))  # values are no names


def test_a_name_of_two_lines(tmp_path):
    assert list(read_table(written(tmp_path, '"weight\n(kg)",b\n1,2\n'))) == ["weight\n(kg)", "b"]


def test_a_file_is_read_once(tmp_path, monkeypatch):
    """A late word or decimal makes no second pass over the file."""
    reads = []
    for name in ("read_csv", "open_csv"):
        read = getattr(csv, name)
        counted = lambda *given, read=read, **named: reads.append(1) or read(*given, **named)  # noqa: E731
        monkeypatch.setattr(csv, name, counted)
    read_table(written(tmp_path, "a,b,c\n" + "1,2,3\n" * 300_000 + "1.5,n/b,NA\n"))
    assert len(reads) == 1


def test_points_in_two_meanings_stay_text(tmp_path):
    path = written(tmp_path, "n;x\n1.250;0,5\n1,5;1,5\n1.5;2,5\n")
    assert read_table(path, Dialect(";", ","))["n"].tolist() == ["1.250", "1,5", "1.5"]


def test_a_late_thousand_changes_no_earlier_number(tmp_path):
    path = written(tmp_path, "n;x\n" + "999;1,5\n" * 30_000 + "1.250;1,5\n")
    column = read_table(path, Dialect(";", ","))["n"]
    assert column.iloc[0] == 999
    assert column.iloc[-1] == 1250


def test_csv_and_parquet_of_one_table_are_the_same(tmp_path):
    frame = pd.DataFrame({"t": ["NA", "None", "null", "nan", "n/a", "Smith"], "v": [1.5, None, 2, 3, 4, 5]})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "rows.csv"), read_table(tmp_path / "rows.parquet"))


def test_missing_words_are_for_text_files(tmp_path):
    with pytest.raises(InputError, match=r"missing are for \.csv files"):
        FileSource(tmp_path / "rows.parquet", Dialect(missing=("NA",)))


def test_words_that_were_taken_as_missing_are_counted(tmp_path):
    text = "age,dose,ward\n20,NA,none\n?,n/a,B\n,NA,?\n30,1.5,NA\n"
    frame = read_table(written(tmp_path, text), Dialect(missing=("?",)))
    assert missing_words(frame) == {"age": {"?": 1}, "dose": {"NA": 2, "n/a": 1}, "ward": {"?": 1}}
    assert frame["ward"].fillna("").tolist() == ["none", "B", "", "NA"]  # in columns of text, the usual words are text
    frame = read_table(written(tmp_path, "a,b\n" + "1,x\n" * 5000 + "NA,y\n"))
    assert missing_words(frame) == {"a": {"NA": 1}}
    assert frame["a"].isna().sum() == 1


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("a,b\n1,x\n2.5,y\n", Dialect()),
        ("a,b\n" + "1,2\n" * 2000 + "NA,none\n", Dialect()),
        ("a;b\n1,5;x\n-2;\n;1,5\n", Dialect(";", ",")),
        ("a,b\ntrue,7\nfalse,\n", Dialect()),
        ("a,b\n1,2020-01-01\n?,word\n", Dialect(missing=("?",))),
        ("a;b\n1;-9\n2,5;3\n1.000;-9\n", Dialect(";", ",", missing=("-9",))),
    ],
)
def test_what_the_first_rows_show_and_what_all_cells_settle_are_the_same(tmp_path, monkeypatch, text, dialect):
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    shown = read_table(path, dialect)
    for rows in (1, 0):  # with no row that shows numbers, whole columns are settled
        monkeypatch.setattr("fedspan.datasets.sources.csv_columns._FIRST_ROWS", 1)
        monkeypatch.setattr("fedspan.datasets.sources.csv_columns._FIRST_LOOK", rows)
        settled = read_table(path, dialect)
        pd.testing.assert_frame_equal(shown, settled)
        assert missing_words(shown) == missing_words(settled)


@pytest.mark.parametrize(
    ("first", "late", "kind"),
    [("1", "2.5", "f"), ("1", "-0", "i"), ("1.5", "NA", "f"), ("1.5", "x", "O"), ("1", "97 %", "i"), ("1.5", "2", "f")],
)
def test_a_late_block_decides_as_an_early_cell_does(tmp_path, first, late, kind):
    """The columns beside one that a later block contradicts stay what they are, bit by bit."""
    rows = [f"{first},{number / 7},7" for number in range(150_000)]
    path = written(tmp_path, "a,b,c\n" + "\n".join([*rows, f"{late},-0.5,7"]))
    early = written(tmp_path, "a,b,c\n" + "\n".join([f"{late},-0.5,7", *rows]), "early.csv")
    found, expected = read_table(path), read_table(early)
    assert (found["a"].dtype.kind if kind != "O" else "O") == kind
    pd.testing.assert_frame_equal(
        found, pd.concat([expected[1:], expected[:1]], ignore_index=True).astype(found.dtypes), check_exact=True
    )
    assert missing_words(found) == missing_words(expected)


CUT = gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:30]


@pytest.mark.parametrize("data", [b"a,b\n1,2\n", CUT, b"\x1f\x8b\x08" + bytes(99)], ids=["plain", "cut", "damaged"])
def test_a_file_that_is_no_gzip_file_is_refused(tmp_path, data):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(data)
    with pytest.raises(InputError, match="export it again"):
        read_as_shown(path)


def test_a_long_file_with_cells_of_two_lines_is_read(tmp_path):
    text = "".join(f'{number},"one\ntwo, {"x" * (number % 31)}",{number / 7}\n' for number in range(250_000))
    frame = read_table(written(tmp_path, "a,b,c\n" + text))
    assert frame["b"].iloc[-1].startswith("one\ntwo, xx")
    np.testing.assert_array_equal(frame["c"], np.arange(250_000) / 7)


def test_a_first_line_longer_than_the_first_look(tmp_path):
    names = [f"{'a long name ' * 100}{i}" for i in range(200)]
    frame = read_table(written(tmp_path, ",".join(names) + "\n" + ",".join(["1"] * 200) + "\n"))
    assert list(frame.columns) == names


def test_a_wide_table_is_built_once(tmp_path, monkeypatch):
    """Columns are not replaced one by one: that takes time by the square of their number."""
    built = []
    made = pa.table
    monkeypatch.setattr(pa, "table", lambda *given, **named: built.append(1) or made(*given, **named))
    names = [f"c{i}" for i in range(500)]
    frame = read_table(written(tmp_path, ",".join(names) + "\n" + ",".join(["1.5"] * 500) + "\n"))
    assert list(frame.columns) == names
    assert (frame.to_numpy() == 1.5).all()
    assert len(built) < 5


@pytest.mark.parametrize("first", ["sep=;\r\n", '"sep=;"\r\n', "\ufeffsep=;\n", "SEP=;\n"])
def test_the_line_that_states_the_separator_is_no_row(tmp_path, first):
    path = written(tmp_path, f'{first}a;b\n1,5;"x\ny"\n2,5;z\n')
    assert detected(path) == Dialect(";", ",")
    frame = read_table(path, detected(path))
    assert frame["a"].tolist() == [1.5, 2.5]
    assert frame["b"].tolist() == ["x\ny", "z"]


@pytest.mark.parametrize("rows", [0, 3, 5000])
def test_empty_rows_at_the_end_of_an_export_are_no_rows(tmp_path, rows):
    text = "a;b;c\r\n1;x;\r\n;;\r\n2;;\r\n" + ";;\r\n" * rows
    for end in (text, text.rstrip("\r\n"), text + " \r\n"):
        frame = read_table(written(tmp_path, end), Dialect(";"))
        assert frame["a"].fillna(0).tolist() == [1, 0, 2]  # one among others stays: it may stand for something


def test_a_file_shows_its_own_dialect_where_none_is_stated(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("Größe;b\n1,5;x\n2,5;y\n", encoding="cp1252")
    assert read_as_shown(path)["Größe"].tolist() == [1.5, 2.5]


def test_many_rows_are_converted_by_column_at_a_time_as_few_are(tmp_path, monkeypatch):
    path = written(tmp_path, "a,b,c\n" + "1.5,x,7\n" * 20_000 + "NA,y,?\n")
    dialect = Dialect(missing=("?",))
    at_a_time = read_table(path, dialect)
    monkeypatch.setattr("fedspan.datasets.sources.csv_table._LONG", 10**9)
    pd.testing.assert_frame_equal(at_a_time, read_table(path, dialect))
    assert missing_words(at_a_time) == {"a": {"NA": 1}, "c": {"?": 1}}


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_the_first_letter_that_is_not_ascii_shows_the_encoding_wherever_it_is(tmp_path, encoding):
    path = tmp_path / "rows.csv"
    path.write_text("a;b\n" + "1;x\n" * 40_000 + "2;ä\n", encoding=encoding)
    assert detected(path).encoding == encoding
    assert read_as_shown(path)["b"].iloc[-1] == "ä"


def test_a_mark_in_a_word_for_a_missing_cell_makes_no_thousands(tmp_path):
    path = written(tmp_path, "a\nn.v.\n1,5\n2,5e3\n")
    frame = read_table(path, Dialect(";", ",", missing=("n.v.",)))
    assert frame["a"].tolist()[1:] == [1.5, 2500.0]

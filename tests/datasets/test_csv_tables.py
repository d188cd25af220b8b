"""CSV files: a column is what all of its cells are, under the name that the header gives it, or the file is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan.datasets.sources import FileSource, RowFilter, read_table
from fedspan.errors import InputError


def written(tmp_path, text, name="rows.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age,patient\n20,7000\n21,7001,\n", r"rows.csv: line 3 has 3 fields, and the header names 2 columns"),
        ("age,patient\n" + "20,7000,\n" * 5, "line 2 has 3 fields"),
        ("age,dose\n" + "7000,20,1.5\n" * 5, "line 2 has 3 fields"),
        ("a,b\n1,2\n3\n", "line 3 has 1 fields"),
        ('a,b\n"x\ny",2\n3,4,5\n', "line 4 has 3 fields"),  # a cell of two lines
        ("a;b\n1;2\n", "names one column with ';' in it: fields must be parted by commas"),
        ("a\tb\n1\t2\n", "fields must be parted by commas"),
        ("a,b,\n1,2,\n3,4,7\n", "line 3 has something in column 3, which has no name"),
        ("a,,b\n1,6,2\n", "line 2 has something in column 2, which has no name"),
        ("a,b,a\n1,2,3\n", "two columns named 'a'"),
        ("", "is empty: its first line must name the columns"),
        ("\n\n", "is empty"),
    ],
)
def test_lines_that_do_not_fit_the_header_are_refused_without_a_value(tmp_path, text, said):
    with pytest.raises(InputError, match=said) as caught:
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


def test_a_file_that_is_no_text_is_said(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(InputError, match=r"cannot be read as \.csv: it is not UTF-8 text"):
        read_table(path)


WHERE = ["c != 'X1'", "c == '00005'", "c in [5]", "c > 4", "c is missing", "d == true", "e >= 2"]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("last", ["X1", "7", "0.5", "", "NA", "1" + "0" * 30, "True"])
def test_a_row_filter_means_the_same_whatever_the_size_of_batches(tmp_path, monkeypatch, where, last):
    text = "c,d,e\n" + "".join(f"0000{k % 9},{k % 2 == 0},{k if k % 5 else ''}\n" for k in range(40))
    source = FileSource(written(tmp_path, f"{text}{last},NA,2.5\n"))
    chosen = RowFilter(where)

    def answer():
        try:
            return source.read(lambda names: names, lambda batch: batch[chosen(batch)])
        except InputError as error:
            return str(error)

    whole = answer()
    monkeypatch.setattr("fedspan.datasets.sources.table_source._MOST_ROWS", 7)
    parts = answer()
    if isinstance(whole, str):
        assert parts == whole
    else:
        pd.testing.assert_frame_equal(parts, whole, check_dtype=False)  # several batches of numbers are one array


CELLS = st.sampled_from(["1", "-3", "2.5", "1e3", "True", "false", "x", "", "NA", "None", "inf", "1" + "0" * 30, "007"])


@settings(max_examples=60, deadline=None)
@given(cells=st.lists(CELLS, min_size=1, max_size=12), size=st.integers(1, 5))
def test_a_column_is_what_all_of_its_cells_are(tmp_path_factory, cells, size):
    path = written(tmp_path_factory.mktemp("csv"), "a,b\n" + "".join(f"{cell},1\n" for cell in cells))

    def read():  # alone: beside others, it would be part of one array of numbers
        return FileSource(path).read(lambda names: ["a"], lambda batch: batch)["a"]

    whole = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedspan.datasets.sources.table_source._MOST_ROWS", size)
        pd.testing.assert_series_equal(read(), whole)
    if whole.dtype.kind == "O":  # of text, only the empty field is missing, and all else is as it stands
        assert whole.isna().tolist() == [cell == "" for cell in cells]
        assert whole.dropna().tolist() == [cell for cell in cells if cell]
    else:
        assert whole.isna().tolist() == [cell in ("", "NA", "None") for cell in cells]


def test_truth_values_in_any_case_and_numbers_in_digits_of_other_scripts(tmp_path):
    frame = read_table(written(tmp_path, "a,b,c\ntRue,FALSE,\u00a012\nfalse,,3\ntrue,True,\uff14\n"))
    np.testing.assert_array_equal(frame["a"], [True, False, True])
    assert frame["a"].dtype == bool
    np.testing.assert_array_equal(frame["b"], [0.0, np.nan, 1.0])
    assert frame["c"].tolist() == ["\u00a012", "3", "\uff14"]  # text: such signs are no numbers


def test_what_is_missing(tmp_path):
    path = written(tmp_path, "n,t,b\n1,NA,True\nNA,None,null\n?,x,\n,,False\n")
    frame = FileSource(path, missing=("?",)).read(lambda names: names, lambda batch: batch)
    np.testing.assert_array_equal(frame["n"], [1, np.nan, np.nan, np.nan])
    assert frame["t"].fillna("-").tolist() == ["NA", "None", "x", "-"]
    np.testing.assert_array_equal(frame["b"], [1, np.nan, np.nan, 0])
    named = FileSource(path, missing=("?", "NA")).read(lambda names: names, lambda batch: batch)
    assert named["t"].fillna("-").tolist() == ["-", "None", "x", "-"]
    assert read_table(path)["n"].tolist()[:3] == ["1", "NA", "?"]  # one word makes it text, as it stands


def test_csv_and_parquet_of_one_table_are_the_same(tmp_path):
    frame = pd.DataFrame({"t": ["NA", "None", "null", "nan", "n/a", "Smith"], "v": [1.5, None, 2, 3, 4, 5]})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "rows.csv"), read_table(tmp_path / "rows.parquet"))


def test_missing_words_are_for_text_files(tmp_path):
    with pytest.raises(InputError, match=r"'missing' is for \.csv files"):
        FileSource(tmp_path / "rows.parquet", missing=("NA",))

"""Tables in files and databases: the same rows whatever the kind of source and the size of its batches."""

from __future__ import annotations

import sqlite3
import zipfile
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from fedspan.datasets.sources import FileSource, RowFilter, SqlSource, read_table
from fedspan.datasets.sources.secret import Secret, secret_of
from fedspan.errors import InputError


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr("fedspan.datasets.sources.table_source._MOST_ROWS", 7)


def mixed(n=40):
    i = np.arange(n)
    return pd.DataFrame(
        {
            "whole": i,
            "half": i / 2,
            "gaps": np.where(i % 3 == 0, np.nan, i),
            "late": np.where(i < 20, np.nan, i),
            "true": i % 2 == 0,
            "text": [f"t{k % 5}" for k in i],
            "texts": pd.Series([None if k % 4 else "x" for k in i], dtype="str"),
        }
    )


def written(frame, tmp_path, ending):
    if ending == ".db":
        with sqlite3.connect(tmp_path / "rows.db") as database:
            frame.to_sql("rows", database, index=False)
        database.close()
        return SqlSource(Secret("sqlite:///rows.db"), "SELECT * FROM rows", folder=tmp_path)
    path = tmp_path / f"rows{ending}"
    if ending == ".parquet":
        frame.to_parquet(path, row_group_size=11)
    elif ending == ".feather":
        frame.to_feather(path)
    elif ending == "/":
        path.mkdir()
        frame[:15].to_parquet(path / "a.parquet")
        frame[15:].to_parquet(path / "b.parquet")
    else:
        frame.to_csv(path, index=False)
    return FileSource(path)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".feather", "/", ".db"])
def test_batches_change_nothing(tmp_path, ending, monkeypatch):
    source = written(mixed(), tmp_path, ending)
    whole = source.read()
    monkeypatch.setattr("fedspan.datasets.sources.table_source._MOST_ROWS", 7)
    parts = source.read()
    pd.testing.assert_frame_equal(whole, parts)
    expected = mixed().astype({"true": np.int64}) if ending == ".db" else mixed()  # SQLite has no truth values
    pd.testing.assert_frame_equal(parts, expected)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".db"])
def test_chosen_columns_of_the_rows_that_a_filter_keeps(tmp_path, ending, small_batches):
    """The filter may be about columns that are not chosen."""
    source = written(mixed(), tmp_path, ending)
    found = source.read(lambda names: ["text", "whole"], RowFilter("half > 15 and late is not null"))
    assert list(found.columns) == ["text", "whole"]
    assert found["whole"].tolist() == list(range(31, 40))
    assert found.index.tolist() == list(range(9))
    with pytest.raises(InputError, match="gone"):
        source.read(where=RowFilter("gone > 1"))
    none = source.read(where=RowFilter("half > 1000"))
    assert list(none.columns) == list(mixed().columns)
    assert len(none) == 0


def workbook(path, rows):
    """Write the least that Excel accepts: one sheet with numbers and texts."""
    office, main = "http://schemas.openxmlformats.org/officeDocument/2006", "http://schemas.openxmlformats.org"
    sheets, package = f"{main}/spreadsheetml/2006/main", f"{main}/package/2006"
    cell = lambda c: f"<c><v>{c}</v></c>" if not isinstance(c, str) else f'<c t="inlineStr"><is><t>{c}</t></is></c>'  # noqa: E731
    lines = "".join(f"<row>{''.join('<c/>' if c is None else cell(c) for c in row)}</row>" for row in rows)
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    relations = "application/vnd.openxmlformats-package"
    link = lambda what, to: (  # noqa: E731
        f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type="{office}/relationships/{what}" '
        f'Target="{to}"/></Relationships>'
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType='
        f'"{relations}.relationships+xml"/><Override PartName="/xl/workbook.xml" ContentType='
        f'"{kind}.sheet.main+xml"/><Override PartName="/xl/sheet1.xml" ContentType="{kind}.worksheet+xml"/></Types>',
        "_rels/.rels": link("officeDocument", "xl/workbook.xml"),
        "xl/_rels/workbook.xml.rels": link("worksheet", "sheet1.xml"),
        "xl/workbook.xml": f'<workbook xmlns="{sheets}" xmlns:r="{office}/relationships"><sheets>'
        '<sheet name="Rows" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/sheet1.xml": f'<worksheet xmlns="{sheets}"><sheetData>{lines}</sheetData></worksheet>',
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)


def test_excel_sheets(tmp_path):
    workbook(tmp_path / "rows.xlsx", (["age", "ward", "code"], [20, "A", 1], [30.5, None, "x"], [None, "B", 2]))
    found = read_table(tmp_path / "rows.xlsx")
    np.testing.assert_array_equal(found["age"], [20, 30.5, np.nan])
    assert found["ward"].fillna("-").tolist() == ["A", "-", "B"]
    assert found["code"].tolist() == ["1", "x", "2"]


def test_titles_above_the_names_of_a_sheet_are_no_names(tmp_path):
    table = (["age", "ward"], [20, "A"], [30.5, None])
    workbook(tmp_path / "rows.xlsx", (["Report 2024", None], [None, None], *table))
    found = read_table(tmp_path / "rows.xlsx")
    assert found["age"].tolist() == [20, 30.5]
    assert found["ward"].fillna("-").tolist() == ["A", "-"]
    workbook(tmp_path / "rows.xlsx", (["age", None], [20, 7000], [30.5, None], [None, 7001]))
    with pytest.raises(InputError, match=r"has values in column 2, which has no name") as caught:
        read_table(tmp_path / "rows.xlsx")
    assert "700" not in str(caught.value)


def test_a_column_that_turns_into_text_is_text_from_its_beginning(tmp_path, small_batches):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "".join(f"{k}.50,1\n" for k in range(20)) + "n/b,2\n")
    frame = read_table(path)
    assert frame["a"].tolist() == [f"{k}.50" for k in range(20)] + ["n/b"]
    assert frame["b"].tolist() == [1] * 20 + [2]


def test_mixed_columns_of_a_database_are_refused(tmp_path, small_batches):
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute("CREATE TABLE rows (a)")
        database.executemany("INSERT INTO rows VALUES (?)", [(k,) for k in range(20)] + [("x",)])
    database.close()
    source = SqlSource(Secret("sqlite:///rows.db"), "SELECT a FROM rows", folder=tmp_path)
    with pytest.raises(InputError, match="a column holds values of several kinds, such as numbers and text"):
        source.read()


def test_a_database_file_is_opened_for_reading_only(tmp_path):
    source = written(mixed(), tmp_path, ".db")
    spoil = SqlSource(Secret("sqlite:///rows.db"), "DELETE FROM rows RETURNING whole", folder=tmp_path)
    with pytest.raises(InputError, match="attempt to write a readonly database"):
        spoil.read()
    assert len(source.read()) == 40
    gone = SqlSource(Secret("sqlite:///gone.db"), "SELECT 1", folder=tmp_path)
    with pytest.raises(InputError, match="unable to open database file"):
        gone.read()
    assert not (tmp_path / "gone.db").exists()


def test_parquet_of_other_types(tmp_path, small_batches):
    frame = pd.DataFrame(
        {
            "cost": [Decimal(f"{k}.25") for k in range(20)],
            "kind": pd.Categorical(["x"] * 10 + ["y"] * 10),
            "count": pd.array([None, *range(19)], dtype="Int64"),
            "full": pd.array(range(20), dtype="Int32"),
            "maybe": pd.array([None] + [True] * 19, dtype="boolean"),
            "when": pd.date_range("2026-01-01", periods=20, tz="Europe/Berlin"),
            "small": np.arange(20, dtype=np.float32),
        },
        index=pd.Index(range(5, 25), name="row"),
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    found = read_table(tmp_path / "rows.parquet")
    assert list(found.columns) == list(frame.columns)  # the index is no column
    assert found["cost"].tolist() == [k + 0.25 for k in range(20)]
    assert found["kind"].tolist() == ["x"] * 10 + ["y"] * 10
    np.testing.assert_array_equal(found["count"], [np.nan, *range(19)])
    assert found["full"].dtype == np.int32
    np.testing.assert_array_equal(found["maybe"], [np.nan] + [1.0] * 19)
    assert found["when"].iloc[0] == pd.Timestamp("2025-12-31 23:00")
    assert found["small"].dtype == np.float32


def test_float32_stays(tmp_path, small_batches):
    pd.DataFrame(np.ones((20, 3), dtype=np.float32), columns=list("abc")).to_parquet(tmp_path / "rows.parquet")
    assert read_table(tmp_path / "rows.parquet").to_numpy().dtype == np.float32


def test_an_npz_archive(tmp_path):
    X = np.arange(12.0).reshape(4, 3)
    np.savez(tmp_path / "rows.npz", X=X, y=np.arange(4), far=np.zeros(7))
    frame = read_table(tmp_path / "rows.npz")
    assert list(frame.columns) == ["x0", "x1", "x2", "y"]
    np.testing.assert_array_equal(frame.iloc[:, :3], X)


def test_names_that_two_columns_have_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,a\n1,2,3\n")
    np.savez(tmp_path / "rows.npz", X=np.ones((2, 2)), feature_names=["y", "b"], y=np.zeros(2))
    for name, doubled in (("rows.csv", "a"), ("rows.npz", "y")):
        with pytest.raises(InputError, match=f"two columns named '{doubled}'"):
            read_table(tmp_path / name)


def test_tables_without_rows_keep_their_columns(tmp_path):
    for ending in (".csv", ".parquet", ".db"):
        frame = written(mixed(0), tmp_path, ending).read()
        assert list(frame.columns) == list(mixed().columns)
        assert len(frame) == 0


def test_a_stamp_shows_whether_a_file_was_written(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    source = FileSource(path)
    before = source.stamp()
    assert source.stamp() == before
    path.write_text("a\n1\n2\n")
    assert source.stamp() != before
    path.unlink()
    assert source.stamp() is None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("NO_SUCH_VARIABLE", None), "the environment variable that it names is not set"),
        (("hunter-22", None), "must be the name of an environment variable"),
        (("HOME", "secret"), "both name a password"),
        ((None, "gone"), "cannot be read: No such file"),
        ((None, "empty"), "is empty"),
    ],
)
def test_where_a_password_is_not(tmp_path, arguments, problem):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "empty").chmod(0o600)
    env, file = (None if text is None else Secret(text) for text in arguments)
    with pytest.raises(InputError, match=problem) as caught:
        secret_of(env, file, tmp_path)
    for text in ("NO_SUCH_VARIABLE", "hunter-22", "gone"):  # which may be the password itself
        assert text not in str(caught.value)


def test_lines_of_json_are_a_table_whose_keys_name_the_columns(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1, "b": "x"}\n{"b": "y", "a": 2.5}\n{"a": null}\n')
    frame = read_table(path)
    assert frame["a"].tolist()[:2] == [1, 2.5]
    assert frame.isna().to_numpy().tolist() == [[False, False], [False, False], [True, True]]
    assert list(FileSource(path).read(lambda names: ["b"])) == ["b"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty: its lines must be JSON objects"),
        ('{"a": 1}\nno row 7001\n', "it is damaged, or of another kind"),
        ('{"a": 1}\n{"a": "7001"}\n', "Column.*changed from number to string in row 1"),
        ('{"a": {"b": 1}}\n', "must hold numbers, text, times or durations"),
    ],
)
def test_lines_that_are_no_rows_are_refused_without_a_value(tmp_path, text, problem):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=problem) as caught:
        read_table(path)
    assert "7001" not in str(caught.value)

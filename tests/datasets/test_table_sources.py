"""Tables in files: the same rows whatever the file's kind and the size of its batches, in one copy."""

from __future__ import annotations

import sqlite3
import tracemalloc
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from fedspan.datasets.sources.stacking import stack

from fedspan.datasets.sources import FileSource, SqlSource, read_table
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
    frame.to_parquet(path, row_group_size=11) if ending == ".parquet" else frame.to_csv(path, index=False)
    return FileSource(path)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".db"])
def test_batches_change_nothing(tmp_path, ending, monkeypatch):
    source = written(mixed(), tmp_path, ending)
    whole = source.read(lambda names: names, lambda batch: batch)
    monkeypatch.setattr("fedspan.datasets.sources.table_source._MOST_ROWS", 7)
    parts = source.read(lambda names: names, lambda batch: batch)
    pd.testing.assert_frame_equal(whole, parts)
    expected = mixed().astype({"true": np.int64}) if ending == ".db" else mixed()  # SQLite has no truth values
    pd.testing.assert_frame_equal(parts, expected)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".db"])
def test_a_table_of_numbers_is_one_array(tmp_path, ending, small_batches):
    frame = mixed()[["whole", "half", "gaps", "true"]]
    found = written(frame, tmp_path, ending).read(lambda names: names, lambda batch: batch, apart=["whole"])
    assert found["whole"].dtype == np.int64  # apart from the others, as it is
    X = found[["half", "gaps", "true"]]
    np.testing.assert_array_equal(X.to_numpy(), frame[["half", "gaps", "true"]].to_numpy(dtype=float))
    assert np.shares_memory(found["half"].to_numpy(), found["gaps"].to_numpy().base)
    assert len({id(column.to_numpy().base) for _, column in found[["half", "gaps"]].items()}) == 1


def test_only_what_is_chosen_is_read_and_only_what_is_kept_is_held(tmp_path, small_batches):
    source = written(mixed(), tmp_path, ".parquet")
    seen = []

    def keep(batch):
        seen.append(list(batch.columns))
        return batch[batch["half"] > 15][["whole"]]

    found = source.read(lambda names: ["half", "whole"], keep)
    assert found["whole"].tolist() == list(range(31, 40))
    assert seen == [["half", "whole"]] * 6  # batches of 7 rows
    assert found.index.tolist() == list(range(9))


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
    with pytest.raises(InputError, match="column 'a' holds values of several kinds, such as numbers and text"):
        source.read(lambda names: names, lambda batch: batch)


def test_a_database_file_is_opened_for_reading_only(tmp_path):
    source = written(mixed(), tmp_path, ".db")
    spoil = SqlSource(Secret("sqlite:///rows.db"), "DELETE FROM rows RETURNING whole", folder=tmp_path)
    with pytest.raises(InputError, match="attempt to write a readonly database"):
        spoil.read(lambda names: names, lambda batch: batch)
    assert len(source.read(lambda names: names, lambda batch: batch)) == 40
    gone = SqlSource(Secret("sqlite:///gone.db"), "SELECT 1", folder=tmp_path)
    with pytest.raises(InputError, match="unable to open database file"):
        gone.read(lambda names: names, lambda batch: batch)
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
    assert isinstance(found["kind"].dtype, pd.CategoricalDtype)
    np.testing.assert_array_equal(found["count"], [np.nan, *range(19)])
    assert found["full"].dtype == np.int32
    np.testing.assert_array_equal(found["maybe"], [np.nan] + [1.0] * 19)
    assert found["when"].iloc[0] == pd.Timestamp("2025-12-31 23:00")
    assert found["small"].dtype == np.float32


def test_float32_stays(tmp_path, small_batches):
    pd.DataFrame(np.ones((20, 3), dtype=np.float32), columns=list("abc")).to_parquet(tmp_path / "rows.parquet")
    assert read_table(tmp_path / "rows.parquet").to_numpy().dtype == np.float32


def test_an_npz_archive_is_not_copied(tmp_path):
    X = np.arange(12.0).reshape(4, 3)
    np.savez(tmp_path / "rows.npz", X=X, y=np.arange(4), far=np.zeros(7))
    frame = read_table(tmp_path / "rows.npz")
    assert list(frame.columns) == ["x0", "x1", "x2", "y"]
    assert frame.iloc[:, :3].to_numpy().flags.c_contiguous  # the array as it was
    np.testing.assert_array_equal(frame.iloc[:, :3], X)


def test_names_that_two_columns_have_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,a\n1,2,3\n")
    np.savez(tmp_path / "rows.npz", X=np.ones((2, 2)), feature_names=["y", "b"], y=np.zeros(2))
    for name, doubled in (("rows.csv", "a"), ("rows.npz", "y")):
        with pytest.raises(InputError, match=f"two columns named '{doubled}'"):
            read_table(tmp_path / name)


def test_tables_without_rows_keep_their_columns(tmp_path):
    for ending in (".csv", ".parquet", ".db"):
        frame = written(mixed(0), tmp_path, ending).read(lambda names: names, lambda batch: batch)
        assert list(frame.columns) == list(mixed().columns)
        assert len(frame) == 0


def test_there_is_one_copy_of_a_table_in_memory():
    d, batch, batches = 8, 20_000, 20
    table = 8 * d * batch * batches

    def made():
        rng = np.random.default_rng(0)
        for _ in range(batches):
            yield pd.DataFrame(rng.normal(size=(batch, d)), columns=[f"x{k}" for k in range(d)])

    tracemalloc.start()
    frame = stack(made())
    X = frame.to_numpy()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert X.nbytes == table
    assert kept < 1.1 * table  # the frame, and X is a view of it
    assert peak < 2.2 * table  # the parts, and room for the array, which fills as they are let go


def test_a_stamp_tells_whether_a_file_was_written(tmp_path):
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
    ("arguments", "said"),
    [
        (("NO_SUCH_VARIABLE", None), "the environment variable that it names is not set"),
        (("hunter-22", None), "must be the name of an environment variable"),
        (("HOME", "secret"), "both name a password"),
        ((None, "gone"), "cannot be read: No such file"),
        ((None, "empty"), "is empty"),
    ],
)
def test_where_a_password_is_not(tmp_path, arguments, said):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "empty").chmod(0o600)
    env, file = (None if text is None else Secret(text) for text in arguments)
    with pytest.raises(InputError, match=said) as caught:
        secret_of(env, file, tmp_path)
    for text in ("NO_SUCH_VARIABLE", "hunter-22", "gone"):  # which may be the password itself
        assert text not in str(caught.value)

"""SQL over files, folders and object storage: the query sees the tables that were named, and nothing else."""

from __future__ import annotations

import pandas as pd
import pytest

from fedspan.datasets.sources import QuerySource, RowFilter
from fedspan.errors import InputError

from .fake_object_storage import object_storage

JOINED = "SELECT v.age, l.dose, v.ward FROM visits v JOIN labs l USING (id) ORDER BY id"


@pytest.fixture
def folder(tmp_path):
    visits = pd.DataFrame({"id": range(6), "age": [30, 41, 52, 63, 74, 85], "ward": list("ABABAB")})
    (tmp_path / "visits").mkdir()
    visits[:4].to_parquet(tmp_path / "visits" / "a.parquet")
    visits[4:].to_parquet(tmp_path / "visits" / "b.parquet")
    pd.DataFrame({"id": range(6), "dose": [1.5, None, 2.5, 3.0, 4.0, 5.0]}).to_csv(tmp_path / "labs.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("visits", ["visits", "visits/*.parquet", "visits/?.parquet"])
def test_files_folders_and_patterns(folder, visits):
    source = QuerySource({"visits": visits, "labs": "labs.csv"}, JOINED, folder)
    frame = source.read()
    assert frame["age"].tolist() == [30, 41, 52, 63, 74, 85]
    assert frame["dose"].isna().tolist() == [False, True, False, False, False, False]
    kept = source.read(lambda names: ["dose"], RowFilter("ward = 'A' and age > 30"))
    assert kept["dose"].tolist() == [2.5, 4.0]
    assert source.label == "the query on visits, labs"


def test_objects_are_read_with_the_environments_credentials(folder, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with object_storage(folder) as address:
        place = f"s3://bucket/visits?endpoint_override={address}&scheme=http&region=us-east-1"
        source = QuerySource({"visits": place, "labs": "labs.csv"}, JOINED, folder)
        assert len(source.read()) == 6
        assert source.stamp() is None


def test_a_change_of_a_file_changes_the_stamp(folder):
    source = QuerySource({"visits": "visits/*.parquet"}, "SELECT * FROM visits", folder)
    before = source.stamp()
    assert before == source.stamp() != None  # noqa: E711
    pd.DataFrame({"id": [9], "age": [1], "ward": ["A"]}).to_parquet(folder / "visits" / "c.parquet")
    assert source.stamp() != before
    for file in (folder / "visits").iterdir():
        file.unlink()
    assert source.gone()


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("DROP TABLE visits", "must be one SELECT"),
        ("SELECT 1; SELECT 2", "must be one SELECT"),
        ("SELEC 1", "must be one SELECT"),
        ("", "must be one SELECT"),
    ],
)
def test_what_is_no_select_is_refused_before_anything_is_read(folder, query, reason):
    with pytest.raises(InputError, match=reason):
        QuerySource({"visits": "visits"}, query, folder)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('labs.csv')",
        "SELECT * FROM 'labs.csv'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM missing",
        "SELECT nothing FROM visits",
    ],
)
def test_the_query_reads_no_other_file(folder, query, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(InputError, match="the query on visits fails"):
        QuerySource({"visits": "visits"}, query, folder).read()


def test_an_error_about_values_holds_none(folder):
    with pytest.raises(InputError) as caught:
        QuerySource({"visits": "visits"}, "SELECT CAST(ward AS INTEGER) AS n FROM visits", folder).read()
    assert "withheld" in str(caught.value)
    assert "'A'" not in str(caught.value)


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({}, "at least one table"),
        ({"a b": "x.csv"}, "letters, digits"),
        ({"a": "ftp://host/x"}, "object storage"),
        ({"a": "s3://key:swordfish@bucket/x"}, "holds a key or a password"),
        ({"a": "s3://bucket/x?access_key=swordfish"}, "holds a key or a password"),
    ],
)
def test_tables_that_are_refused(tables, reason):
    with pytest.raises(InputError, match=reason) as caught:
        QuerySource(tables, "SELECT 1")
    assert "swordfish" not in str(caught.value)


def test_a_missing_file_is_named(folder):
    with pytest.raises(InputError, match=r"tables: visits = .none\.parquet. does not exist"):
        QuerySource({"visits": "none.parquet"}, "SELECT * FROM visits", folder).read()

"""A site whose rows are in PostgreSQL, with a real server; and no password is ever shown."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import numpy as np
import pandas as pd
import psycopg
import pytest

from fedspan.cli import main
from fedspan.datasets.sources import SqlSource
from fedspan.datasets.sources.secret import Secret
from fedspan.errors import InputError
from fedspan.owner import read_owned_site
from fedspan.owner.owned_site import read_rows
from fedspan.owner.schema import kind_of
from fedspan.owner.site_file import read_site_file

from .postgres_server import PASSWORD


@pytest.fixture
def visits(postgres):
    postgres.execute(
        "DROP TABLE IF EXISTS visits",
        "CREATE TABLE visits (id int, small smallint, age int, dose double precision, cost numeric(10, 2), "
        "smoker boolean, never int, gone boolean, name text, seen date, at timestamptz, took interval)",
        "INSERT INTO visits SELECT i, i % 5, CASE WHEN i % 3 = 0 THEN NULL ELSE i END, i / 8.0, i * 1.25, i % 2 = 0, "
        "NULL, CASE WHEN i % 4 = 0 THEN NULL ELSE i % 2 = 0 END, CASE WHEN i % 7 = 0 THEN NULL ELSE 'n' || i END, "
        "date '2026-01-01' + i, timestamptz '2026-03-29 00:30:00+00' + i * interval '1 hour', i * interval '1 minute' "
        "FROM generate_series(1, 40) i",
    )
    return postgres


@pytest.fixture
def sql_site(write_site, monkeypatch, visits):
    """Write a site that asks a query; the password is in the environment."""
    monkeypatch.setenv("CLINIC_PASSWORD", PASSWORD)

    def write(query="SELECT * FROM visits ORDER BY id", more="", url=None, **sections):
        data = f'url = "{url or visits.url()}"\nquery = """{query}"""\n'
        data += "" if url else 'password_env = "CLINIC_PASSWORD"\n'
        return write_site(data + more, **sections)

    return write


def read(path):
    return read_rows(read_site_file(path)).frame


def test_every_type_becomes_a_plain_column(sql_site):
    frame = read(sql_site())
    i = np.arange(1, 41)
    expected = pd.DataFrame(
        {
            "id": i,
            "small": i % 5,
            "age": np.where(i % 3 == 0, np.nan, i),
            "dose": i / 8,
            "cost": i * 1.25,
            "smoker": i % 2 == 0,
            "never": np.full(40, np.nan),
            "gone": np.where(i % 4 == 0, np.nan, i % 2 == 0),
            "name": pd.Series([None if k % 7 == 0 else f"n{k}" for k in i], dtype="str"),
            "seen": (pd.Timestamp("2026-01-01") + pd.to_timedelta(i, "D")).astype("datetime64[us]"),
            "at": (pd.Timestamp("2026-03-29 00:30") + pd.to_timedelta(i, "h")).astype("datetime64[us]"),
            "took": pd.to_timedelta(i, "min").astype("timedelta64[us]"),
        }
    )
    pd.testing.assert_frame_equal(frame, expected)
    kinds = [kind_of(frame[name]) for name in frame.columns]
    numbers = ["integer", "integer", "integer", "number", "number", "boolean", "integer", "integer"]
    assert kinds == [*numbers, "text", "time", "time", "duration"]


def test_more_rows_than_a_batch_come_as_they_were_written(sql_site, visits, monkeypatch):
    monkeypatch.setattr("fedspan.datasets.sources.table_source._MOST_ROWS", 700)
    visits.execute(
        "DROP TABLE IF EXISTS many",
        "CREATE TABLE many AS SELECT i AS id, i * 0.5 AS half, CASE WHEN i < 3000 THEN NULL ELSE i END AS late "
        "FROM generate_series(1, 5000) i",
    )
    owned = read_owned_site(sql_site("SELECT * FROM many ORDER BY id", 'target = "id"\nwhere = "id > 10"'))
    i = np.arange(11, 5001)
    np.testing.assert_array_equal(owned.site.y, i)
    assert owned.site.y.dtype == np.int64
    np.testing.assert_array_equal(owned.site.X, np.c_[i * 0.5, np.where(i < 3000, np.nan, i)])


def test_signs_of_other_languages_in_a_query_mean_nothing(sql_site):
    frame = read(sql_site("SELECT id, 'a:b %s %' || id::text AS odd FROM visits WHERE name LIKE '%1%' ORDER BY id"))
    assert frame["odd"].tolist()[:2] == ["a:b %s %1", "a:b %s %10"]


def test_the_session_is_read_only(sql_site, visits):
    spoil = ("SELECT 1 AS a; DROP TABLE visits", "SELECT 1 AS a; COMMIT; DELETE FROM visits; BEGIN")
    for query in ("DELETE FROM visits RETURNING id", *spoil, "DROP TABLE visits"):
        with pytest.raises(InputError, match=r"fails: |read-only|returns no rows"):
            read_owned_site(sql_site(query))
    visits.execute("CREATE OR REPLACE FUNCTION spoil() RETURNS int LANGUAGE sql AS 'DELETE FROM visits RETURNING id'")
    with pytest.raises(InputError, match="cannot execute DELETE in a read-only transaction"):
        read_owned_site(sql_site("SELECT spoil() AS a"))
    assert len(read(sql_site())) == 40


def test_an_empty_result_is_refused(sql_site):
    with pytest.raises(InputError, match=r"has no rows$"):
        read_owned_site(sql_site("SELECT * FROM visits WHERE id < 0"))
    with pytest.raises(InputError, match="has no rows that the row filter keeps"):
        read_owned_site(sql_site(more='where = "id < 0"'))


def test_a_table_that_was_dropped_between_runs_is_reported(sql_site, visits):
    owned = read_owned_site(sql_site(more='columns = ["id", "dose"]'))
    visits.execute("INSERT INTO visits (id, dose) VALUES (41, 1.0)")
    assert owned.refresh()
    assert len(owned.site) == 41
    visits.execute("DROP TABLE visits")
    with pytest.raises(InputError, match='relation "visits" does not exist'):
        owned.refresh()
    assert len(owned.site) == 41  # what was read stays


def test_a_database_that_takes_too_long_is_given_up(sql_site):
    with pytest.raises(InputError, match="canceling statement due to statement timeout"):
        read_owned_site(sql_site("SELECT pg_sleep(30)::text AS a", "timeout = 0.2"))


def test_an_error_about_a_value_does_not_show_the_value(sql_site):
    with pytest.raises(InputError, match=r"SQLSTATE 22P02\); its text is withheld") as caught:
        read_owned_site(sql_site("SELECT name::int AS a FROM visits"))
    assert "n1" not in str(caught.value)


def test_what_a_table_cannot_hold_is_refused_by_its_column(sql_site):
    with pytest.raises(InputError, match="column 'a' holds list, and must hold numbers"):
        read_owned_site(sql_site("SELECT ARRAY[id] AS a FROM visits"))
    with pytest.raises(InputError, match="two columns named 'a'"):
        read_owned_site(sql_site("SELECT id AS a, id AS a FROM visits"))


def forms(password):
    """Return the password, and as it is written in a URL."""
    from urllib.parse import quote

    return [password, quote(password), quote(password, safe="")]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("wrong password", "password authentication failed"),
        ("wrong port", "fails: "),
        ("wrong database", 'database "nowhere" does not exist'),
        ("wrong host", "fails: "),
        ("wrong option", "fails: "),
        ("error with the DSN", "fails: cannot reach"),
        ("another error with the DSN", "fails: RuntimeError raised"),
        ("wrong statement", "syntax error"),
    ],
)
@pytest.mark.parametrize("where", ["url", "env", "file"])
def test_a_password_is_in_no_error(case, said, where, write_site, visits, monkeypatch, tmp_path, caplog, capfd):
    password = "wr0ng/pass:&=%" if case == "wrong password" else PASSWORD
    url = visits.url(password if where == "url" else None)
    url = url.replace(str(visits.port), "1") if case == "wrong port" else url
    url = url.replace("/postgres", "/nowhere") if case == "wrong database" else url
    url = url.replace("127.0.0.1", "no-such-host.invalid") if case == "wrong host" else url
    url += "?sslmode=nonsense" if case == "wrong option" else ""
    query = "SELEC 1" if case == "wrong statement" else "SELECT 1 AS a"
    data = f'url = "{url}"\nquery = "{query}"\n'
    if where == "env":
        monkeypatch.setenv("CLINIC_PASSWORD", password)
        data += 'password_env = "CLINIC_PASSWORD"\n'
    if where == "file":
        (tmp_path / "secret").write_text(f"{password}\n")
        (tmp_path / "secret").chmod(0o600)
        data += 'password_file = "secret"\n'
    if case.endswith("error with the DSN"):
        kind = RuntimeError if case.startswith("another") else psycopg.OperationalError

        def fail(*given, **named):
            raise kind(f"cannot reach {given} {named} {visits.url(password)} password={password}")

        monkeypatch.setattr("psycopg.connect", fail)
    path = write_site(data)
    path.chmod(0o600)
    with caplog.at_level(logging.DEBUG), pytest.raises(InputError) as caught:
        read_owned_site(path)
    assert said in str(caught.value)
    everything = [shown_of(caught.value), caplog.text, *capfd.readouterr()]
    assert not [form for form in forms(password) if any(form in text for text in everything)]


def test_a_check_shows_no_password(visits, write_site, capfd):
    path = write_site(f'url = "{visits.url("wr0ng/pass:&=%")}"\nquery = "SELECT 1 AS a"')
    path.chmod(0o600)
    assert main(["site", "check", str(path)]) == 1
    shown = "".join(capfd.readouterr())
    assert "password authentication failed" in shown
    assert not [form for form in forms("wr0ng/pass:&=%") if form in shown]
    path = write_site(f'url = "{visits.url(PASSWORD)}"\nquery = "SELECT i AS a FROM generate_series(1, 20) i"')
    path.chmod(0o600)
    assert main(["site", "check", str(path)]) == 0
    shown = "".join(capfd.readouterr())
    assert "20 rows of the query on PostgreSQL 127.0.0.1/postgres" in shown
    assert not [form for form in forms(PASSWORD) if form in shown]


@pytest.mark.parametrize("more", ["columns = 3", "wrong = 1", 'where = "a <"', 'password_env = "HOME"', "timeout = 0"])
def test_a_password_is_in_no_error_about_the_file(more, visits, write_site):
    path = write_site(f'url = "{visits.url(PASSWORD)}"\nquery = "SELECT 1 AS a"\n{more}')
    path.chmod(0o600)
    with pytest.raises(InputError) as caught:
        read_owned_site(path)
    assert not [form for form in forms(PASSWORD) if form in shown_of(caught.value)]


@pytest.mark.parametrize(
    "url", ["oracle://u:hush-hush@h/d", "postgresql://u:hush-hush@h:x/d", "hush-hush", "://hush-hush"]
)
def test_a_url_that_is_none_is_not_shown(url, write_site):
    path = write_site(f'url = "{url}"\nquery = "SELECT 1 AS a"')
    with pytest.raises(InputError, match="url must be written as postgresql://user@host/database") as caught:
        read_owned_site(path)
    assert "hush-hush" not in shown_of(caught.value)


WRONG_PLACES = {
    "an unescaped at sign": 'url = "postgresql://owner:hunter22@secret77@127.0.0.1:1/p"\nquery = "SELECT 1 AS a"',
    "an unescaped slash": 'url = "postgresql://owner:hunter22/secret77@127.0.0.1:1/p"\nquery = "SELECT 1 AS a"',
    "a slash in the user": 'url = "postgresql://ow/ner:hunter22@127.0.0.1:1/p"\nquery = "SELECT 1 AS a"',
    "no user": 'url = "postgresql://hunter22/secret77"\nquery = "SELECT 1 AS a"',
    "a password option": 'url = "postgresql://127.0.0.1:1/p?password=hunter22"\nquery = "SELECT 1 AS a"',
    "an SQLite file": 'url = "sqlite://owner:hunter22@/x.db"\nquery = "SELECT 1 AS a"',
    "file": 'file = "postgresql://owner:hunter22secret@127.0.0.1/postgres"',
    "the rest of a URL as file": 'file = "owner:hunter22@127.0.0.1/postgres"',
    "query": 'url = "sqlite:///x"\nquery = "postgresql://owner:hunter22@127.0.0.1/postgres"',
    "where": 'file = "rows.csv"\nwhere = "postgresql://owner:hunter22@127.0.0.1/postgres"',
    "label": 'file = "rows.csv"\nlabel = "postgresql://owner:hunter22@127.0.0.1/postgres"',
    "columns": 'file = "rows.csv"\ncolumns = ["postgresql://owner:hunter22@127.0.0.1/postgres"]',
    "a list": 'url = ["postgresql://owner:hunter22@127.0.0.1/postgres"]\nquery = "SELECT 1 AS a"',
    "a table": 'url = {a = "postgresql://owner:hunter22@127.0.0.1/postgres"}\nquery = "SELECT 1 AS a"',
    "capitals": 'URL = "postgresql://owner:hunter22@127.0.0.1/postgres"\nquery = "SELECT 1 AS a"',
    "password": 'url = "postgresql://owner@127.0.0.1:1/postgres"\npassword = "hunter22"\nquery = "SELECT 1 AS a"',
    "password_env": 'url = "postgresql://o@127.0.0.1:1/p"\npassword_env = "hunter22secret"\nquery = "SELECT 1 AS a"',
    "odd password_env": 'url = "postgresql://o@127.0.0.1:1/p"\npassword_env = "hunter22 77"\nquery = "SELECT 1 AS a"',
    "number as password_env": 'url = "postgresql://o@127.0.0.1:1/p"\npassword_env = 2277\nquery = "SELECT 1 AS a"',
    "password_file": 'url = "postgresql://o@127.0.0.1:1/p"\npassword_file = "hunter22"\nquery = "SELECT 1 AS a"',
    "list as password_file": 'url = "postgresql://o@h/p"\npassword_file = ["hunter22"]\nquery = "SELECT 1 AS a"',
    "a key": '"postgresql://owner:hunter22@127.0.0.1/postgres" = 1',
    "no quotes": "url = postgresql://owner:hunter22@127.0.0.1/postgres",
    "one quote": 'url = "postgresql://owner:hunter22@127.0.0.1/postgres\nquery = 3',
    "twice": 'file = "rows.csv"\n["postgresql://o:hunter22@h/p"]\n["postgresql://o:hunter22@h/p"]',
    "another section": 'file = "rows.csv"\n[database]\nurl = "postgresql://owner:hunter22@127.0.0.1/postgres"',
    "a section's name": 'file = "rows.csv"\n["postgresql://owner:hunter22@127.0.0.1/postgres"]\na = 1',
}


@pytest.mark.parametrize("case", WRONG_PLACES)
def test_a_password_in_the_wrong_place_is_shown_nowhere(case, write_site, capfd):
    path = write_site(WRONG_PLACES[case])
    path.chmod(0o600)
    with pytest.raises(InputError) as caught:
        read_owned_site(path)
    assert main(["site", "check", str(path)]) == 1
    everything = [shown_of(caught.value), *capfd.readouterr()]
    for part in ("hunter22", "secret77", "2277"):
        assert not any(part in text for text in everything)


def test_only_what_is_certain_of_a_url_is_shown():
    def label(url):
        return SqlSource(Secret(url), "SELECT 1").label

    assert label("postgresql://owner:a%40b@db.example:5/records") == "the query on PostgreSQL db.example/records"
    assert label("postgresql://owner:a/b@db.example/records") == "the query on PostgreSQL db.example/records"
    assert label("postgresql://db.example/records") == "the query on the database of [data] url"
    assert label("sqlite:///rows.db") == "the query on SQLite rows.db"


@pytest.mark.parametrize(
    ("query", "secret"),
    [
        ("SELECT '12026-03-04'::date AS a", "12026"),  # psycopg's own error, without SQLSTATE
        ("SELECT CASE WHEN name = 'n1' THEN 1 / (id - 1) ELSE id END AS a FROM visits", "n1"),
        ("SELECT loud(name) AS a FROM visits", "n1"),
    ],
)
def test_what_a_driver_says_of_a_value_is_not_repeated(sql_site, visits, query, secret):
    visits.execute(
        "CREATE OR REPLACE FUNCTION loud(t text) RETURNS int LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'cannot take %', t; END$$"
    )
    with pytest.raises(InputError, match="fails: ") as caught:
        read_owned_site(sql_site(query))
    assert secret not in shown_of(caught.value)


def test_what_sqlite_says_of_a_value_is_not_repeated(write_site, tmp_path):
    import sqlite3

    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute("CREATE TABLE rows (a TEXT)")
        database.execute("INSERT INTO rows VALUES (CAST(x'7365637265743737ff' AS TEXT))")  # secret77, and no UTF-8
    database.close()
    site = 'url = "sqlite:///rows.db"\nquery = "SELECT {} AS a FROM {}"'
    for query, said in (("a", "OperationalError"), ("json(a)", "OperationalError")):
        with pytest.raises(InputError, match=said) as caught:
            read_owned_site(write_site(site.format(query, "rows")))
        assert "secret77" not in shown_of(caught.value)
    with pytest.raises(InputError, match="no such table: gone"):
        read_owned_site(write_site(site.format("a", "gone")))


def shown_of(error):
    """Return an error, all that led to it, and the locals of all frames but the tests' own."""
    shown = []
    while error is not None:
        shown += [str(error), repr(error)]
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if not frame.f_globals["__name__"].startswith("tests."):
                shown += [f"{name} = {value!r}" for name, value in frame.f_locals.items()]
        error = error.__cause__ or error.__context__
    return "\n".join(shown)


def test_a_password_is_in_no_process_list(visits):
    listed = []

    def choose(names):
        listed.extend(path.read_bytes().decode() for path in Path("/proc").glob("[0-9]*/cmdline"))
        return names

    SqlSource(Secret(visits.url(PASSWORD)), "SELECT 1 AS a").read(choose)
    assert any("postgres" in line for line in listed)
    assert not [form for form in forms(PASSWORD) if any(form in line for line in listed)]


def test_reprs_hide_the_password(visits, sql_site):
    source = SqlSource(Secret(visits.url(PASSWORD)), "SELECT 1")
    owned = read_owned_site(sql_site(more='columns = ["id"]'))
    for thing in (source, source.__dict__, source.label, owned, owned.file, owned.describe(), owned.file.data):
        assert not any(form in repr(thing) for form in forms(PASSWORD))


def test_a_password_in_a_file_that_others_can_read_is_refused(visits, write_site, tmp_path):
    path = write_site(f'url = "{visits.url(PASSWORD)}"\nquery = "SELECT 1 AS a FROM generate_series(1, 20)"')
    path.chmod(0o644)
    with pytest.raises(InputError, match="url holds a password, and this file can be read by others"):
        read_owned_site(path)
    path.chmod(0o600)
    assert len(read_owned_site(path).site) == 20
    (tmp_path / "secret").write_text(PASSWORD)
    (tmp_path / "secret").chmod(0o644)
    path = write_site(f'url = "{visits.url()}"\nquery = "SELECT 1 AS a"\npassword_file = "secret"')
    with pytest.raises(InputError, match="the file that it names can be read by others: take that back"):
        read_owned_site(path)

"""Databases by URL: drivers are named with their install line, and no password is in an error."""

from __future__ import annotations

import pytest

from fedspan.datasets.sources import SqlSource, sql_source
from fedspan.datasets.sources.secret import Secret
from fedspan.errors import InputError

KINDS = {"mysql": ("MySQL", "mysql"), "mariadb": ("MariaDB", "mysql"), "mssql": ("SQL Server", "mssql")}


@pytest.mark.parametrize("kind", [*KINDS, "postgresql"])
def test_a_missing_driver_is_named_with_its_install_line(kind, monkeypatch):
    monkeypatch.setattr(sql_source, "find_spec", lambda module: None)
    name, extra = KINDS.get(kind, ("PostgreSQL", "sql"))
    with pytest.raises(InputError, match=rf"{name} needs the driver \w+.*pip install '\.\[{extra}\]'"):
        SqlSource(Secret(f"{kind}://reader:swordfish@host/records"), "SELECT 1")


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_offline_is_named_and_no_password(kind):
    source = SqlSource(Secret(f"{kind}://reader:swordfish@127.0.0.1:1/records"), "SELECT 1", timeout=2.0)
    assert source.label == f"the query on {KINDS[kind][0]} 127.0.0.1/records"
    with pytest.raises(InputError, match=r"fails: ") as caught:
        source.read()
    assert "swordfish" not in str(caught.value)
    assert "ModuleNotFoundError" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


@pytest.mark.parametrize("kind", ["oracle", "redshift", "x"])
def test_other_databases_are_refused(kind):
    with pytest.raises(InputError, match="or mysql, mariadb, mssql"):
        SqlSource(Secret(f"{kind}://reader@host/records"), "SELECT 1")


def test_mysql_sessions_are_read_only():
    server = sql_source._SERVERS["mariadb"]
    assert "READ ONLY" in sql_source._read_only(server)[0]
    assert sql_source._read_only(sql_source._SERVERS["mssql"]) == []

"""Fixtures for tests of a site's owner."""

from __future__ import annotations

import pytest

from .postgres_server import programs, running_server
from .site_files import example_table, site_writer


@pytest.fixture(scope="session")
def postgres():
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL's programs (Debian's package postgresql) are not installed")
    with running_server(found) as server:
        yield server


@pytest.fixture
def table():
    return example_table()


@pytest.fixture
def write_site(tmp_path, table):
    return site_writer(tmp_path, table)

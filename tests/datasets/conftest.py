"""Fixtures: real files where they are there, a folder of one's own where they must not be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedspan.datasets import Bunch, load_ton_iot, load_unsw_nb15
from tests import real_data


@pytest.fixture
def real_file() -> Callable[[str], Path]:
    """Give the path of a real data file, or skip the test where it is not there."""
    return real_data.real_file


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty folder the data folder of this test."""
    monkeypatch.setenv("FEDSPAN_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def unsw() -> Bunch:
    real_data.real_file("unsw_nb15_82332.csv.gz")
    return load_unsw_nb15(categorical=True)


@pytest.fixture(scope="session")
def ton() -> Bunch:
    real_data.real_file("ton_iot_network_211043.csv.gz")
    return load_ton_iot()

"""Fixtures: real files where they are there, a folder of one's own where they must not be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedspan.datasets import Bunch
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
    return real_data.unsw()


@pytest.fixture(scope="session")
def ton() -> Bunch:
    return real_data.ton()

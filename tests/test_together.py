"""Groups of tests name files that exist, and are kept together."""

from __future__ import annotations

from pathlib import Path

from tests.together import BY_FILE, ORDER, group_of


def test_the_files_of_the_groups_exist():
    assert [file for file in BY_FILE if not (Path(__file__).parents[1] / file).is_file()] == []


def test_a_test_is_in_the_group_of_its_file():
    assert group_of("tests/engines/nvflare/test_hardening.py::test_a") == ORDER[0]
    assert group_of("tests/maps/test_map_estimator.py::test_a[FedUMAP]") == ORDER[1]
    assert group_of("tests/test_wire.py::test_a[1]") == "tests/test_wire.py"

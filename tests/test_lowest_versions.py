"""The lowest versions that pyproject.toml declares."""

from __future__ import annotations

from tools.lowest_versions import lowest


def test_every_package_of_the_core_has_its_lowest_version():
    found = dict(line.split("==") for line in lowest())
    assert {"numpy", "scipy", "scikit-learn", "threadpoolctl", "rich", "pandas", "pyarrow", "duckdb"} <= set(found)
    assert found["numpy"] == "2.0"


def test_a_minimum_is_read_from_the_file(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["a>=1.5", "b"]\n[project.optional-dependencies]\n'
        'tables = ["c>=2"]\nsecure = []\nprivacy = []\nmaps = ["a>=1.5"]\nexcel = []\nsql = []\n'
        "mysql = []\nmssql = []\natlas = []\n"
    )
    assert lowest(tmp_path / "pyproject.toml") == ["a==1.5", "c==2"]

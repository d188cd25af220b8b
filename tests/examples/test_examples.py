"""Every example runs as a program, with no data folder; building the documentation runs them with the data."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from fedspan import datasets

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def some_digits(load=datasets.load_digits):
    """Return 500 of the images: a map of all takes long."""
    digits = load()
    return datasets.Bunch(**digits | {"data": digits.data[:500], "target": digits.target[:500]})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSPAN_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr("sys.argv", [str(path)])
    if path.stem == "federated_map":
        monkeypatch.setattr(datasets, "load_digits", some_digits)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()

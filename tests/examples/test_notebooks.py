"""Every notebook runs from its first cell to its last, and prints what it has stored."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from ..docs.test_guides import alike

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
SPEC = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "notebooks.py")
notebooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(notebooks)


@pytest.fixture
def plots(monkeypatch):
    """Let notebooks draw: without a screen, and to nowhere where matplotlib is not installed."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    if importlib.util.find_spec("matplotlib") is None:
        plt = MagicMock()
        plt.subplots.return_value = (MagicMock(), MagicMock())
        monkeypatch.setitem(sys.modules, "matplotlib", MagicMock(pyplot=plt))
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plt)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_there_is_one():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_prints_what_it_has_stored(path, tmp_path, monkeypatch, plots):
    monkeypatch.chdir(tmp_path)
    stored = read(path)
    for now, then in zip(notebooks.printed(notebooks.run(stored)), notebooks.printed(stored), strict=True):
        assert alike(now, then), (
            f"stored is\n{then}\nand now it prints\n{now}\n(python docs/notebooks.py stores it again)"
        )


def code(source, *outputs):
    return {"cell_type": "code", "source": [source], "outputs": list(outputs)}


def test_cells_share_their_names_and_outputs_are_their_own(plots):
    run = notebooks.run({"cells": [code("a = 2\n"), code("print(a + 1)"), {"cell_type": "markdown", "source": ["*"]}]})
    assert notebooks.printed(run) == ["", "3\n", ""]
    assert run["cells"][0]["outputs"] == []


def test_a_cell_that_fails_is_named(plots):
    with pytest.raises(ZeroDivisionError) as raised:
        notebooks.run({"cells": [code("a = 2"), code("a / 0")]})
    assert raised.traceback[-1].frame.code.raw.co_filename == "cell 1"


def test_the_page_has_text_code_outputs_and_pictures(tmp_path):
    drawn = {"output_type": "display_data", "data": {"image/png": "AAAA"}}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        code("print(1)", {"output_type": "stream", "text": ["1\n"]}, drawn),
    ]
    page = notebooks.page({"cells": cells}, "name", tmp_path)
    assert page.startswith("# Title\ntext\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n![")
    assert (tmp_path / "name-1.png").read_bytes() == b"\0\0\0"

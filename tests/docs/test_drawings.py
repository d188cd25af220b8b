"""The drawings are what their script draws, and know every folder of the package."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("drawings", DOCS / "drawings.py")
drawings = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(drawings)


@pytest.mark.parametrize("name", drawings.PICTURES)
def test_the_file_is_up_to_date(name):
    drawn = drawings.PICTURES[name]()
    assert (DOCS / "_static" / name).read_text(encoding="utf-8") == drawn, "run: python docs/drawings.py"
    ET.fromstring(drawn)


def test_every_folder_is_drawn():
    package = DOCS.parent / "src" / "fedspan"
    found = {p.name for p in package.iterdir() if (p / "__init__.py").is_file()}
    found |= {p.stem for p in package.glob("*.py") if p.stem != "__init__"}
    assert found == {name for layer in drawings.layers() for name in layer}


def test_the_files_of_a_call_are_there():
    package = DOCS.parent / "src" / "fedspan"
    for _, _, files in drawings.WAY:
        first, *more = files.split(", ")
        for name in [first, *(f"{first.rsplit('/', 1)[0]}/{other}" for other in more)]:
            assert list(package.glob(name)), name

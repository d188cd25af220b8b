"""The reference is made of the package: every public name and every protocol is there without being listed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import fedspan as fs

from ..laws.protocol_examples import discovered

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    sys.path.insert(0, str(DOCS))
    try:
        importlib.import_module("reference").write_reference(folder)
    finally:
        sys.path.remove(str(DOCS))
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.rst")}


def test_every_name_of_the_package_is_listed(pages):
    assert [name for name in fs.__all__ if f"   {name}\n" not in pages["fedspan.rst"]] == []
    for module in ("linalg", "aggregation", "attacks", "datasets"):
        names = getattr(fs, module).__all__
        assert [name for name in names if f"   {name}\n" not in pages[f"fedspan.{module}.rst"]] == []
    assert "   FedspanError\n" in pages["fedspan.errors.rst"]
    assert "   encode\n" in pages["fedspan.wire.rst"]
    assert "_varint" not in pages["fedspan.wire.rst"]


def test_every_protocol_has_its_place(pages):
    for name in discovered():
        file, function = name.split(".")
        assert f".. autofunction:: fedspan.protocols.{file}.{function}\n" in pages[f"protocols/{file}.rst"]
        assert f"   {file}\n" in pages["protocols/index.rst"]


def test_a_protocol_page_says_what_leaves_the_site(pages):
    assert "Leaves the site: the upper triangle of ``X'X``" in pages["protocols/covariance_pca.rst"]

"""The reference is made of the package: every room, public name, protocol and step has its place in it."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

import fedspan as fs

from ..laws.protocol_examples import EXAMPLES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("reference")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def pages(reference, tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    reference.write_reference(folder)
    found = {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.rst")}
    return {name: path.read_text(encoding="utf-8") for name, path in found.items()}


def test_every_room_belongs_to_one_topic(reference):
    package = ROOT / "src" / "fedspan"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")} | {path.stem for path in package.glob("*.py")}
    listed = [room for topic in reference.TOPICS.values() for room in topic.rooms]
    assert sorted([*listed, *reference.INTERNAL]) == sorted(rooms - {"__init__"})


def listed(page):
    """Return the dotted names that a page lists."""
    blocks = re.findall(r"currentmodule:: (\S+)\n\n.. autosummary::\n   :toctree: names\n\n((?:   \w+\n)+)", page)
    return [f"{module}.{name}" for module, names in blocks for name in names.split()]


def test_every_public_name_is_listed_once(pages):
    found = [name for page in pages.values() for name in listed(page)]
    assert len(found) == len(set(found))
    wanted = [f"fedspan.{name}" for name in fs.__all__]
    for module in ("linalg", "aggregation", "attacks", "datasets", "privacy", "audit", "report"):
        wanted += [f"fedspan.{module}.{name}" for name in getattr(fs, module).__all__]
    assert [name for name in wanted if name not in found] == []
    assert "fedspan.errors.FedspanError" in found
    assert "fedspan.wire.encode" in found
    assert not [name for name in found if "._" in name]


def test_names_are_on_the_page_of_their_topic(pages):
    for topic, name in {"pca": "FedPCA", "maps": "FedTSNE", "engines": "federate", "federation": "Policy"}.items():
        assert f"fedspan.{name}" in listed(pages[topic])


def test_every_protocol_and_every_step_has_its_place(pages, reference):
    for name, example in EXAMPLES.items():
        module = example.protocol.__module__
        assert f".. autofunction:: {module}.{name}\n" in pages[reference.page_of(module)]
    for id, step in reference.steps().items():
        assert f":doc:`{id} <" in pages[step.function.__module__.split(".")[1].replace("sums", "tables")]


def test_every_described_function_exists(pages):
    for page in pages.values():
        for module, function in re.findall(r"autofunction:: (\S+)\.(\w+)\n", page):
            assert callable(getattr(importlib.import_module(module), function))


def test_a_page_states_what_leaves_the_site(pages):
    assert "Leaves the site: the upper triangle of ``X'X``" in pages["pca/covariance"]
    assert re.search(r":doc:`pca.gram </api/pca/covariance>`\n     - sums\n", pages["pca"])


def test_every_link_of_the_pages_leads_to_a_page(pages):
    links = [
        link for text in pages.values() for link in re.findall(r"</?(?:api/)?([\w/]+)>`|:doc:`/api/([\w/]+)`", text)
    ]
    found = {first or second for first, second in links}
    examples = {f"gallery/{path.stem}" for path in (ROOT / "examples").glob("*.py")}
    assert found <= set(pages) | examples
    assert found & examples


def test_a_topic_leads_to_the_examples_that_use_it(pages):
    assert ":doc:`Detect anomalies across clinics </gallery/detect_anomalies>`" in pages["anomaly"]
    assert "/gallery/federated_map" in pages["maps"]
    assert "/gallery/federated_map" not in pages["few_shot"]


def test_every_command_is_explained(pages):
    for command in ("fedspan run", "fedspan site check", "fedspan federation init", "fedspan reproduce"):
        assert f"{command}\n----" in pages["cli"]

"""Names of fedspan's modules, functions and steps in documents, examples, benchmarks and tools exist."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import fedspan as fs
from fedspan.federation.site.discovery import install_steps

ROOT = Path(__file__).parents[2]
BUILT = {"api", "gallery", "_build"}
FILES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
FILES += sorted(
    path
    for folder in ("docs", "examples", "benchmarks", "tools")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".md", ".py", ".ipynb") and not BUILT & set(path.relative_to(ROOT).parts)
)
#: File names and the name of a logger.
OTHERS = {"fedspan.json", "fedspan.toml", "fedspan.site"}


def exists(name):
    """Whether a dotted name is a module, or an attribute of one."""
    found, *parts = name.split(".")
    thing = importlib.import_module(found)
    for part in parts:
        found += f".{part}"
        try:  # a module first: fedspan.cli has a function of the same name as its module main
            thing = importlib.import_module(found)
        except ModuleNotFoundError:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
    return True


def imported(source):
    """Yield the dotted names that the imports of a program take from fedspan."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("fedspan."):
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_of_the_package_exist(path):
    text = path.read_text(encoding="utf-8")
    names = set(re.findall(r"\bfedspan(?:\.[A-Za-z_]\w*)+", text)) - OTHERS
    names |= {f"fedspan{name}" for name in re.findall(r"\bfs((?:\.[A-Za-z_]\w*)+)", text)}
    if path.suffix == ".py":
        names |= set(imported(text))
    assert [name for name in sorted(names) if not exists(name)] == []


@pytest.fixture(scope="module")
def functions():
    return {step.function.__name__ for step in install_steps().values()}


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.suffix == ".md"], ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_steps_that_a_page_names_exist(path, functions):
    named = set(re.findall(r"`(local_\w+)`", path.read_text(encoding="utf-8"))) - {"local_detectors", "local_steps"}
    assert sorted(named - functions) == []


def test_names_that_do_not_exist_are_noticed():
    assert exists("fedspan.FedPCA.fit")
    assert exists("fedspan.pca.fedpg")
    assert not exists("fedspan.estimators")
    assert not exists("fedspan.pca.fedpg.no_such_step")
    assert list(imported("from fedspan.pca import fedpg\nimport numpy")) == ["fedspan.pca.fedpg"]


def test_every_rule_and_every_attack_is_named_on_the_page_about_them():
    page = (ROOT / "docs" / "resilience.md").read_text(encoding="utf-8")
    names = {*fs.aggregation.__all__, *fs.attacks.__all__} - {"Aggregator"}
    assert len(names) > 20
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", page)] == []

"""Links of the Markdown pages lead somewhere, on a code host as on the site: relative paths to files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE = {"gallery", "api", "_build"}  # folders of docs that building the site makes
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if not MADE & set(p.parts))]


def prose(path):
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """Return the anchors of a page's headings, as code hosts and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    for link in links:
        assert not link.startswith("/"), link
        path, _, anchor = link.partition("#")
        if path.startswith(("http://", "https://")):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, and there is no such file"
        assert target.is_relative_to(ROOT)
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}, and there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page):
    named = re.findall(
        r"`((?:docs|examples|tests|src|benchmarks)/[\w./-]+\.(?:py|md))`", page.read_text(encoding="utf-8")
    )
    missing = [name for name in named if not (ROOT / name).is_file()]
    assert not missing


@pytest.fixture(scope="module")
def written():
    """The text of all tests."""
    return "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_a_page_names_are_there(page, written):
    named = re.findall(r"`(test_\w+?)(?:\.\.\.)?`", page.read_text(encoding="utf-8"))
    missing = [name for name in named if f"def {name}" not in written]
    assert not missing


def test_every_page_is_reached_from_the_index():
    docs = ROOT / "docs"
    reached, todo = set(), [docs / "index.md"]
    while todo:
        page = todo.pop()
        if page in reached or not page.is_file():
            continue
        reached.add(page)
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
            names = [line for line in tree.split() if not line.startswith(":")]
            todo += [(page.parent / f"{name}.md").resolve() for name in names]
    lost = sorted(str(page.relative_to(ROOT)) for page in set(PAGES[1:]) ^ reached)
    assert not lost, "name each in a toctree, such as that of docs/index.md or docs/protocols/index.md"

"""Pages in plain English: short sentences, a picture in every guide, and lines of code that fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE = {"gallery", "api", "_build"}  # folders of docs that building the site makes
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if not MADE & set(path.relative_to(ROOT).parts)),
]
GUIDES = [path for path in PAGES if path.parent.name == "guides" and path.stem != "index"]
#: The most words of a sentence, on average over a page.
MOST_WORDS = 25
#: The longest line of code: at 1300 pixels it is not broken.
LONGEST_LINE = 120


def prose(text):
    """Yield the paragraphs and points of a page: no code, tables, headings or pictures."""
    text = re.sub(r"^(`{3,}|:{3,}).*?^\1\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=[#|])", text):
        words = part.strip()
        if words and not words.startswith(("#", "|", "![", "<", "%")):
            yield re.sub(r"\s+", " ", re.sub(r"^(?:[-*]|\d+\.)\s+", "", words))


def sentences(text):
    """Yield the words of each sentence; a name in code is one word."""
    for part in prose(text):
        plain = re.sub(r"`[^`]*`", "Code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", part))
        for sentence in re.split(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_]*[A-Z0-9])", plain):
            words = re.findall(r"[A-Za-z][\w'-]*", sentence)
            if len(words) > 2:
                yield words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_sentences_are_short(page):
    lengths = [len(words) for words in sentences(page.read_text(encoding="utf-8"))]
    assert not lengths or sum(lengths) / len(lengths) <= MOST_WORDS


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_every_guide_has_a_picture_that_is_there(page):
    pictures = re.findall(r"^!\[[^\]]{10,}\]\(([^)]+)\)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert pictures
    for picture in pictures:
        assert (page.parent / picture).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lines_of_code_fit(page):
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert [line for block in blocks for line in block.splitlines() if len(line) > LONGEST_LINE] == []


def test_sentences_are_counted():
    text = "# Title\n\nOne two three. Four `five six` seven!\n\n- a point of five words\n\n| a | table |\n"
    assert [len(words) for words in sentences(f"{text}\n```\nlines of code here\n```\n")] == [3, 3, 5]

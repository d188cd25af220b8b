"""The check of the built site sees links that lead nowhere and pages that load from elsewhere, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("site_check", Path(__file__).parents[2] / "docs" / "site_check.py")
site_check = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site_check)


@pytest.fixture
def site(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text('<h1 id="top"></h1><a href="sub/b.html#here">b</a><a href="#top">up</a>')
    (tmp_path / "sub" / "b.html").write_text('<p id="here"></p><a href="https://example.org">out</a>')
    (tmp_path / "left.html").write_text('<a href="gone.html">of a page that is no more</a>')
    return tmp_path


def test_a_good_site(site):
    assert site_check.problems(site, ["a", "sub/b"]) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('<a href="../c.html">c</a>', "which is not there"),
        ('<a href="../a.html#bottom">a</a>', "no such place"),
        ('<img src="picture.png">', "which is not there"),
        ('<script src="https://example.org/x.js"></script>', "loads https://example.org/x.js"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "loads //example.org/x.css"),
    ],
)
def test_what_is_wrong_is_said(site, line, words):
    page = site / "sub" / "b.html"
    page.write_text(page.read_text() + line)
    (found,) = site_check.problems(site, ["a", "sub/b"])
    assert found.startswith("sub/b.html")
    assert words in found

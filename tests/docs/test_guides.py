"""The guides are followed to the letter: code and commands run, in order, and print what the page says."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path

import numpy as np
import pytest

from fedspan.cli import main

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / f"{name}.md" for name in ("index", "start", "protocols", "secure-sums", "mixed-regression", "leaks")]
PAGES += sorted(page for page in (DOCS / "guides").glob("*.md") if page.stem != "index")
BLOCK = re.compile(r"^```(python|toml|console)\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", flags=re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


def alike(printed, shown):
    """Return whether two texts are the same but for numbers that differ by little, as those of other processors may."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split():
        return False
    found, expected = (np.array(NUMBER.findall(text), dtype=float) for text in (printed, shown))
    return bool(np.allclose(found, expected, rtol=0.05, atol=0.0051))


def follow(kind, code, before, names):
    """Follow a block: run Python, write the file that was named just `before`, or run commands."""
    if kind == "toml":
        Path(re.findall(r"`([\w-]+\.toml)`:\s*$", before)[-1]).write_text(code, encoding="utf-8")
    elif kind == "console":
        for line in code.splitlines():
            assert line.startswith("$ fedspan "), f"this test cannot run {line}"
            assert main(shlex.split(line)[2:]) == 0, line
    else:
        exec(compile(code, names["__name__"], "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_the_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": f"page_{page.stem.replace('-', '_')}"}
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert blocks
    for block in blocks:
        kind, code, shown = block.groups()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a few rounds, which is what makes a page quick
            follow(kind, code, text[: block.start()], names)
        printed = capsys.readouterr().out
        assert not shown or alike(printed, shown), f"the page shows\n{shown}\nand its code prints\n{printed}"
    missing = [name for name in re.findall(r"`(study/[\w.]+)`", text) if not Path(name).is_file()]
    assert not missing


def test_texts_that_differ_are_distinguished():
    assert alike("alarms: 11% of rows", "alarms: 11% of\nrows")
    assert not alike("alarms: 11% of rows", "alarms: 19% of rows")
    assert not alike("alarms: 11% of rows", "alarm: 11% of rows")

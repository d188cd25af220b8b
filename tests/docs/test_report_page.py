"""The page on reports is followed to the letter."""

from __future__ import annotations

import re
from pathlib import Path

import fedspan as fs
from fedspan.report.page import LINKS

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")


def test_its_lines_run_and_print_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, printed = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL).groups()
    exec(code, {})
    assert capsys.readouterr().out == printed
    assert "ROC at the learned threshold" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_it_knows_every_section_and_every_estimator():
    sections = PAGE.split("| section |")[1].split("| model |")[0]
    assert all(name in sections for name in LINKS.values())
    models = PAGE.split("| model |")[1].split("## ROC")[0]
    detectors = [name for name in fs.ESTIMATORS if name.endswith("Detector")]
    for name in set(fs.ESTIMATORS) - set(detectors):
        assert f"`{name}`" in models

"""The page on reports is followed to the letter."""

from __future__ import annotations

import re
from pathlib import Path

import fedspan as fs

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")


def test_its_lines_run_and_its_table_has_every_section_of_the_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code, printed in re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(code, names)
        assert capsys.readouterr().out == printed
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "ROC at the learned threshold" in report
    (navigation,) = re.findall(r"<nav.*?</nav>", report)
    links = re.findall(r">([^<]+)</a>", navigation)
    assert len(links) >= 7
    sections = PAGE.split("| section |")[1].split("| model |")[0]
    assert [name for name in links if name not in sections] == []


def test_it_knows_every_estimator():
    models = PAGE.split("| model |")[1].split("## ROC")[0]
    others = [name for name in fs.ESTIMATORS if not name.endswith("Detector")]
    missing = [name for name in others if f"`{name}`" not in models]
    assert not missing, "add them to the table of models in docs/report.md, with what their reports draw"

"""``fedspan demo``."""

from __future__ import annotations

import re

import fedspan as fs
from fedspan.cli import main


def test_the_demo_leaves_reports_and_exact_models(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    shown = capsys.readouterr().out
    angles = [float(found) for found in re.findall(r"pooled rows: (\S+)", shown)]
    assert len(angles) == 2
    assert max(angles) < 1e-8
    page = (tmp_path / "demo" / "report.html").read_text()
    assert 'href="digits/report.html"' in page
    assert 'href="breast-cancer/report.html"' in page
    for name in ("digits", "breast-cancer"):
        folder = tmp_path / "demo" / name
        assert (folder / "report.html").stat().st_size > 10_000
        assert fs.load(folder / "model.fedspan").components_.shape[0] == 10
    assert main(["demo", "--out", str(tmp_path / "demo"), "--seed", "1"]) == 0

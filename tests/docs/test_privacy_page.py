"""The page on privacy: its code runs, top to bottom, and prints what the page says."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the budget that is to be exceeded
        for block in blocks:
            exec(block, names)
    said = capsys.readouterr().out
    assert len(blocks) == 4
    assert "epsilon 4 (accountant: 4) at delta 1e-05, simulated; covers" in said
    assert (
        "for one row of one site added or removed, simulated; covers all sums, and so the components, by secure" in said
    )
    assert said.count(" 4.0\n") == 4
    assert "PaperNoise(beta=1.0, delta=1e-05)" in said
    assert "Ledger(epsilon=6 at delta=1e-05, spent 4) True" in said
    assert "refuses: its privacy budget is epsilon=6 at delta=1e-05" in said

"""The lines of the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedspan as fs
from fedspan.secure_sum.sum_fixed_point import FixedPoint

PAGE = Path(__file__).parents[2] / "docs" / "secure-sums.md"


def test_the_lines_of_the_page_run(capsys):
    first, settings = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    names = {}
    exec(compile(first, str(PAGE), "exec"), names)
    difference, summary = capsys.readouterr().out.splitlines()
    assert float(difference) < 1e-13
    assert summary.startswith("FedPCA: 3 calls to 6 sites")
    exec(compile(settings, str(PAGE), "exec"), names)
    numbers = FixedPoint.of(fs.SecureSum(threshold=0.8, least=5, largest=1e6, resolution=1e-9))
    assert numbers.words == 1
    assert FixedPoint.of(fs.SecureSum()).resolution == pytest.approx(1.3e-29, rel=0.05)

"""Errors about a missing extra name an install line that works: the package is not published."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fedspan"


def test_no_sentence_names_a_package_that_is_not_published():
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install \W*fedspan\b", line)
    ]
    assert found == []

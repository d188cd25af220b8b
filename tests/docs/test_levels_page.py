"""The page of levels is made of today's declarations."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SPEC = importlib.util.spec_from_file_location("levels", Path(__file__).parents[2] / "docs" / "levels.py")
levels = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(levels)


def test_the_page_is_up_to_date():
    assert levels.PAGE.read_text(encoding="utf-8") == levels.page(), "run: python docs/levels.py"

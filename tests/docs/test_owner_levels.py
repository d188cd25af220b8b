"""The page for owners shows what a hostile analyst gets at each level today."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import owner_levels


@pytest.fixture(scope="module")
def analysts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("levels")
    return [owner_levels.Analyst(folder / level, level) for level in owner_levels.LEVELS]


@pytest.mark.parametrize("name", owner_levels.ROUTES)
def test_routes_to_rows_are_as_stated(name, analysts):
    page = (Path(__file__).parents[2] / "docs" / "site-owner.md").read_text(encoding="utf-8")
    found = [owner_levels.outcome(analyst, owner_levels.ROUTES[name]) for analyst in analysts]
    assert f"| {name} | {' | '.join(found)} |" in page
    assert not any("**" in one for one in (found[0], found[2]))  # neither at aggregate nor at private

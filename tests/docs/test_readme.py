"""The README's table has a figure and a command in every row, its commands are there, and its picture is small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedspan.cli import main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split("|") for line in TEXT.splitlines() if line.startswith("| **")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].split("**")[1])
def test_every_row_has_a_figure_and_a_command(row):
    what, measured, command = row
    assert re.search(r"`\w", what)
    assert re.search(r"\d", measured)
    assert re.search(r"`(fedspan|python) .*`", command)


def test_the_commands_are_there(capsys):
    commands = [re.search(r"`(.*)`", row[2]).group(1).split() for row in ROWS]
    assert len(commands) >= 10
    for program, *rest in commands:
        if program == "fedspan":
            with pytest.raises(SystemExit) as done:
                main([*rest, "--help"])
            assert done.value.code == 0, rest
        elif rest[:2] == ["-m", "benchmarks"]:
            assert (ROOT / "benchmarks" / f"{rest[2]}.py").is_file(), rest
        elif rest[:2] == ["-m", "pytest"]:
            assert (ROOT / rest[2]).exists(), rest
        else:
            assert (ROOT / rest[0]).exists(), rest
    assert "usage: fedspan reproduce" in capsys.readouterr().out


def test_the_picture_is_there_with_the_command_that_makes_it():
    (picture,) = re.findall(r"^!\[[^\]]+\]\(([^)]+)\)", TEXT, flags=re.MULTILINE)
    script = re.search(rf"`python (\S+) --out {re.escape(picture)}`", TEXT).group(1)
    assert (ROOT / script).is_file()
    assert (ROOT / picture).stat().st_size < 250_000

"""Output of commands: text from other sites commands neither a terminal nor a spreadsheet."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from fedspan.cli import main
from fedspan.cli.console import one_line_warning, print_line, print_table, spreadsheet_cells

HOSTILE = "north\x1b]0;evil\x07\x9b2J\u202e"


def test_lines_tables_and_warnings_have_no_control_characters(capsys):
    print_line(f"site {HOSTILE} failed")
    print_table(["site"], [[HOSTILE]], [])
    print(one_line_warning(UserWarning(HOSTILE), UserWarning, "f", 1))
    shown = capsys.readouterr().out
    assert "north" in shown
    assert all(sign.isprintable() or sign == "\n" for sign in shown)


def test_errors_have_no_control_characters(tmp_path, capsys):
    assert main(["check", str(tmp_path / HOSTILE)]) == 2
    shown = capsys.readouterr().err
    assert "\\x1b" in shown
    assert all(sign.isprintable() or sign == "\n" for sign in shown)


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-x", "@SUM(A1)", "\tx"])
def test_a_spreadsheet_takes_no_text_for_a_formula(cell):
    frame = pd.DataFrame(
        {cell: [cell, "plain"], "n": [-1.5, 2.0]}, index=pd.MultiIndex.from_tuples([(cell, 1), ("b", 2)])
    )
    written = io.StringIO()
    spreadsheet_cells(frame).to_csv(written)
    assert f"'{cell}" in written.getvalue()
    assert not any(
        field.strip('"').startswith(cell) for line in written.getvalue().splitlines() for field in line.split(",")
    )
    assert spreadsheet_cells(frame)["n"].tolist() == [-1.5, 2.0]
    pd.testing.assert_frame_equal(spreadsheet_cells(frame.iloc[1:, 1:]), frame.iloc[1:, 1:])

"""``fedspan describe`` leaves a page and prints what pandas would for the pooled rows."""

from __future__ import annotations

import pytest

from fedspan.cli import main

from ..statistics.hospital_table import patients, split


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Write a table of three hospitals, one of which has older patients, and a study without a model."""
    monkeypatch.chdir(tmp_path)
    table = patients(300).assign(hospital=split("even", 300))
    table.loc[table["hospital"] == 2, "age"] += 40
    table.to_csv("all.csv", index=False)
    (tmp_path / "study.toml").write_text('[data]\nfile = "all.csv"\nsite_column = "hospital"\n')
    return table


def test_a_page_and_a_table(study, tmp_path, capsys):
    assert main(["describe", "study.toml", "--by", "sex"]) == 0
    printed = capsys.readouterr().out
    assert f"{study['age'].mean():.6g}" in printed
    assert "site 2 differs from the rest in age" in printed
    page = (tmp_path / "study.describe.html").read_text(encoding="utf-8")
    for words in (
        "Which site differs",
        "Groups",
        "Correlations",
        "Missing cells",
        "mean (deviation)",
        "describe.bin_counts",
    ):
        assert words in page
    assert (tmp_path / "study.describe.html").stat().st_mode & 0o077 == 0


def test_settings_of_the_study_and_another_file(study, tmp_path):
    with (tmp_path / "study.toml").open("a") as file:
        file.write('[federation]\nsecure_sum = true\n[describe]\nby = "sex"\nbins = 5\n')
        file.write('categories = { sex = ["f", "m"], code = ["A", "B"] }\n')
    assert main(["describe", "study.toml", "--out", "look.html"]) == 0
    page = (tmp_path / "look.html").read_text(encoding="utf-8")
    assert "Which site differs" not in page  # sums are secure
    assert "Groups" in page


@pytest.mark.parametrize(
    ("lines", "arguments", "words"),
    [
        ('[describe]\nmean = "all"\n', [], "'mean' is not a known key"),
        ("", ["--by", "ward"], "by='ward' is no column of the table"),
        ("", ["--out", "nowhere/look.html"], "its folder does not exist"),
        ("[describe]\nbins = 0\n", [], "bins=0 must be a whole number of at least 1"),
    ],
)
def test_mistakes_are_sentences(study, tmp_path, capsys, lines, arguments, words):
    with (tmp_path / "study.toml").open("a") as file:
        file.write(lines)
    assert main(["describe", "study.toml", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.glob("*.html"))

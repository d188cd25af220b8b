"""``fedspan describe`` leaves a page and prints what pandas would for the pooled rows."""

from __future__ import annotations

import io
import sys

import numpy as np
import pandas as pd
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
    ("arguments", "words"),
    [
        (["--crosstab", "sex", "flag"], ["chi-square ", "(all)"]),
        (["--histogram", "age", "--by", "sex"], ["from", "inf", " f", " m"]),
        (["--pairs", "spearman"], ["age", "1"]),
        (["--pairs", "covariance"], ["age", "crp"]),
    ],
)
def test_one_table_instead_of_the_page(study, tmp_path, capsys, arguments, words):
    assert main(["describe", "study.toml", *arguments, "--out", "table.csv"]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in words)
    assert not (tmp_path / "study.describe.html").exists()
    found = pd.read_csv(tmp_path / "table.csv", index_col=0)
    if "--crosstab" in arguments:
        wanted = pd.crosstab(study["sex"], study["flag"], margins=True)
        np.testing.assert_array_equal(found.to_numpy(), wanted.to_numpy())
    if "--pairs" in arguments:
        numbers = study[["age", "crp", "weight", "flag"]]
        wanted = numbers.cov() if "covariance" in arguments else numbers.corr("spearman")
        np.testing.assert_allclose(found.loc[numbers.columns, numbers.columns], wanted, rtol=1e-8)


@pytest.mark.parametrize(
    ("lines", "arguments", "words"),
    [
        ("", ["--crosstab", "sex", "flag", "--pairs", "pearson"], "are one table each: choose one of them"),
        ("", ["--histogram", "sex"], "holds text, and a histogram is of numbers"),
        ('[describe]\nmean = "all"\n', [], "'mean' is not a known key"),
        ("", ["--by", "ward"], "by='ward' is the name of no column"),
        ("", ["--out", "nowhere/look.html"], "its folder does not exist"),
        ("", ["--out", "look.docx"], "--out look.docx must end in .html"),
        ("", ["--pairs", "pearson", "--out", "look.html"], "--out look.html must end in .csv"),
        ("[describe]\nbins = 0\n", [], "bins=0 must be a whole number of at least 1"),
    ],
)
def test_mistakes_are_sentences(study, tmp_path, capsys, lines, arguments, words):
    with (tmp_path / "study.toml").open("a") as file:
        file.write(lines)
    assert main(["describe", "study.toml", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.glob("*.html"))


def test_the_table_is_written_as_the_files_of_the_study_are(study, tmp_path, capsys):
    text = study.assign(weight=study["age"] / 4 + 0.5, größe="ü").to_csv(index=False, sep=";", decimal=",")
    (tmp_path / "all.csv").write_text(text, encoding="utf-8-sig")
    data = '[data]\nfile = "all.csv"\nsite_column = "hospital"\nseparator = ";"\ndecimal = ","\n'
    (tmp_path / "study.toml").write_text(data)
    assert main(["describe", "study.toml", "--out", "table.csv"]) == 0
    assert main(["describe", "study.toml", "--crosstab", "sex", "größe", "--out", "counts.csv"]) == 0
    assert not (tmp_path / "study.describe.html").exists()
    assert (tmp_path / "table.csv").read_bytes().startswith("\ufeff;count".encode())
    found = pd.read_csv("table.csv", sep=";", decimal=",", index_col=0)
    assert found.loc["weight", "mean"] == pytest.approx((study["age"] / 4 + 0.5).mean())
    counts = (tmp_path / "counts.csv").read_text(encoding="utf-8-sig").splitlines()
    assert counts[-1] == "(all);300;300"


def test_a_terminal_that_lacks_a_letter_gets_its_code(study, monkeypatch):
    study.rename(columns={"age": "größe"}).to_csv("all.csv", index=False)
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding="ascii"))
    assert main(["describe", "study.toml"]) == 0
    assert rb"gr\xf6\xdfe" in output.getvalue()

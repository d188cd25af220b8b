"""``fedspan check``: what a study would do, without running it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import fedspan as fs
from fedspan.cli import main
from tests.cli.hospital_files import rows, write_hospitals


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_sites_columns_and_what_leaves_are_printed_and_nothing_is_written(folder, capsys):
    assert main(["init", *write_hospitals(folder)]) == 0
    before = sorted(folder.iterdir())
    capsys.readouterr()
    assert main(["check", "study.toml"]) == 0
    shown = capsys.readouterr().out
    assert "3 sites, 240 rows, 4 columns; 'fedspan run' writes the folder study" in shown
    assert re.search(r"north +80 +4", shown)
    assert re.search(r"ward +text +0", shown)
    assert "left out: patient" in shown
    assert "models: FedTabularEncoder, then FedPCADetector" in shown
    assert re.search(r"sums.moments +1 +number, weight, mean of its rows", shown)
    assert sorted(folder.iterdir()) == before
    about = int(re.search(r"about ([\d,]+) bytes leave each site", shown)[1].replace(",", ""))
    assert main(["run", "study.toml"]) == 0
    sent = sum(step.run_.bytes_up for _, step in fs.load("study").steps) / 3
    assert about == pytest.approx(sent, rel=0.1)


def test_replies_about_rows_grow_with_the_rows(folder, capsys):
    rows(0, 3000)[["age", "dose"]].to_parquet("a.parquet")
    rows(1, 3000)[["age", "dose"]].to_parquet("b.parquet")
    (folder / "study.toml").write_text(
        '[data]\nsites = { a = "a.parquet", b = "b.parquet" }\n[model]\nname = "FedSpectralClustering"\n'
        "n_clusters = 2\nn_landmarks = 5\nrounds = 2\n"
    )
    assert main(["check", "study.toml"]) == 0
    about = int(re.search(r"about ([\d,]+) bytes leave", capsys.readouterr().out)[1].replace(",", ""))
    assert about > 3000 * 5 * 4


def test_mistakes_show_before_the_run(folder, capsys):
    rows(0)[["age", "dose"]].to_csv("a.csv", index=False)
    text = '[data]\nsites = { a = "a.csv" }\n[model]\nname = "FedPCA"\nn_components = 9\n'
    (folder / "study.toml").write_text(text)
    assert main(["check", "study.toml"]) == 2
    assert "n_components=9 must be" in capsys.readouterr().err
    rows(0)[["age", "dose", "pulse"]].to_csv("a.csv", index=False)
    (folder / "study.toml").write_text(text.replace("9", "2"))
    assert main(["check", "study.toml"]) == 2
    assert "column 'pulse' with missing cells: let FedTabularEncoder be the first" in capsys.readouterr().err


def test_a_target_is_made_up_too(folder, capsys):
    for seed, name in enumerate("ab"):
        rows(seed)[["age", "dose"]].assign(cost=1.5, ward=seed).to_csv(f"{name}.csv", index=False)
    (folder / "study.toml").write_text(
        '[data]\nsites = { a = "a.csv", b = "b.csv" }\ntarget = "cost"\ntask = "ward"\n[model]\n'
        'name = "FedFewShotRegressor"\nrank = 1\n'
    )
    assert main(["check", "study.toml"]) == 0
    assert "target: cost; task: ward" in capsys.readouterr().out


def test_a_reader_that_has_seen_enough_ends_it_without_a_traceback(folder):
    """As with ``fedspan check study.toml | head``."""
    assert main(["init", *write_hospitals(folder)]) == 0
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fedspan", "check", "study.toml"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")

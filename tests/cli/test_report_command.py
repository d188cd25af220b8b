"""``fedspan report``: a page for every run that has left something, and one sentence where there is none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.cli import main

STUDY = """
[data]
file = "all.csv"
site_column = "hospital"

[[preprocess]]
name = "FedStandardScaler"

[model]
name = "FedPCA"
n_components = 2
"""


@pytest.fixture
def done(tmp_path):
    """The folder of a finished study."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["age", "dose", "weight"])
    frame["hospital"] = np.array(["north", "south", "east"])[np.arange(60) % 3]
    frame.to_csv(tmp_path / "all.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    assert main(["run", str(tmp_path / "study.toml")]) == 0
    return tmp_path / "study"


def section_ids(page):
    return [part.split('"')[0] for part in page.read_text(encoding="utf-8").split('<section id="')[1:]]


def test_a_finished_run_has_the_page_that_it_had(done, capsys):
    page = done / "report.html"
    before = section_ids(page)
    page.unlink()
    assert main(["report", str(done)]) == 0
    assert f"report: {page}" in capsys.readouterr().out
    assert section_ids(page) == before
    assert page.stat().st_mode & 0o777 == 0o600


def test_without_its_rows_a_run_has_a_page_that_says_so(done, tmp_path):
    (tmp_path / "all.csv").unlink()
    page = tmp_path / "elsewhere.html"
    assert main(["report", str(done), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "all.csv does not exist" in text
    assert "FedPCA" in text


def test_a_run_that_was_killed_has_a_page(tmp_path):
    X, sites = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 3
    fs.FedPCA(2).fit(fs.federate(X, sites=sites, run_dir=tmp_path / "kept"))
    record = tmp_path / "kept" / "run-000" / "record.jsonl"
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(lines[:2]) + lines[2][:20])  # as a kill leaves it
    for run in (tmp_path / "kept", tmp_path / "kept" / "run-000"):
        assert main(["report", str(run)]) == 0
        assert "not ended: still running, or it was killed" in (run / "report.html").read_text(encoding="utf-8")


def test_a_saved_model_has_a_page_beside_it(tmp_path):
    fs.FedPCA(2).fit(np.random.default_rng(0).normal(size=(30, 3))).save(tmp_path / "pca.fedspan")
    assert main(["report", str(tmp_path / "pca.fedspan")]) == 0
    assert "FedPCA" in (tmp_path / "pca.html").read_text(encoding="utf-8")


def test_other_folders_and_files_are_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert main(["report", str(tmp_path)]) == 2
    (tmp_path / "record.jsonl").write_text('{"kind": "call"}\n')
    assert main(["report", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "neither the folder of a run nor a saved model" in error
    assert "with a record.jsonl or a model.fedspan" in error
    assert "is not the record of a run" in error


def test_a_page_must_be_html(done, capsys):
    assert main(["report", str(done), "--out", str(done / "page.docx")]) == 2
    assert "page.docx must end in .html" in capsys.readouterr().err
    assert not (done / "page.docx").exists()

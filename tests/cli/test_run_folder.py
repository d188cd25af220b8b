"""A study's ``[report]``: labelled rows for a detector, images, and reports of earlier runs."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.cli import main

STUDY = """
[data]
file = "all.csv"
site_column = "device"

[[preprocess]]
name = "FedStandardScaler"

[model]
name = "FedPCADetector"
n_components = 2

[report]
judge = "test.csv"
label = "attack"
normal = 0
"""


@pytest.fixture
def study(tmp_path):
    rng = np.random.default_rng(0)
    columns = ["flows", "bytes", "ports", "rate"]
    frame = pd.DataFrame(rng.normal(size=(120, 4)), columns=columns)
    frame["device"] = np.array(["camera", "lock", "lamp"])[np.arange(120) % 3]
    frame.to_csv(tmp_path / "all.csv", index=False)
    test = pd.DataFrame(np.concatenate([rng.normal(size=(50, 4)), 5 * rng.normal(size=(40, 4))]), columns=columns)
    test["attack"] = np.repeat([0, 3], [50, 40])
    test.sample(frac=1.0, axis=1, random_state=1).to_csv(tmp_path / "test.csv", index=False)  # columns in another order
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def text_of(page):
    return page.read_text(encoding="utf-8")


def expected(study):
    folder = study.parent / "study"
    scaler = fs.load(folder / "preprocess-0-FedStandardScaler.fedspan")
    model = fs.load(folder / "model.fedspan")
    test = pd.read_csv(study.parent / "test.csv")
    alarm = model.predict(scaler.transform(test[list(scaler.feature_names_in_)])) < 0
    found = 100 * alarm[test["attack"] != 0].mean()
    return f"finds {found:.3g} % of 40 outliers"


def test_a_detector_is_judged_by_labelled_rows(study):
    assert main(["run", str(study)]) == 0
    page = study.parent / "study" / "report.html"
    assert "ROC at the learned threshold" in text_of(page)
    assert expected(study) in text_of(page)
    assert "name = &quot;FedPCADetector&quot;" in text_of(page)  # the study, to run it again
    page.unlink()
    assert main(["report", str(page.parent)]) == 0
    assert expected(study) in text_of(page)


def test_a_second_report_names_labelled_rows_that_are_missing(study):
    assert main(["run", str(study)]) == 0
    (study.parent / "test.csv").unlink()
    assert main(["report", str(study.parent / "study")]) == 0
    page = text_of(study.parent / "study" / "report.html")
    assert "test.csv does not exist" in page
    assert "ROC at" not in page
    assert "Scores of the training rows" in page


def test_a_report_of_an_old_run_has_the_versions_of_that_time(study):
    assert main(["run", str(study)]) == 0
    folder = study.parent / "study"
    for file in folder.glob("run-*/record.jsonl"):
        entries = [json.loads(line) for line in file.read_text().splitlines()]
        for entry in entries:
            if entry["kind"] == "versions":
                entry["numpy"] = "1.26.0"
        file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert main(["report", str(folder)]) == 0
    page = text_of(folder / "report.html")
    assert "1.26.0" in page
    assert np.__version__ not in page


def test_a_fetched_run_gets_a_second_report_with_labelled_rows(study):
    """As 'fedspan run --kit' and 'fedspan fetch' leave it: a study without [data], and no rows here."""
    assert main(["run", str(study)]) == 0
    folder = study.parent / "study"
    parts = STUDY.split("\n\n")
    (folder / "study.toml").write_text(
        "\n\n".join(part for part in parts if "[data]" not in part and "judge" not in part)
    )
    assert main(["report", str(folder)]) == 0
    page = text_of(folder / "report.html")
    assert "not read" not in page
    assert "ROC at" not in page
    with (folder / "study.toml").open("a") as file:
        file.write('\n[report]\njudge = "test.csv"\nlabel = "attack"\nnormal = "0"\n')
    assert main(["report", str(folder)]) == 0
    assert expected(study) in text_of(folder / "report.html")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("normal = 0", "", "go together"),
        ("normal = 0", 'normal = 0\ncolour = "red"', "'colour' is not a known key"),
        ('"test.csv"', '"gone.csv"', "gone.csv does not exist"),
        ('label = "attack"', 'label = "kind"', "test.csv has no column 'kind'"),
        ("normal = 0", "normal = 17", "both kinds of rows"),
        ('"FedPCADetector"', '"FedPCA"', "[report] judge needs a detector, and FedPCA is not one"),
        ("normal = 0", "normal = 0\nimage = 28", "must be a height and a width in pixels"),
    ],
)
def test_mistakes_are_reported_before_anything_runs(study, capsys, old, new, said):
    study.write_text(STUDY.replace(old, new))
    assert main(["run", str(study)]) == 2
    assert said in capsys.readouterr().err
    assert not (study.parent / "study").exists()


def test_a_missing_column_of_the_labelled_rows_is_named(study, capsys):
    test = pd.read_csv(study.parent / "test.csv").drop(columns="rate")
    test.to_csv(study.parent / "test.csv", index=False)
    assert main(["run", str(study)]) == 2
    assert "test.csv has no column 'rate'" in capsys.readouterr().err


def test_images_of_a_study(study):
    study.write_text(STUDY.split("[report]")[0] + "[report]\nimage = [2, 2]\n")
    assert main(["run", str(study)]) == 0
    page = study.parent / "study" / "report.html"
    tiles = text_of(page).count('class="tile"')
    assert tiles == 2
    page.unlink()
    assert main(["report", str(page.parent)]) == 0
    assert text_of(page).count('class="tile"') == tiles


def test_labelled_rows_do_not_go_to_a_coordinator(study, capsys):
    pytest.importorskip("nvflare")
    study.write_text(STUDY.replace(STUDY.split("\n\n")[0], ""))
    assert main(["run", str(study), "--kit", str(study.parent), "--detach"]) == 2
    assert "--detach goes without [report] judge" in capsys.readouterr().err

"""``fedspan audit``: of studies, runs and models; bad input is refused in one sentence."""

from __future__ import annotations

import json
import stat

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.cli import main
from tests.report.report_reading import Page

COLUMNS = ["age", "dose", "weight", "height"]
STUDY = """
output = "results"

[data]
file = "all.csv"
site_column = "hospital"
drop = ["id"]

[[preprocess]]
name = "FedStandardScaler"

[model]
name = "FedSpectralClustering"
n_clusters = 2
n_landmarks = 12
rounds = 3
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.gamma(2.0, size=(45, 4)) * [10, 1, 5, 8] + 50, columns=COLUMNS)
    frame["hospital"] = np.array(["north", "south", "east"])[np.arange(45) % 3]
    frame["id"] = [f"patient {i}" for i in range(45)]
    frame.to_csv(folder / "all.csv", index=False)
    (rng.gamma(2.0, size=(200, 4)) * [10, 1, 5, 8] + 50).tofile(folder / "raw")
    public = np.fromfile(folder / "raw").reshape(200, 4)
    pd.DataFrame(public, columns=COLUMNS).assign(more=1).to_csv(folder / "public.csv", index=False)
    np.savez(folder / "public.npz", X=public)
    (folder / "study.toml").write_text(STUDY)
    assert main(["run", str(folder / "study.toml")]) == 0
    return folder, frame


def card_of(folder):
    return json.loads((folder / "leaks.json").read_text())


def test_a_study_is_audited_against_its_own_rows(study, capsys):
    folder, frame = study
    assert main(["audit", str(folder / "results"), "--public", str(folder / "public.csv")]) == 0
    shown = capsys.readouterr().out
    out = folder / "results" / "audit"
    card = card_of(out)
    assert [entry["attack"].split(",")[0] for entry in card["entries"]] == [
        "trilateration",
        "trilateration",
        "had the sites turned their rows by a secret rotation",
        "sums of single sites",
        "search: arrays per row",
    ]
    assert card["entries"][0]["measures"]["relative_error"] < 1e-4
    assert "the coordinator has the data" in " ".join(shown.split())
    assert str(out / "leaks.html") in shown
    for file in out.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    page = Page((out / "leaks.html").read_text())
    text = " ".join(page.words)
    for word in ("Rebuilt rows", "Leak card", "What it means", "true rows", *COLUMNS):
        assert word in text
    # The pictures hold the rows in the units of the table: the first one of the first site, true and rebuilt.
    first = frame[frame["hospital"] == "east"].iloc[0]
    for name in COLUMNS:
        assert f"{name}, 1: {first[name]:.4g}" in text
        assert f"{name}, 2: {first[name]:.4g}" in text


def test_images_are_drawn_and_measured(study):
    folder, _ = study
    out = folder / "images"
    arguments = ["--image", "2x2", "--bounds", "0,200", "--out", str(out), "--public", str(folder / "public.npz")]
    assert main(["audit", str(folder / "results"), *arguments]) == 0
    assert card_of(out)["entries"][0]["measures"]["psnr"] > 60
    page = (out / "leaks.html").read_text()
    assert page.count('class="frame"') == 10 * 5  # ten rows: true, and by four attacks
    assert "best PSNR" in page


def test_truth_from_a_study_elsewhere_from_a_table_and_from_nowhere(study, tmp_path, capsys):
    folder, frame = study
    moved = tmp_path / "moved"
    (folder / "results").rename(moved)
    try:
        assert main(["audit", str(moved), "--out", str(tmp_path / "a")]) == 0
        assert "study's rows were not read" in capsys.readouterr().out
        assert card_of(tmp_path / "a")["entries"][0]["measures"] == {}
        assert "Rebuilt rows" in (tmp_path / "a" / "leaks.html").read_text()
        assert main(["audit", str(moved), "--out", str(tmp_path / "b"), "--truth", str(folder / "study.toml")]) == 0
        in_order = frame.sort_values("hospital", kind="stable")
        in_order.to_csv(tmp_path / "rows.csv", index=False)
        assert main(["audit", str(moved), "--out", str(tmp_path / "c"), "--truth", str(tmp_path / "rows.csv")]) == 0
        assert card_of(tmp_path / "b")["entries"] == card_of(tmp_path / "c")["entries"]
        assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700
        # In the order of the table, too; and the pictures are of the same rows.
        table = ["--out", str(tmp_path / "t"), "--truth", str(folder / "all.csv")]
        assert main(["audit", str(moved), *table]) == 0
        assert card_of(tmp_path / "t")["entries"] == card_of(tmp_path / "c")["entries"]
        assert "another order" in " ".join(card_of(tmp_path / "t")["remarks"])
        strips = [(tmp_path / name / "leaks.html").read_text().split('id="card"')[0] for name in "ct"]
        assert strips[0] == strips[1]
        assert card_of(tmp_path / "b")["entries"][0]["measures"]["reidentified"] == 1.0
        # The model alone reveals as much as the journal; without the model, the journal's sums give the landmarks.
        assert main(["audit", str(moved / "model.fedspan"), "--out", str(tmp_path / "d")]) == 0
        assert card_of(tmp_path / "d")["where"] == "the model"
        named = ["--model", str(moved / "model.fedspan"), "--out", str(tmp_path / "e")]
        assert main(["audit", str(moved / "run-001"), *named]) == 0
        assert card_of(tmp_path / "e")["where"] == "run-001/journal"
        assert main(["audit", str(moved / "run-001"), "--out", str(tmp_path / "f")]) == 0
        assert card_of(tmp_path / "f") == card_of(tmp_path / "e")
    finally:
        moved.rename(folder / "results")


def test_a_study_whose_data_changed_is_not_taken_for_the_truth(study, tmp_path, capsys):
    folder, frame = study
    kept = (folder / "all.csv").read_text()
    try:
        frame.iloc[:-3].to_csv(folder / "all.csv", index=False)
        assert main(["audit", str(folder / "results"), "--out", str(tmp_path / "x")]) == 0
    finally:
        (folder / "all.csv").write_text(kept)
    assert "has other rows than the run saw" in " ".join(capsys.readouterr().out.split())


def test_a_run_that_posted_no_rows(tmp_path, capsys):
    X = np.random.default_rng(0).normal(size=(20, 3))
    with fs.federate(X, sites=np.arange(20) % 2, run_dir=tmp_path / "run") as fed:
        fs.FedPCA(2).fit(fed)
    assert main(["audit", str(tmp_path / "run")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "No distances of rows to landmarks were found" in shown
    assert "The other searches need the true rows" in shown
    pd.DataFrame(X).to_csv(tmp_path / "rows.csv", index=False)
    assert main(["audit", str(tmp_path / "run"), "--truth", str(tmp_path / "rows.csv")]) == 0
    assert "No row was found" in " ".join(capsys.readouterr().out.split())
    assert "No row was found" in (tmp_path / "run" / "audit" / "leaks.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name a run or a model to audit"),
        (["results", "--of", "sense"], "leave out the run and other options"),
        (["--of", "sense"], "leave out the run and other options"),
        (["nowhere"], "neither the folder of a run nor a saved model"),
        (["."], "not the folder of a run, with a journal or a model.fedspan"),
        (["results", "--image", "4"], "--image '4' must be written as 28x28"),
        (["results", "--image", "0x4"], "at least one pixel"),
        (["results", "--image", "3x3"], "has 9 pixels, and rows have 4 columns"),
        (["results", "--bounds", "a,b"], "--bounds 'a,b' must be written as 0,1"),
        (["results", "--bounds", "1,0"], "bounds=(1.0, 0.0) must be"),
        (["results", "--public", "none.csv"], "none.csv does not exist"),
        (["results", "--public", "short.csv"], "has no column 'weight', which the run had"),
        (["results", "--truth", "public.csv"], "truth has 200 rows, and 45 were received"),
        (["results", "--model", "all.csv"], "is not a fedspan model"),
        (["all.csv"], "is not a fedspan model"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(arguments, sentence, study, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(study[0])
    (study[0] / "short.csv").write_text("age,dose\n1,2\n")
    assert main(["audit", *arguments, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_two_maps_are_compared_in_one_card(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)) + 6 * np.eye(2, 4)[rng.integers(0, 2, 120)]
    fed = fs.federate(X[:60], sites=np.arange(60) % 3)
    settings = {"rounds": 10, "exaggeration_rounds": 5, "codebooks": 2}
    fs.FedTSNE(share="centers", post_positions=True, sums_settings=settings, random_state=0).fit(fed).save(
        tmp_path / "private.fedspan"
    )
    fs.FedSpectralClustering(2, n_landmarks=12, rounds=3, random_state=0).fit(fed).save(tmp_path / "posted.fedspan")
    in_order = np.concatenate([X[:60][np.arange(60) % 3 == site] for site in range(3)])
    for name, rows in (("truth", in_order), ("public", X[60:])):
        pd.DataFrame(rows, columns=COLUMNS).to_csv(tmp_path / f"{name}.csv", index=False)
    asked = ["audit", str(tmp_path / "private.fedspan"), "--compare", str(tmp_path / "posted.fedspan")]
    asked += ["--truth", str(tmp_path / "truth.csv"), "--public", str(tmp_path / "public.csv")]
    assert main([*asked, "--out", str(tmp_path / "audit")]) == 0
    shown = capsys.readouterr().out
    for word in ("FedTSNE(share='centers')", "FedSpectralClustering", "trilateration", "positions: nearest centres"):
        assert word in shown
    card = card_of(tmp_path / "audit")
    posted = card["beside"][0]["entries"][0]["measures"]["relative_error"]
    assert posted < 1e-3 < min(entry["measures"].get("relative_error", 1) for entry in card["entries"])
    assert "trilateration" in (tmp_path / "audit" / "leaks.html").read_text()


def test_a_published_method_is_attacked_without_any_data(monkeypatch, tmp_path, capsys):
    from fedspan.audit import published_methods

    found = published_methods.image_sets()[0]
    few = published_methods.Images("digits", found.rows[:90], found.classes[:90] % 3, found.others)
    monkeypatch.setattr(published_methods, "image_sets", lambda: [few])
    monkeypatch.chdir(tmp_path)
    assert main(["audit", "--of", "sense"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "SENSE" in shown
    assert "rows to 1e-6" in shown
    assert "Repaired form" in shown
    assert list(tmp_path.iterdir()) == []

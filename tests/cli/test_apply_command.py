"""``fedspan apply``: what a trained model gives for each row of a new table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.cli import main
from fedspan.datasets.sources import Dialect, read_table
from tests.cli.hospital_files import rows, write_hospitals, write_new


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_three_files_become_alarms_by_three_commands(folder):
    """The bar of the front door: other column orders, text, gaps, semicolons, decimal commas; no edit of the data."""
    files, new = write_hospitals(folder), write_new(folder)
    assert main(["init", *files]) == 0
    assert main(["run", "study.toml"]) == 0
    for file in files:  # the training data are not needed any more
        (folder / file).unlink()
    assert main(["apply", "study", new, "--out", "scores.csv"]) == 0
    lines = (folder / "scores.csv").read_text().splitlines()
    assert lines[0] == "score;alarm;top_features"
    assert len(lines) == 21
    scores = pd.read_csv("scores.csv", sep=";", decimal=",")
    assert scores["alarm"][3]
    assert scores["score"].idxmax() == 3
    assert scores["top_features"][3].startswith("dose (")
    assert scores["alarm"].sum() < 8
    pipeline = fs.load("study")
    frame = read_table(folder / new, Dialect(";", ","))[list(pipeline[0].feature_names_in_)]
    np.testing.assert_allclose(-pipeline.score_samples(frame), scores["score"])
    np.testing.assert_array_equal(pipeline.predict(frame) == -1, scores["alarm"])


def test_one_word_in_a_column_of_decimal_commas_is_one_missing_cell(folder, capsys):
    """A word makes a whole column text: its other cells are numbers for the model all the same."""
    files, new = write_hospitals(folder), write_new(folder)
    assert main(["init", *files]) == 0
    assert main(["run", "study.toml"]) == 0
    frame = pd.read_csv(new, sep=";", dtype=str, keep_default_na=False)
    words = "1 cell of text where the model knows numbers (taken as missing)"
    for file, word, line in (("gap.csv", "", "20 rows"), ("word.csv", "n.a.", words)):
        frame.loc[7, "dose"] = word
        frame.to_csv(file, sep=";", index=False)
        assert main(["apply", "study", file, "--out", f"scores-{file}"]) == 0
        assert line in " ".join(capsys.readouterr().out.split())
    gap, with_word = (pd.read_csv(f"scores-{file}", sep=";") for file in ("gap.csv", "word.csv"))
    pd.testing.assert_frame_equal(gap, with_word)


@pytest.fixture
def tables(folder):
    for seed, name in enumerate(("north", "south")):
        rows(seed).drop(columns=["patient", "ward"]).fillna(70).assign(cost=lambda f: f["age"] * 2).to_parquet(
            f"{name}.parquet"
        )
    new = rows(5, 12).drop(columns=["patient", "ward"]).fillna(70)
    new[["dose", "pulse", "age"]].assign(other="x").to_csv("new.csv", index=False)
    return new


def trained(model, data="", sites='{ north = "north.parquet", south = "south.parquet" }'):
    text = f'[data]\nsites = {sites}\n{data}\n[[preprocess]]\nname = "FedStandardScaler"\n[model]\n{model}\n'
    with open("study.toml", "w") as file:
        file.write(text)
    assert main(["run", "study.toml"]) == 0
    return fs.load("study")


def applied(new="new.csv", out="out.csv"):
    assert main(["apply", "study", new, "--out", out]) == 0
    return pd.read_parquet(out) if out.endswith("parquet") else pd.read_csv(out)


MODELS = {
    "components": ('name = "FedPCA"\nn_components = 2', ["component_1", "component_2"], "transform"),
    "cluster": ('name = "FedKMeans"\nn_clusters = 2', ["cluster"], "predict"),
    "map position": ('name = "FedTSNE"\nshare = "centers"', ["x", "y"], "transform"),
    "local detector": ('name = "LocalPCADetector"', ["score", "alarm"], None),
    "distances": (
        'name = "FedLandmarks"\nn_landmarks = 3\nrounds = 2',
        ["fedlandmarks0", "fedlandmarks1", "fedlandmarks2"],
        "transform",
    ),
}


@pytest.mark.parametrize("what", sorted(MODELS))
@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
def test_every_kind_of_model_gives_its_own_columns(what, out, tables):
    settings, columns, method = MODELS[what]
    model = trained(settings, data='drop = ["cost"]')
    results = applied(out=out)
    assert list(results.columns) == columns
    assert len(results) == len(tables)
    if method:
        expected = np.asarray(getattr(model, method)(tables[["age", "dose", "pulse"]]))
        np.testing.assert_allclose(results.to_numpy().reshape(expected.shape), expected)


def test_predictions_by_site_and_by_task(folder, tables):
    frames = [pd.read_parquet(f"{name}.parquet").assign(site=name) for name in ("north", "south")]
    whole = pd.concat(frames)
    whole["cost"] += 5 * (whole["site"] == "south")
    whole.to_csv("all.csv", index=False)
    text = '[data]\nfile = "all.csv"\nsite_column = "site"\ntarget = "cost"\n[model]\n'
    (folder / "study.toml").write_text(text + 'name = "FedMixedRegressor"\nn_clusters = 2\nstart = "random"\n')
    assert main(["run", "study.toml"]) == 0
    new = tables.assign(site="south")
    new.to_csv("new.csv", index=False)
    expected = fs.load("study").predict(new[["age", "dose", "pulse"]], site="south")
    np.testing.assert_allclose(applied()["prediction"], expected)
    tables.to_csv("new.csv", index=False)
    np.testing.assert_allclose(applied()["prediction"], fs.load("study").predict(tables[["age", "dose", "pulse"]]))
    whole["half"] = np.where(whole["site"] == "south", "s", "n")
    whole.to_csv("all.csv", index=False)
    few = 'task = "half"\n[model]\nname = "FedFewShotRegressor"\nrank = 1\nfit_intercept = true\n'
    (folder / "study.toml").write_text(text.replace("[model]\n", few))
    assert main(["run", "study.toml", "--out", "few"]) == 0
    tables.assign(half="s").to_csv("new.csv", index=False)
    assert main(["apply", "few", "new.csv", "--out", "few.csv"]) == 0
    expected = fs.load("few").predict(tables[["age", "dose", "pulse"]], task="s")
    np.testing.assert_allclose(pd.read_csv("few.csv")["prediction"], expected)


def test_a_regression_with_effects_of_sites_states_which_effect_its_predictions_have(folder, tables, capsys):
    model = trained('name = "FedLinearRegression"\nsite_effect = "fixed"', data='target = "cost"')
    summary = (folder / "study" / "summary.txt").read_text()
    assert summary.splitlines()[2].split()[:3] == ["Dep.", "Variable:", "cost"]
    rows = tables[["age", "dose", "pulse"]]
    capsys.readouterr()
    assert main(["apply", "study", "new.csv", "--out", "out.csv"]) == 0
    assert "with the mean effect of the sites (--site names" in capsys.readouterr().out
    np.testing.assert_allclose(pd.read_csv("out.csv")["prediction"], model.predict(rows))
    assert main(["apply", "study", "new.csv", "--out", "out.csv", "--site", "south"]) == 0
    assert "mean effect" not in capsys.readouterr().out
    np.testing.assert_allclose(
        pd.read_csv("out.csv")["prediction"], model[-1].predict(model[0].transform(rows), site="south")
    )


def test_models_that_differ_by_site_are_applied_at_a_site(folder, tables, capsys):
    model = trained('name = "FedComBat"', data='drop = ["cost"]')
    assert main(["apply", "study", "new.csv", "--out", "out.csv"]) == 2
    assert "name the site of all rows with --site" in capsys.readouterr().err
    assert main(["apply", "study", "new.csv", "--out", "out.csv", "--site", "south"]) == 0
    rows = tables[["age", "dose", "pulse"]]
    expected = model[-1].transform(model[0].transform(rows), sites="south")
    results = pd.read_csv("out.csv")
    assert list(results.columns) == ["age", "dose", "pulse"]
    np.testing.assert_allclose(results, expected)
    (folder / "study").rename("combat")
    local = trained('name = "LocalPCADetector"', data='drop = ["cost"]')
    assert main(["apply", "study", "new.csv", "--out", "out.csv", "--site", "south"]) == 0
    expected = -local[-1].score_samples(local[0].transform(rows), site="south")
    np.testing.assert_allclose(pd.read_csv("out.csv")["score"], expected)
    assert not np.allclose(expected, -local[-1].score_samples(local[0].transform(rows)))


def test_rows_of_a_site_column_are_scored_by_their_own_site(folder, tables):
    whole = pd.concat([pd.read_parquet(f"{name}.parquet").assign(site=name) for name in ("north", "south")])
    whole.drop(columns="cost").to_csv("all.csv", index=False)
    text = '[data]\nfile = "all.csv"\nsite_column = "site"\n[model]\nname = "LocalPCADetector"\n'
    (folder / "study.toml").write_text(text)
    assert main(["run", "study.toml"]) == 0
    sites = np.array(["north", "south", "elsewhere"])[np.arange(len(tables)) % 3]
    tables.assign(site=sites).to_csv("new.csv", index=False)
    model, rows, found = fs.load("study")[-1], tables[["age", "dose", "pulse"]], applied()
    for name in ("north", "south", None):
        at = sites == (name or "elsewhere")
        np.testing.assert_allclose(found["score"][at], -model.score_samples(rows[at], site=name))
        np.testing.assert_array_equal(found["alarm"][at], model.predict(rows[at], site=name) == -1)


def test_a_curve_of_all_rows_gives_nothing_for_one(folder, tables, capsys):
    for name in ("north", "south"):
        pd.read_parquet(f"{name}.parquet").assign(died=1).to_parquet(f"{name}.parquet")
    (folder / "study.toml").write_text(
        '[data]\nsites = { north = "north.parquet", south = "south.parquet" }\ntarget = ["age", "died"]\n'
        '[model]\nname = "FedKaplanMeier"\n'
    )
    assert main(["run", "study.toml"]) == 0
    pd.read_parquet("north.parquet").to_csv("new.csv", index=False)
    assert main(["apply", "study", "new.csv", "--out", "out.csv"]) == 2
    assert "FedKaplanMeier describes all rows together" in capsys.readouterr().err


def test_columns_keep_their_names_behind_an_encoder(folder):
    for seed, name in enumerate(("north", "south")):
        rows(seed).drop(columns="patient").to_csv(f"{name}.csv", index=False)
    text = '[data]\nsites = { north = "north.csv", south = "south.csv" }\ntarget = "dose"\n'
    text += '[[preprocess]]\nname = "FedTabularEncoder"\n[model]\nname = "FedLinearRegression"\n'
    (folder / "study.toml").write_text(text)
    with pytest.warns(UserWarning, match="have the coefficient 0: ward_none"):
        assert main(["run", "study.toml"]) == 0
    summary = fs.load("study")[-1].summary()
    assert "ward_A" in summary
    assert "age" in summary
    (folder / "study.toml").write_text(text.replace("FedLinearRegression", "FedStandardScaler"))
    assert main(["run", "study.toml", "--out", "scaled"]) == 0
    assert main(["apply", "scaled", "north.csv", "--out", "out.csv"]) == 0
    assert "ward_A" in pd.read_csv("out.csv").columns


def test_a_saved_model_and_a_saved_pipeline_are_applied(folder, tables):
    pipeline = trained('name = "FedPCA"\nn_components = 1', data='drop = ["cost"]')
    fs.save(pipeline, "whole.fedspan")
    assert main(["apply", "whole.fedspan", "new.csv", "--out", "a.csv"]) == 0
    pd.testing.assert_frame_equal(pd.read_csv("a.csv"), applied())
    X = tables.to_numpy()
    fs.FedPCA(1).fit(X).save("array.fedspan")  # without names of columns
    tables.to_csv("new.csv", index=False)
    assert main(["apply", "array.fedspan", "new.csv", "--out", "b.csv"]) == 0
    np.testing.assert_allclose(pd.read_csv("b.csv").to_numpy(), fs.load("array.fedspan").transform(X))


def test_new_rows_may_have_another_separator_or_format(folder, tables):
    model = trained('name = "FedPCADetector"', data='drop = ["cost"]')
    expected = -model.score_samples(tables[["age", "dose", "pulse"]])
    tables.to_csv("german.csv", sep=";", decimal=",", index=False)
    assert main(["apply", "study", "german.csv", "--out", "out.csv"]) == 0
    np.testing.assert_allclose(pd.read_csv("out.csv", sep=";", decimal=",")["score"], expected)
    tables.to_feather("new.feather")
    np.testing.assert_allclose(applied("new.feather", "out.parquet")["score"], expected)
    assert applied("new.feather", "out.parquet")["alarm"].dtype == bool


BAD = {
    "missing columns": (
        lambda new: new.drop(columns=["dose", "age"]),
        "lacks columns 'age' and 'dose', which the model",
    ),
    "text": (lambda new: new.assign(dose="high"), "'dose' must hold numbers"),
    "gaps": (lambda new: new.assign(dose=np.nan), "'dose' has missing cells"),
    "no rows": (lambda new: new[:0], "has no rows"),
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(what, folder, tables, capsys):
    change, sentence = BAD[what]
    trained('name = "FedPCA"\nn_components = 1', data='drop = ["cost"]')
    change(tables).to_csv("new.csv", index=False)
    before = sorted(folder.iterdir())
    assert main(["apply", "study", "new.csv", "--out", "out.csv"]) == 2
    assert sentence in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_a_long_table_is_worked_on_in_parts_with_progress(tables, monkeypatch, capsys):
    """The same results as in one piece, and the time left on standard error."""
    from fedspan import progress
    from fedspan.cli.study import apply_command

    trained('name = "FedPCADetector"\nn_components = 1', 'drop = ["cost"]')
    assert main(["apply", "study", "new.csv", "--out", "whole.csv"]) == 0
    monkeypatch.setattr(apply_command, "_FEWEST_ROWS", 5)
    monkeypatch.setattr(apply_command, "_BLOCK", 1)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    capsys.readouterr()
    assert main(["apply", "study", "new.csv", "--out", "parts.csv"]) == 0
    assert "applying to new.csv: 42% done, about" in capsys.readouterr().err
    whole, parts = pd.read_csv("whole.csv"), pd.read_csv("parts.csv")
    np.testing.assert_allclose(parts["score"], whole["score"])
    assert parts["alarm"].equals(whole["alarm"])


def test_a_classifier_gives_the_probability_of_each_class(tables, capsys):
    for name in ("north", "south"):
        frame = pd.read_parquet(f"{name}.parquet")
        frame.assign(cost=np.where(frame["age"] + 9 * frame["pulse"].rank() % 7 > 60, "high", "low")).to_parquet(
            f"{name}.parquet"
        )
    model = trained('name = "FedLogisticRegression"\nridge = 1.0', data='target = "cost"')
    results = applied()
    assert list(results.columns) == ["prediction", "probability_high", "probability_low"]
    expected = model.predict_proba(tables[["age", "dose", "pulse"]])
    np.testing.assert_allclose(results[["probability_high", "probability_low"]], expected)
    np.testing.assert_array_equal(results["prediction"] == "high", results["probability_high"] > 0.5)
    assert "columns 'prediction', 'probability_high' and 'probability_low'" in capsys.readouterr().out


def test_a_folder_that_may_not_be_written_to_is_named_with_the_file(tables, monkeypatch, capsys):
    trained('name = "FedKMeans"\nn_clusters = 2', data='drop = ["cost"]')

    def refuse(**where):
        raise PermissionError(13, "Permission denied", "/a/name/that/the/user/did/not/choose")

    monkeypatch.setattr("fedspan.durable.whole_file.tempfile.mkstemp", refuse)
    assert main(["apply", "study", "new.csv", "--out", "out.csv"]) == 2
    words = "out.csv cannot be read or written: Permission denied; choose another folder, or allow it there\n"
    assert capsys.readouterr().err == f"fedspan: {words}"


def test_new_rows_may_have_another_encoding(folder):
    """Exports of one program: with a mark of UTF-8, and in the letters of Windows; a file of plain letters fits all."""
    files, _ = write_hospitals(folder), write_new(folder)
    for file in files:
        path = folder / file
        path.write_text(path.read_text().replace("age", "Größe"), encoding="utf-8-sig")
    assert main(["init", *files]) == 0
    assert main(["run", "study.toml"]) == 0
    found = []
    for encoding in ("utf-8", "cp1252", "utf-16"):
        text = (folder / "new.csv").read_text().replace("age", "Größe")
        (folder / "more.csv").write_text(text, encoding=encoding)
        assert main(["apply", "study", "more.csv", "--out", "scores.csv"]) == 0
        found.append(pd.read_csv("scores.csv", sep=";", decimal=",", encoding=encoding)["score"])
    pd.testing.assert_series_equal(found[0], found[1])
    pd.testing.assert_series_equal(found[0], found[2])

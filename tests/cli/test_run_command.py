"""``fedspan run``: valid studies run, and every invalid one is refused in one sentence."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

import fedspan as fs
from fedspan.cli import main
from fedspan.cli.main import _parser

COLUMNS = ["age", "dose", "weight"]

STUDY = """
seed = 4
output = "results"

[data]
file = "all.csv"
site_column = "hospital"
label = "outcome"
drop = ["id"]

[[preprocess]]
name = "FedStandardScaler"

[model]
name = "FedPCA"
n_components = 2
"""


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)) * [10, 1, 5] + 50, columns=COLUMNS)
    frame["hospital"] = np.array(["north", "south", "east"])[np.arange(60) % 3]
    frame["outcome"] = np.arange(60) % 2
    frame["id"] = [f"patient {i}" for i in range(60)]
    return frame


@pytest.fixture
def study(tmp_path, table):
    table.to_csv(tmp_path / "all.csv", index=False)
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def pooled(table):
    X = table[COLUMNS].to_numpy()
    return PCA(2).fit((X - X.mean(axis=0)) / X.std(axis=0))


def test_a_study_runs_and_leaves_everything(study, table, capsys):
    assert main(["run", str(study)]) == 0
    results = study.parent / "results"
    assert sorted(path.name for path in results.iterdir()) == [
        "model.fedspan",
        "preprocess-0-FedStandardScaler.fedspan",
        "report.html",
        "run-000",
        "run-001",
        "study.toml",
        "summary.json",
    ]
    model = fs.load(results / "model.fedspan")
    np.testing.assert_allclose(model.components_, pooled(table).components_, atol=1e-8)
    assert fs.load(results / "preprocess-0-FedStandardScaler.fedspan").feature_names_in_.tolist() == COLUMNS
    assert model.sites_ == ("east", "north", "south")
    summary = json.loads((results / "summary.json").read_text())
    assert [run["what"] for run in summary] == ["FedStandardScaler", "FedPCA"]
    assert [run["privacy"] for run in summary] == [None, None]
    assert [run["stopped"]["how"] for run in summary] == ["finished", "finished"]
    assert summary[1]["settings"]["n_components"] == 2
    shown = capsys.readouterr().out
    assert "FedPCA" in shown
    assert str(results / "report.html") in shown
    page = (results / "report.html").read_text()
    assert all(name in page for name in ("north", "south", "east"))


def test_the_summary_says_what_was_spent_of_privacy(study):
    private = '{ name = "GaussianData", epsilon = 8.0, delta = 1e-5, clip = 2 }'
    model = f'name = "FedLandmarks"\nn_landmarks = 5\nrounds = 1\nprivacy = {private}\n'
    study.write_text(STUDY.replace('name = "FedPCA"\nn_components = 2\n', model))
    assert main(["run", str(study)]) == 0
    runs = json.loads((study.parent / "results" / "summary.json").read_text())
    plain, spent = (run["privacy"] for run in runs)
    assert plain is None
    assert runs[1]["settings"]["privacy"]["fields"]["clip"] == 2
    assert spent["epsilon"] == pytest.approx({"east": 8.0, "north": 8.0, "south": 8.0})
    assert spent["simulated"] == ["east", "north", "south"]
    assert any("transforms in front" in what for what in spent["leaves_out"])


def test_one_file_per_site_in_every_format(study, table, tmp_path):
    parts = {name: part.drop(columns="hospital") for name, part in table.groupby("hospital")}
    parts["north"].to_csv(tmp_path / "north.csv.gz", index=False)
    parts["south"].to_parquet(tmp_path / "south.parquet")
    np.savez(
        tmp_path / "east.npz",
        X=parts["east"][COLUMNS].to_numpy(),
        feature_names=COLUMNS,
        outcome=parts["east"]["outcome"].to_numpy(),
    )
    text = STUDY.replace('file = "all.csv"\nsite_column = "hospital"', "").replace('drop = ["id"]', "")
    study.write_text(
        text.replace(
            "[data]",
            '[data]\nfeatures = ["age", "dose", "weight"]\n'
            'sites = { north = "north.csv.gz", south = "south.parquet", east = "east.npz" }',
        )
    )
    assert main(["run", str(study), "--out", str(tmp_path / "elsewhere")]) == 0
    model = fs.load(tmp_path / "elsewhere" / "model.fedspan")
    np.testing.assert_allclose(model.components_, pooled(table).components_, atol=1e-8)
    assert not (tmp_path / "results").exists()


def test_text_columns_go_through_the_encoder(study, table):
    table["ward"] = np.array(["A", "B", "-"])[np.arange(60) % 7 % 3]
    table["visits"] = [str(i % 5) if i % 9 else "?" for i in range(60)]
    table.to_csv(study.parent / "all.csv", index=False)
    encoder = 'name = "FedTabularEncoder"\ncategories = { ward = ["A"] }\nlog = ["dose"]'
    study.write_text(STUDY.replace('name = "FedStandardScaler"', encoder))
    assert main(["run", str(study)]) == 0
    results = study.parent / "results"
    fitted = fs.load(results / "preprocess-0-FedTabularEncoder.fedspan")
    assert fitted.categories_ == {"ward": ("A",)}
    assert fitted.get_feature_names_out().tolist() == [
        *("age", "dose", "weight", "ward_A", "ward_(other)", "ward_(missing)", "visits", "visits_(missing)"),
        "(unexpected missing)",
    ]
    model = fs.load(results / "model.fedspan")
    rows = fitted.transform(table[[*COLUMNS, "ward", "visits"]])
    np.testing.assert_allclose(model.components_, PCA(2).fit(rows).components_, atol=1e-8)


def test_a_used_folder_is_refused_without_resume_and_gives_the_same_bytes_with_it(study, capsys):
    assert main(["run", str(study)]) == 0
    model = (study.parent / "results" / "model.fedspan").read_bytes()
    assert main(["run", str(study)]) == 2
    assert "is used already" in capsys.readouterr().err
    assert main(["run", str(study), "--resume"]) == 0
    resumed = fs.load(study.parent / "results" / "model.fedspan")
    assert resumed.components_.tobytes() in model
    study.write_text(STUDY.replace("n_components = 2", "n_components = 1"))
    assert main(["run", str(study), "--resume"]) == 2
    assert "n_components=2" in capsys.readouterr().err
    assert (study.parent / "results" / "study.toml").read_text() == STUDY


def test_a_live_page_follows_the_run_and_links_to_the_report(study, capsys):
    assert main(["run", str(study), "--live"]) == 0
    page = study.parent / "results" / "live.html"
    assert page.as_uri() in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert 'href="report.html"' in text
    assert "FedStandardScaler" in text
    assert main(["run", str(study), "--live", "--detach", "--kit", "none"]) == 2
    assert "--live shows a run of this process" in capsys.readouterr().err


def test_a_study_with_secure_sums(study, table, capsys):
    study.write_text(STUDY + "[federation]\nsecure_sum = true\nwire = true\n")
    assert main(["run", str(study)]) == 0
    model = fs.load(study.parent / "results" / "model.fedspan")
    np.testing.assert_allclose(model.components_, pooled(table).components_, atol=1e-8)
    assert min(model.run_.calls[-1].bytes_down.values()) > 82  # sealed shares of the other sites
    study.write_text(
        STUDY.replace("n_components = 2", 'n_components = 2\nsolver = "stack"') + "[federation]\nsecure_sum = true\n"
    )
    assert main(["run", str(study), "--out", str(study.parent / "other")]) == 2
    assert "FedPCA(solver='stack') needs the replies of single sites" in capsys.readouterr().err
    assert not (study.parent / "other").exists()


BAD = {
    "not TOML": (lambda text: text.replace("[model]", "[model"), "is not valid TOML"),
    "unknown key": (lambda text: "colour = 3\n" + text, "'colour' is not a known key; known are"),
    "unknown data key": (lambda text: text.replace("drop =", "dorp ="), "[data] 'dorp' is not a known key"),
    "unknown parameter": (lambda text: text + "n_parts = 2\n", "[model] 'n_parts' is not a known key"),
    "unknown model": (lambda text: text.replace("FedPCA", "FedMagic"), "name = 'FedMagic' must be one of Fed"),
    "not a transformer": (lambda text: text.replace('"FedStandardScaler"', "3"), "[[preprocess]] name = 3"),
    "missing file": (lambda text: text.replace("all.csv", "none.csv"), "none.csv does not exist"),
    "missing site column": (lambda text: text.replace('"hospital"', '"clinic"'), "no site column 'clinic'"),
    "missing label": (lambda text: text.replace('"outcome"', '"result"'), "no column 'result' for the label"),
    "missing feature": (lambda text: text.replace("drop", 'features = ["height"]\ndrop'), "no column 'height'"),
    "text column": (lambda text: text.replace('drop = ["id"]', ""), "column 'id' holds"),
    "no data": (lambda text: text.replace("[data]", "[federation]"), "'file' is not a known key"),
    "no model": (lambda text: text[: text.index("[model]")], "a [model] table"),
    "both kinds of data": (lambda text: text.replace("[data]", "[data]\nsites = {}"), "either 'file'"),
    "bad parameter": (lambda text: text.replace("n_components = 2", "n_components = 9"), "n_components=9 must be"),
    "list as a name": (lambda text: text.replace('"FedPCA"', '["FedPCA"]'), "name = ['FedPCA'] must be one of"),
    "bad tol": (lambda text: text + 'tol = "x"\n', "tol='x' must be a finite number"),
    "bad random state": (lambda text: text + 'random_state = "abc"\n', "random_state='abc' must be"),
    "feature twice": (lambda text: text.replace("drop", 'features = ["age", "age"]\ndrop'), "'age' twice"),
    "feature dropped": (lambda text: text.replace("drop", 'features = ["age", "id"]\ndrop'), "'id' twice"),
    "bad seed": (lambda text: text.replace("seed = 4", 'seed = "four"'), "seed = 'four' must be a whole number"),
    "bad secure sum": (lambda text: text + "[federation]\nsecure_sum = 3\n", "secure_sum = 3 must be true or false"),
    "bad run deadline": (lambda text: text + "[federation]\nrun_deadline = 0\n", "run_deadline=0 must be"),
    "bad quorum": (lambda text: text + "[federation]\nquorum = 2.5\n", "quorum=2.5 must be"),
    "bad jobs": (lambda text: text + "[federation]\nn_jobs = 0\n", "n_jobs=0 must be"),
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_a_bad_study_is_one_sentence_and_exit_code_2_and_nothing_is_written(what, study, capsys):
    change, sentence = BAD[what]
    study.write_text(change(STUDY))
    assert main(["run", str(study)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.startswith("fedspan: ")
    assert error.count("\n") == 1
    assert not (study.parent / "results").exists()
    (study.parent / "results").mkdir()  # an empty folder counts as unused
    assert main(["run", str(study)]) == 2
    study.write_text(STUDY)
    assert main(["run", str(study)]) == 0


def test_sites_with_other_columns_are_named_with_what_they_lack_or_have_too_much(tmp_path, study, table, capsys):
    files = 'sites = { a = "a.csv", b = "b.csv", c = "c.csv", d = "d.csv" }'
    study.write_text(STUDY.replace('file = "all.csv"\nsite_column = "hospital"', files))
    frame = table.drop(columns="hospital")
    cases = {
        "sites 'b' and 'c': lacks 'dose': leave out": frame.drop(columns="dose"),
        "sites 'b' and 'c': also has 'height': leave out what not all sites have, with drop = ['height']": frame.assign(
            height=1.0
        ),
        "sites 'b' and 'c': lacks 'dose' and also has 'height', 'rate' and 'x': leave out": frame.drop(
            columns="dose"
        ).assign(height=1.0, rate=2, x=3),
        "sites 'b' and 'c': has no rows": frame.iloc[:0],
        "sites 'b' and 'c': column 'dose' holds text or times, not numbers": frame.assign(dose="high"),
    }
    for sentence, other in cases.items():
        for name in "abcd":
            (other if name in "bc" else frame).to_csv(tmp_path / f"{name}.csv", index=False)
        assert main(["run", str(study)]) == 2
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1


def test_columns_are_matched_by_name_whatever_their_order(tmp_path, study, table):
    frame = table.drop(columns="hospital")
    study.write_text(
        STUDY.replace('file = "all.csv"\nsite_column = "hospital"', 'sites = { a = "a.csv", b = "b.parquet" }')
    )
    frame[:30].to_csv(tmp_path / "a.csv", index=False)
    frame[30:][["outcome", "id", *COLUMNS[::-1]]].to_parquet(tmp_path / "b.parquet")
    assert main(["run", str(study)]) == 0
    model = fs.load(tmp_path / "results")
    assert model[0].feature_names_in_.tolist() == COLUMNS
    np.testing.assert_allclose(model[-1].components_, pooled(table).components_, atol=1e-8)


def test_a_dialect_is_stated_for_all_files_or_for_one(tmp_path, study, table):
    frame = table.drop(columns="hospital").assign(ward="B\u00e4r")
    files = 'sites = { a = "a.csv", b = { file = "b.tsv", separator = "\\t", decimal = "." }, c = "c.feather" }'
    text = STUDY.replace('file = "all.csv"\nsite_column = "hospital"', files).replace('"id"', '"id", "ward"')
    study.write_text(text.replace("[data]", '[data]\nseparator = ";"\ndecimal = ","\nencoding = "cp1252"'))
    frame[:20].to_csv(tmp_path / "a.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    frame[20:40].to_csv(tmp_path / "b.tsv", index=False, sep="\t", encoding="cp1252")
    frame[40:].reset_index(drop=True).to_feather(tmp_path / "c.feather")
    assert main(["run", str(study)]) == 0
    model = fs.load(tmp_path / "results")
    np.testing.assert_allclose(model[-1].components_, pooled(table).components_, atol=1e-8)


def test_words_taken_as_missing_are_shown_and_recorded(study, table, capsys):
    table["dose"] = table["dose"].round(2).astype(str)
    table.loc[[3, 4], "dose"] = "NA"
    table["ward"] = np.array(["none", "B", "-", "?"])[np.arange(60) % 4]
    table.to_csv(study.parent / "all.csv", index=False)
    text = STUDY.replace("FedStandardScaler", "FedTabularEncoder").replace("[data]", '[data]\nmissing = ["?"]')
    study.write_text(text)
    assert main(["run", str(study)]) == 0
    shown = capsys.readouterr().out
    assert "taken as missing in column 'dose': 'NA' (2 cells)" in shown
    assert "taken as missing in column 'ward': '?' (15 cells), '-' (15 cells)" in shown
    model = fs.load(study.parent / "results")
    assert model[0].categories_ == {"ward": ("B", "none")}
    assert model[0].run_.settings["taken_as_missing"]["dose"] == {"NA": 2}
    summary = json.loads((study.parent / "results" / "summary.json").read_text())
    assert summary[0]["settings"]["taken_as_missing"]["ward"] == {"-": 15, "?": 15}


def test_models_that_learn_a_target_run_from_a_file(study, table, capsys):
    table["ward"] = np.array(["A", "B"])[np.arange(60) % 2]
    table["cost"] = table[COLUMNS].to_numpy() @ [1.0, 2.0, 3.0]
    table.to_csv(study.parent / "all.csv", index=False)
    text = STUDY.replace('drop = ["id"]', 'drop = ["id", "ward"]').replace("n_components = 2", "n_clusters = 1")
    mixed = text.replace("FedPCA", "FedMixedRegressor")
    study.write_text(mixed)
    assert main(["run", str(study)]) == 2
    assert "FedMixedRegressor learns a target: name its column in [data]" in capsys.readouterr().err
    study.write_text(mixed.replace("[data]", '[data]\ntarget = "cost"'))
    assert main(["run", str(study)]) == 0
    model = fs.load(study.parent / "results")
    np.testing.assert_allclose(model.predict(table[COLUMNS]), table["cost"], atol=1e-3)
    few = text.replace("FedPCA", "FedFewShotRegressor").replace("n_clusters", "rank").replace(', "ward"', "")
    few = few.replace("rank = 1", "rank = 2\nfit_intercept = true")
    study.write_text(few.replace("[data]", '[data]\ntarget = "cost"\ntask = "ward"'))
    assert main(["run", str(study), "--out", str(study.parent / "few")]) == 0
    assert fs.load(study.parent / "few")[-1].tasks_.tolist() == ["A", "B"]


@pytest.mark.parametrize("file", ["all.parquet", "all.npz", "all.xls", "all.csv.gz"])
def test_damaged_files_are_one_sentence(study, file, capsys):
    (study.parent / file).write_bytes(b"not a table at all")
    study.write_text(STUDY.replace("all.csv", file))
    assert main(["run", str(study)]) == 2
    error = capsys.readouterr().err
    assert file in error
    assert error.count("\n") == 1


def test_outputs_that_cannot_be_are_one_sentence(study, capsys):
    (study.parent / "file").write_text("")
    for out in ("file", "file/inside"):
        for extra in ([], ["--resume"]):
            assert main(["run", str(study), "--out", str(study.parent / out), *extra]) == 2
        assert main(["demo", "--out", str(study.parent / out)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_numbers_of_all_kinds_are_numbers(study, table):
    table["smoker"] = table["age"] > 50
    table["visits"] = pd.array(np.arange(len(table)) % 4, dtype="Int64")
    table.to_parquet(study.parent / "all.parquet")
    study.write_text(STUDY.replace("all.csv", "all.parquet"))
    assert main(["run", str(study)]) == 0
    assert fs.load(study.parent / "results" / "model.fedspan").n_features_in_ == 5


def test_an_archive_with_its_sites_in_an_array(study, table):
    np.savez(
        study.parent / "all.npz",
        X=table[COLUMNS].to_numpy(),
        hospital=table["hospital"].to_numpy().astype(str),
        outcome=table["outcome"].to_numpy(),
    )
    study.write_text(STUDY.replace("all.csv", "all.npz").replace('drop = ["id"]', ""))
    assert main(["run", str(study)]) == 0
    model = fs.load(study.parent / "results" / "model.fedspan")
    np.testing.assert_allclose(model.components_, pooled(table).components_, atol=1e-8)


def test_missing_study(tmp_path, capsys):
    assert main(["run", str(tmp_path / "none.toml")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_missing_values_are_named(study, table, capsys):
    table.loc[4, "dose"] = np.nan
    table.to_csv(study.parent / "all.csv", index=False)
    assert main(["run", str(study)]) == 2
    sentence = "site 'south': column 'dose' with missing cells: let FedTabularEncoder be the first [[preprocess]] step"
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["demo", "--help"], ["--version"]])
def test_help_is_there(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 0
    assert "fedspan" in capsys.readouterr().out


def test_every_command_has_a_description_and_an_example(capsys):
    seen = 0
    for path in _commands(_parser()):
        with pytest.raises(SystemExit):
            main([*path, "--help"])
        shown = capsys.readouterr().out
        description = shown.partition("\n\n")[2].partition("\n\n")[0]
        assert len(description) > 30, path
        assert not description.startswith(("positional", "options", "commands")), path
        assert "\nexample:\n  fedspan " in shown, path
        seen += 1
    assert seen > 20


def _commands(parser, path=()):
    yield path
    for action in parser._actions:
        for name, inner in (action.choices or {}).items() if isinstance(action, argparse._SubParsersAction) else ():
            yield from _commands(inner, (*path, name))


def test_an_aggregator_is_named_in_a_table(study, capsys):
    study.write_text(STUDY + 'aggregator = { name = "TrimmedMean", f = 1 }\n')
    assert main(["run", str(study)]) == 0
    assert fs.load(study.parent / "results")[-1].aggregator == fs.aggregation.TrimmedMean(1)


def test_the_study_of_the_help_text_is_a_study(tmp_path, table, capsys):
    """The example of ``fedspan run --help`` runs as it is."""
    from fedspan.cli.help_texts import RUN

    example = "\n".join(line[4:] for line in RUN.splitlines() if line.startswith("    "))
    (tmp_path / "study.toml").write_text(example.replace("n_components = 5", "n_components = 2"))
    table.to_csv(tmp_path / "all.csv", index=False)
    assert main(["run", str(tmp_path / "study.toml")]) == 0
    assert (tmp_path / "results" / "report.html").exists()


def test_a_killed_study_resumes_to_the_same_model(tmp_path, study):
    many_rounds = 'n_components = 2\nsolver = "subspace_iteration"\ntol = 1e-300\nmax_rounds = 600'
    study.write_text(STUDY.replace("n_components = 2", many_rounds))
    assert main(["run", str(study), "--out", str(tmp_path / "whole")]) == 0
    command = [sys.executable, "-m", "fedspan", "run", str(study), "--resume"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    record = tmp_path / "results" / "run-001" / "record.jsonl"
    while process.poll() is None and not (record.exists() and record.read_text().count('"call"') > 20):
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "results" / "model.fedspan").exists()
    assert main(["run", str(study), "--resume"]) == 0
    whole, resumed = (fs.load(tmp_path / name / "model.fedspan") for name in ("whole", "results"))
    np.testing.assert_array_equal(whole.components_, resumed.components_)
    assert any(call.replayed for call in resumed.run_.calls)


def test_a_study_that_begins_with_a_byte_order_mark_runs(study):
    study.write_bytes(b"\xef\xbb\xbf" + study.read_bytes())
    assert main(["run", str(study)]) == 0


def test_warnings_are_one_line_without_a_place_in_the_code():
    code = """
import sys, types, warnings
import fedspan.cli.main

def warns():
    warnings.warn("two\\nlines")
    return 0

class Parser:
    def parse_args(self, argv):
        return types.SimpleNamespace(target="stand_in:warns")

sys.modules["stand_in"] = types.SimpleNamespace(warns=warns)
cli = sys.modules["fedspan.cli.main"]
cli._parser = Parser
cli.main([])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "fedspan: warning: two lines\n"

"""``fedspan run`` with regressions and survival: the target is a column, of numbers or text, or two."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import fedspan as fs
from fedspan.cli import main

STUDY = """
output = "results"

[data]
file = "all.csv"
site_column = "hospital"
target = {target}
drop = {drop}

[model]
name = "{model}"
"""


@pytest.fixture
def frame(tmp_path):
    rng = np.random.default_rng(0)
    made = pd.DataFrame(rng.normal(size=(120, 2)) * [10, 1] + 50, columns=["age", "dose"])
    made["hospital"] = np.array(["north", "south", "east"])[np.arange(120) % 3]
    made["died"] = (rng.uniform(size=120) < 1 / (1 + np.exp(50 - made["dose"]))).astype(int)
    made["answer"] = np.where(made["died"], "yes", "no")
    made["days"] = np.ceil(300 * rng.exponential(size=120))
    made.to_csv(tmp_path / "all.csv", index=False)
    return made


def run(folder, model, target, others, more=""):
    path = folder / "study.toml"
    path.write_text(STUDY.format(model=model, target=target, drop=others) + more)
    assert main(["run", str(path)]) == 0
    return fs.load(folder / "results" / "model.fedspan")


def test_a_logistic_regression_of_text(tmp_path, frame, capsys):
    model = run(tmp_path, "FedLogisticRegression", "'answer'", ["died", "days"])
    reference = sm.Logit(frame["died"], sm.add_constant(frame[["age", "dose"]])).fit(disp=0, tol=1e-12)
    np.testing.assert_allclose(np.ravel(model.coef_), reference.params.iloc[1:], rtol=1e-7)
    assert model.classes_.tolist() == ["no", "yes"]
    assert "Logit Regression Results" in capsys.readouterr().out
    assert "dose" in (tmp_path / "results" / "summary.txt").read_text()
    assert "Coefficients" in (tmp_path / "results" / "report.html").read_text()


def test_cox_regression_and_curves(tmp_path, frame):
    model = run(tmp_path, "FedCoxRegression", "['days', 'died']", ["answer"], "times = [100, 200, 400, 800, 3000]\n")
    assert model.n_events_ == frame["died"].sum()
    assert "Baseline survival" in (tmp_path / "results" / "report.html").read_text()


def test_a_target_that_is_missing_is_asked_for(tmp_path, frame, capsys):
    path = tmp_path / "study.toml"
    text = STUDY.format(model="FedKaplanMeier", target="'days'", drop=["answer"])
    path.write_text(text.replace("target = 'days'\n", ""))
    assert main(["run", str(path)]) != 0
    assert "FedKaplanMeier learns a time and an event: name their columns in [data]" in capsys.readouterr().err


def test_categories_and_gaps_in_a_study(tmp_path, frame, capsys):
    frame["sex"] = np.where(np.arange(120) % 2, "f", "m")
    frame.loc[[4, 9], "dose"] = np.nan
    frame.to_csv(tmp_path / "all.csv", index=False)
    more = "categorical = ['sex']\nmissing = 'drop'\n"
    model = run(tmp_path, "FedLogisticRegression", "'died'", ["answer", "days"], more)
    used = frame.dropna()
    A = sm.add_constant(np.column_stack([used["age"], used["dose"], used["sex"] == "m"]).astype(float))
    reference = sm.Logit(used["died"], A).fit(disp=0, tol=1e-12)
    np.testing.assert_allclose(np.ravel(model.coef_), reference.params.iloc[1:], rtol=1e-7)
    assert "sex[T.m]" in capsys.readouterr().out


def test_names_pass_through_an_encoder(tmp_path, frame, capsys):
    path = tmp_path / "study.toml"
    text = STUDY.format(model="FedLinearRegression", target="'days'", drop=["answer", "died"])
    path.write_text(text.replace("[model]", "[[preprocess]]\nname = 'FedStandardScaler'\n\n[model]"))
    assert main(["run", str(path)]) == 0
    assert "dose " in capsys.readouterr().out


def test_rows_with_gaps_or_unknown_names_have_an_empty_prediction(tmp_path, frame, capsys):
    model = run(tmp_path, "FedLinearRegression", "'days'", ["died"], "categorical = ['answer']\nmissing = 'drop'\n")
    new = frame[["age", "dose", "answer"]].head(6)
    expected = model.predict(new)
    new = new.assign(age=[np.nan, *new["age"][1:]], answer=[*new["answer"][:5], "maybe"])
    assert model.complete_rows(new).tolist() == [False, *[True] * 4, False]
    new.to_csv(tmp_path / "new.csv", index=False)
    assert (
        main(["apply", str(tmp_path / "results"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv")]) == 0
    )
    found = pd.read_csv(tmp_path / "out.csv", skip_blank_lines=False)["prediction"]
    np.testing.assert_allclose(found, [np.nan, *expected[1:5], np.nan])
    assert "2 empty (cells missing, or unknown to the model)" in capsys.readouterr().out
    new.loc[:, "answer"] = "maybe"
    new.to_csv(tmp_path / "new.csv", index=False)
    assert main(["apply", str(tmp_path / "results"), str(tmp_path / "new.csv"), "--out", str(tmp_path / "o.csv")]) == 2
    assert "no row has a known value in every column" in capsys.readouterr().err

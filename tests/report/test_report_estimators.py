"""The report of every estimator: its own pictures, what was asked, who took part, and how to run it again."""

from __future__ import annotations

import ast
import warnings

import numpy as np
import pytest
from report_examples import NAMES, fitted, table
from report_reading import Page

import fedspan as fs
from fedspan.report import write_report
from fedspan.report.models.map_pictures import map_of
from fedspan.report.models.model_section import pictures_of
from fedspan.report.sections.privacy_section import words_of
from fedspan.report.sections.python_lines import python_lines

every_estimator = pytest.mark.parametrize("name", NAMES)


@every_estimator
def test_it_has_pictures_of_its_own(name):
    model = fitted(name)
    pictures = pictures_of(model)
    assert pictures or map_of(model), (
        f"{name} has no picture in its report: add one to fedspan.report.models.model_section.PICTURES"
    )
    for picture in pictures:
        Page(picture.body)
        assert any(mark in picture.body for mark in ("<rect", "<path", "<polyline", "<circle", "<td", "<dd"))


@every_estimator
def test_its_page_says_what_must_be_said(name, tmp_path):
    model = fitted(name)
    page = Page(write_report(tmp_path / "r.html", title="t", records=model.run_, models=[model]).read_text())
    assert "No picture for" not in page.text
    for key in ("models", "asked", "sites", "rounds", "stopped", "failures", "privacy", "again"):
        assert key in page.ids
    for site in model.sites_:
        assert f"{site} " in page.text
    for words in (f"numpy {np.__version__}", "fedspan 0.1.0", "python 3.", "scikit-learn", "No noise was added"):
        assert words in page.text
    for call in model.run_.calls:
        assert words_of(call.step) != "–", f"{call.step} does not say what leaves the site"


@every_estimator
def test_the_lines_of_its_report_run_it_again(name):
    """The Python lines, from the record as it is read from a file, give the same model to the last bit."""
    model = fitted(name)
    record = fs.RunRecord.from_lines(model.run_.lines())
    X, y, task, sites = table()
    known = {"X": X, "y": y, "task": task, "sites": sites}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(python_lines([record]), known)
    again = vars(known["model"])
    for key, value in vars(model).items():
        if key.endswith("_") and key != "run_":
            np.testing.assert_array_equal(again[key], value, err_msg=key)


def test_lines_of_a_pipeline_have_the_transform_between():
    X, _, _, sites = table()
    policy = fs.Policy(quorum="all", secure_sum=fs.SecureSum(least=3))
    fed = fs.federate(X, sites=sites, seed=5, policy=policy)
    scaler = fs.FedStandardScaler().fit(fed)
    pca = fs.FedPCA(2, random_state=9).fit(scaler.transform(fed))
    lone = fs.FedPCA(3).fit(fed)
    lines = python_lines([scaler.run_, lone.run_])
    assert "transform" not in lines
    known = {"X": X, "sites": sites}
    lines = python_lines([scaler.run_, pca.run_])
    assert "seen_1 = model_0.transform(fed)" in lines
    assert "quorum='all'" in lines
    assert "fs.SecureSum(" in lines
    exec(lines, known)
    np.testing.assert_array_equal(known["model_1"].components_, pca.components_)
    exec(python_lines([scaler.run_, pca.run_, lone.run_]), known)
    np.testing.assert_array_equal(known["model_1"].components_, pca.components_)
    np.testing.assert_array_equal(known["model_2"].components_, lone.components_)
    alone = python_lines([pca.run_])
    assert "# seen through fedspan.sums.row_transforms.standardize: transform fed first" in alone


def test_lines_of_a_run_with_some_of_the_sites_name_them():
    X, _, _, sites = table()
    fed = fs.federate(X, sites=sites)
    some = fs.FedPCA(2).fit(fed.subset(fed.sites[1:3]))
    known = {"X": X, "sites": sites}
    exec(python_lines([some.run_]), known)
    np.testing.assert_array_equal(known["model"].components_, some.components_)
    sampled = fs.FedPCA(2, solver="fedpg", participation=0.5, max_rounds=3).fit(fed)
    assert "subset" not in python_lines([sampled.run_])


def test_lines_name_aggregators_privacy_and_what_they_cannot_give_back():
    X, _, _, sites = table()
    krum = fs.FedPCA(2, solver="covariance", aggregator=fs.aggregation.TrimmedMean(1)).fit(X, sites=sites)
    assert "aggregator=fs.aggregation.TrimmedMean(" in python_lines([krum.run_])
    noise = fs.privacy.GaussianData(epsilon=8.0, delta=1e-5, clip=50.0)
    private = fs.FedLandmarks(10, rounds=2, privacy=noise).fit(X, sites=sites)
    assert "privacy=fs.privacy.GaussianData(" in python_lines([private.run_])
    start = X.to_numpy()[:3]
    centres = fs.FedKMeans(3, init=start).fit(X, sites=sites)
    assert "# init: array(3, 8) float64 #" in python_lines([centres.run_])
    shaky = fs.federate(X, sites=sites).with_faults(fs.FaultPlan(drop=0.01))
    assert "FaultPlan(" in python_lines([fs.FedStandardScaler().fit(shaky).run_])
    with fs.federate(X, sites=sites) as fed:
        fs.protocols.moments.moments(fed)
        assert "called on the federation itself" in python_lines([fed.record])


def test_lines_of_whatever_a_record_holds_are_python():
    """Text is never run, and what is no Python stays in comments."""
    settings = {
        "a\nb": "1",
        "rank": "(" * 5000,
        "f": "__import__('os').system('x')",
        "t": "two\nlines",
        "z": "\0",
        "ok": "2",
    }
    for what in ("load", "k_means", "protocol", "my_package.my_protocol", "FedPCA"):
        record = fs.RunRecord(what, settings, 0, 0, ("a",), conditions="an attack\nof two lines")
        tree = ast.parse(python_lines([record]).replace("\0", "?"))  # as the page does
        assert "system" not in ast.unparse(tree)
        assert ("ok=2" in ast.unparse(tree)) == (what in ("my_package.my_protocol", "FedPCA"))

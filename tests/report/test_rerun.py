"""How to run it again: versions at the time of the run, the study, or lines of Python."""

from __future__ import annotations

import ast

import numpy as np

import fedspan as fs
from fedspan.federation.versions import blas_threads, processor
from fedspan.report.sections.rerun import as_python, described, python_lines, rerun_section
from fedspan.sums.moments import moments

from .report_examples import table
from .report_reading import Page, a_record


def test_versions_are_those_of_the_run():
    record = a_record(versions={"python": "3.9.1", "fedspan": "0.0.7"})
    page = Page(rerun_section([record]))
    assert "Versions at the coordinator python 3.9.1 fedspan 0.0.7" in page.text
    assert np.__version__ not in page.text
    other = a_record("FedUMAP", versions={"python": "3.11.2"}, number=1)
    page = Page(rerun_section([record, other]))
    assert "Versions of FedPCA at the coordinator" in page.text
    assert "Versions of FedUMAP at the coordinator python 3.11.2" in page.text


def test_processor_and_threads_stand_with_the_versions():
    text = Page(rerun_section([fs.FedPCA(1).fit(np.eye(4)).run_])).text
    assert f"processor {processor()} BLAS threads {blas_threads()}" in text
    assert "on the same kind of processor and with the same number of BLAS threads to the last bit" in text


def test_a_run_without_versions_gets_those_of_today():
    page = Page(rerun_section([a_record()]))
    assert f"numpy {np.__version__}" in page.text
    assert "Versions where this report was written" in page.text
    assert "The record of FedPCA has no versions, because the run has not ended." in page.text


def test_a_study_is_shown_as_it_is():
    page = Page(rerun_section([a_record()], '[model]\nname = "FedPCA"  # <b>'))
    assert 'name = "FedPCA" # <b>' in page.text
    assert "import fedspan" not in page.text
    assert page.all("b") == []


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
    assert f"# seen through {pca.run_.transforms[0]}: transform fed first" in alone


def test_lines_of_a_run_with_some_of_the_sites_name_them():
    X, _, _, sites = table()
    fed = fs.federate(X, sites=sites)
    some = fs.FedPCA(2).fit(fed.subset(fed.sites[1:3]))
    known = {"X": X, "sites": sites}
    exec(python_lines([some.run_]), known)
    np.testing.assert_array_equal(known["model"].components_, some.components_)
    sampled = fs.FedPCA(2, solver="fedpg", participation=0.5, max_rounds=3).fit(fed)
    assert "subset" not in python_lines([sampled.run_])


def test_lines_have_aggregators_privacy_and_comments_on_the_rest():
    X, _, _, sites = table()
    krum = fs.FedPCA(2, solver="covariance", aggregator=fs.aggregation.TrimmedMean(1)).fit(X, sites=sites)
    assert "aggregator=fs.aggregation.TrimmedMean(" in python_lines([krum.run_])
    noise = fs.privacy.GaussianData(epsilon=8.0, delta=1e-5, clip=50.0)
    private = fs.FedLandmarks(10, rounds=2, privacy=noise).fit(X, sites=sites)
    assert "privacy=fs.privacy.GaussianData(" in python_lines([private.run_])
    start = X.to_numpy()[:3]
    centres = fs.FedKMeans(3, init=start).fit(X, sites=sites)
    assert "# init: array (3, 8) float64 #" in python_lines([centres.run_])
    shaky = fs.federate(X, sites=sites).with_faults(fs.FaultPlan(drop=0.01))
    assert "FaultPlan(" in python_lines([fs.FedStandardScaler().fit(shaky).run_])
    with fs.federate(X, sites=sites) as fed:
        moments(fed)
        assert "called on the federation itself" in python_lines([fed.record])


def test_lines_of_whatever_a_record_holds_are_python():
    """Text is never run, and what is no Python stays in comments."""
    settings = {
        "a\nb": 1,
        "rank": "(" * 5000,
        "f": "__import__('os').system('x')",
        "t": "two\nlines",
        "z": "\0",
        "odd": {"class": "my.Thing", "fields": {"x": 1}},
        "ok": 2,
    }
    for what in ("load", "k_means", "protocol", "my_package.my_protocol", "FedPCA"):
        record = fs.RunRecord(what, settings, 0, 0, ("a",), conditions="an attack\nof two lines")
        tree = ast.parse(python_lines([record]).replace("\0", "?"))  # as the page does
        called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert "system" not in [getattr(function, "attr", "") for function in called]
        assert "Thing" not in ast.unparse(tree)
        assert ("ok=2" in ast.unparse(tree)) == (what in ("my_package.my_protocol", "FedPCA"))


def test_settings_by_hand():
    krum = {"class": "fedspan.aggregation.krum.Krum", "fields": {"f": 1}}
    namesake = {"class": "mine.Krum", "fields": {"f": 1}}  # a class of the user's own
    array = {"class": "array", "shape": [3, 2], "dtype": "float64", "digest": "0a"}
    assert [as_python(value) for value in (krum, [8, None], {"float": "inf"}, {"a": "b"})] == [
        "fs.aggregation.Krum(f=1)",
        "[8, None]",
        "float('inf')",
        "{'a': 'b'}",
    ]
    assert as_python(array) is as_python([array]) is as_python({"name": "my.function"}) is as_python(namesake) is None
    assert [described(value) for value in ("auto", krum, array, {"name": "my.function"}, {"class": "my.Thing"})] == [
        "'auto'",
        "fs.aggregation.Krum(f=1)",
        "array (3, 2) float64 #0a",
        "my.function",
        "my.Thing",
    ]

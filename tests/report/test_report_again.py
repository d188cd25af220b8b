"""Privacy, versions and how to run it again: what the record tells, and not what is there today."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from report_reading import Page, a_call, a_record

import fedspan as fs
from fedspan.federation import PrivacySpent
from fedspan.federation.versions import blas_threads, processor
from fedspan.report.sections.budgets import budgets_told
from fedspan.report.sections.privacy_section import NO_SUMS, NOISE, PLAIN, SECURE, privacy_section, words_of
from fedspan.report.sections.rerun import again_section


def test_versions_are_those_of_the_run():
    record = a_record(versions={"python": "3.9.1", "fedspan": "0.0.7"})
    page = Page(again_section([record]))
    assert "Versions at the coordinator python 3.9.1 fedspan 0.0.7" in page.text
    assert np.__version__ not in page.text
    other = a_record("FedUMAP", versions={"python": "3.11.2"}, number=1)
    page = Page(again_section([record, other]))
    assert "Versions of FedPCA at the coordinator" in page.text
    assert "Versions of FedUMAP at the coordinator python 3.11.2" in page.text


def test_processor_and_threads_stand_with_the_versions():
    text = Page(again_section([fs.FedPCA(1).fit(np.eye(4)).run_])).text
    assert f"processor {processor()} BLAS threads {blas_threads()}" in text
    assert "on the same kind of processor and with the same number of BLAS threads to the last bit" in text


def test_an_older_record_says_that_it_has_none():
    page = Page(again_section([a_record()]))
    assert f"numpy {np.__version__}" in page.text
    assert "Versions where this report was written" in page.text
    assert "The record of FedPCA has no versions of its time." in page.text


def test_a_study_is_shown_as_it_is():
    page = Page(again_section([a_record()], '[model]\nname = "FedPCA"  # <b>'))
    assert 'name = "FedPCA" # <b>' in page.text
    assert "import fedspan" not in page.text
    assert page.all("b") == []


def test_sums_that_are_secure_and_sums_that_are_not():
    fed = fs.federate(np.eye(4), sites=[0, 0, 1, 1], policy=fs.Policy(secure_sum=True))
    text = Page(privacy_section([fs.FedStandardScaler().fit(fed).run_])).text
    assert SECURE in text
    assert PLAIN not in text
    text = Page(privacy_section([fs.FedStandardScaler().fit(np.eye(4)).run_])).text
    assert SECURE not in text
    assert PLAIN in text
    old = Page(privacy_section([a_record(calls=[a_call(0, "f", ["a"])])])).text
    assert SECURE not in old
    assert PLAIN not in old  # it is not known


@pytest.mark.parametrize("secure", [False, True])
def test_where_no_sum_was_asked_for_nothing_is_said_of_sums(secure):
    policy = {"secure_sum": str(secure)}
    text = Page(privacy_section([a_record(calls=[a_call(0, "f", ["a"], how="ask")], policy=policy)])).text
    assert SECURE not in text
    assert PLAIN not in text
    assert NO_SUMS in text
    mean = "secure mean" if secure else "mean"
    text = Page(privacy_section([a_record(calls=[a_call(0, "f", ["a"], how=mean)], policy=policy)])).text
    assert (SECURE if secure else PLAIN) in text
    assert NO_SUMS not in text


@pytest.mark.filterwarnings("ignore:the landmarks hardly follow")
def test_what_was_spent_stands_beside_the_budget_where_a_site_told_it(tmp_path):
    ledger = fs.privacy.Ledger(tmp_path / "north.ledger", epsilon=6.0, delta=1e-5)
    X = np.random.default_rng(0).normal(size=(60, 3))

    def record_of(seed):
        sites = [fs.Site("north", X[:30], ledger=ledger), fs.Site("south", X[30:50]), fs.Site("west", X[50:])]
        noise = fs.privacy.GaussianGradient(5.0, 1e-5)
        return fs.FedLandmarks(4, rounds=2, privacy=noise, random_state=seed).fit(fs.LocalFederation(sites)).run_

    first = record_of(0)
    text = Page(privacy_section([first])).text
    assert f"north in its ledger {first.privacy.epsilon['north']:.4g}" in text
    assert f"south none: its noise is simulated {first.privacy.epsilon['south']:.4g}" in text
    assert NOISE in text
    before = ledger.spent
    with pytest.warns(UserWarning, match="does not last"):
        second = record_of(1)
    assert any("privacy budget" in why for _, _, why in second.failures)
    text = Page(privacy_section([second])).text
    assert "north 6 at delta 1e-05, of which " in text
    assert before <= float(budgets_told(second)["north"].spent) <= ledger.spent + 1e-3


def test_sites_that_refused_are_named():
    spent = PrivacySpent("noise", {"a": 1.0, "b": 2.0}, 1e-5, {}, ("sums",))
    assert "refused" not in Page(privacy_section([a_record(privacy=spent)])).text.replace("when it refuses", "")
    text = Page(privacy_section([a_record(privacy=replace(spent, refused=("b",)))])).text
    assert "refused b: the budget there did not last for the whole run" in text


def test_what_left_the_sites_is_told_in_the_steps_own_words():
    model = fs.FedStandardScaler().fit(np.random.default_rng(0).normal(size=(30, 3)), sites=np.arange(30) % 3)
    page = Page(privacy_section([model.run_]))
    assert "No noise was added" in page.text
    for call in model.run_.calls:
        assert words_of(call.step) in page.text
    assert f"the total {max(model.run_.calls[-1].bytes_up.values())} B" in page.text
    assert words_of("of.another.package") == "–"

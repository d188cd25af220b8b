"""Privacy: what left the sites, and what protects it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedspan as fs
from fedspan.federation import PrivacySpent
from fedspan.report.sections.privacy_section import (
    NO_SUMS,
    NOISE,
    PLAIN,
    SECURE,
    leaves_and_reveals,
    privacy_section,
    reported_budgets,
)

from .report_reading import Page, a_call, a_record


def test_sums_that_are_secure_and_sums_that_are_not():
    fed = fs.federate(np.eye(4), sites=[0, 0, 1, 1], policy=fs.Policy(secure_sum=True))
    text = Page(privacy_section([fs.FedStandardScaler().fit(fed).run_])).text
    assert SECURE in text
    assert PLAIN not in text
    text = Page(privacy_section([fs.FedStandardScaler().fit(np.eye(4)).run_])).text
    assert SECURE not in text
    assert PLAIN in text


@pytest.mark.parametrize("secure", [False, True])
def test_without_sums_nothing_is_stated_about_them(secure):
    text = Page(privacy_section([a_record(calls=[a_call(0, "f", ["a"], how="ask")])])).text
    assert SECURE not in text
    assert PLAIN not in text
    assert NO_SUMS in text
    text = Page(privacy_section([a_record(calls=[a_call(0, "f", ["a"], how="mean", secure=secure)])])).text
    assert (SECURE if secure else PLAIN) in text
    assert NO_SUMS not in text


@pytest.mark.filterwarnings("ignore:the landmarks hardly follow")
def test_spent_epsilon_stands_beside_the_budget_that_a_site_reported(tmp_path):
    ledger = fs.privacy.Ledger(tmp_path / "north.ledger", epsilon=6.0, delta=1e-5)
    X = np.random.default_rng(0).normal(size=(60, 3))

    def record_of(seed):
        sites = [fs.Site("north", X[:30], ledger=ledger), fs.Site("south", X[30:50]), fs.Site("west", X[50:])]
        noise = fs.privacy.GaussianGradient(5.0, 1e-5)
        return fs.FedLandmarks(4, rounds=2, privacy=noise, random_state=seed).fit(fs.LocalFederation(sites)).run_

    first = record_of(0)
    text = Page(privacy_section([first])).text
    assert f"north in its ledger {first.privacy.epsilon['north']:.4g}" in text
    assert f"south none: simulated {first.privacy.epsilon['south']:.4g}" in text
    assert NOISE in text
    before = ledger.spent
    with pytest.warns(UserWarning, match="does not last"):
        second = record_of(1)
    assert any("privacy budget" in why for _, _, why in second.failures)
    text = Page(privacy_section([second])).text
    assert "north 6 at delta 1e-05, of which " in text
    assert before <= reported_budgets(second)["north"][2] <= ledger.spent + 1e-3


def test_sites_that_refused_are_named():
    spent = PrivacySpent("noise", {"a": 1.0, "b": 2.0}, 1e-5, {}, ("sums",))
    assert "refused" not in Page(privacy_section([a_record(privacy=spent)])).text.replace("when it refuses", "")
    text = Page(privacy_section([a_record(privacy=replace(spent, refused=("b",)))])).text
    assert "refused b: the budget there did not last for the whole run" in text


def test_what_left_the_sites_is_in_the_words_of_the_steps():
    model = fs.FedStandardScaler().fit(np.random.default_rng(0).normal(size=(30, 3)), sites=np.arange(30) % 3)
    page = Page(privacy_section([model.run_]))
    assert "No noise was added" in page.text
    for call in model.run_.calls:
        assert leaves_and_reveals(call.step)[0] in page.text
    assert f"one merged reply {max(model.run_.calls[-1].bytes_up.values())} B" in page.text
    assert leaves_and_reveals("of.another.package") == ("–", "–")


def test_a_record_alone_finds_the_steps_of_fedspan():
    record = a_record(calls=[a_call(0, "sums.sums", ["a"], how="sum"), a_call(1, "of.another.package", ["a"])])
    text = Page(privacy_section([record])).text
    assert f"sums.sums {leaves_and_reveals('sums.sums')[0]} sums the total" in text
    assert "of.another.package – – each reply" in text
    assert leaves_and_reveals("landmarks.distances")[1] == "rows"

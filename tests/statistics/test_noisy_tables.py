"""Descriptions with noise: one budget, near the truth for many rows, and the noise that the accountant counts."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import BudgetError, InputError, MessageError, QuorumError
from fedspan.federation.site.steps import find_step
from fedspan.privacy import GaussianMoments, Ledger
from fedspan.statistics import correlation, crosstab, histogram
from fedspan.statistics.describe.noisy_tables import local_noisy_table, table_sensitivity
from fedspan.statistics.describe.parts.grouped_rows import SITES

from .hospital_table import CATEGORIES, federated, patients

TABLE = patients(4000)[["age", "crp", "sex", "code", "flag"]]
WIDE = GaussianMoments(8.0, 1e-5, lower=[0, 0, 0], upper=[100, 60, 1])
ONE = GaussianMoments(8.0, 1e-5, lower=0.0, upper=100.0)


@pytest.mark.parametrize("secure", [False, True])
def test_many_rows_are_described_well(secure):
    table = patients(16_000)[list(TABLE)]  # the noise does not depend on their number: four times the rows, a quarter
    fed = federated(table, policy=fs.Policy(secure_sum=secure))
    found = fs.describe(fed, categories=CATEGORIES, privacy=WIDE)
    bounded = table[["age", "crp", "flag"]].clip(WIDE.lower, WIDE.upper, axis=1)  # as every description with noise is
    frame, wanted = found.to_frame(), bounded.describe().T
    for key in ("count", "mean", "std"):
        np.testing.assert_allclose(frame.loc[wanted.index, key].astype(float), wanted[key], rtol=0.03)
    for key in ("25%", "50%", "75%"):
        np.testing.assert_allclose(
            frame.loc[["age", "crp"], key].astype(float), wanted.loc[["age", "crp"], key], rtol=0.1
        )
    counts = found.categories_frame()["(all)"]
    assert counts["code", "A"] == pytest.approx((table["code"] == "A").sum(), rel=0.05)
    assert frame[["min", "max"]].isna().all(axis=None)
    spent = found.run_.privacy
    assert spent.epsilon["0"] == pytest.approx(8.0)
    assert {call.step for call in found.run_.calls} == {"sums.columns", "privacy.ledger", "describe.noisy_table"}


def test_groups_histograms_crosstabs_and_correlations_have_noise_too():
    fed = federated(TABLE)
    found = fs.describe(fed, by="sex", categories=CATEGORIES, privacy=WIDE)
    means = TABLE.groupby("sex")["age"].mean()
    np.testing.assert_allclose(found.mean[1:, 0], means, rtol=0.05)
    np.testing.assert_allclose(found.rows[0], found.rows[1:].sum())
    bars = histogram(fed, "age", bins=10, privacy=ONE)
    np.testing.assert_allclose(bars.counts[0], np.histogram(TABLE["age"], bars.edges)[0], atol=30)
    by_sex = histogram(fed, "age", bins=4, by="sex", categories=CATEGORIES, privacy=ONE)
    assert by_sex.counts.shape == (3, 4)
    cells = crosstab(fed, "sex", "code", categories=CATEGORIES, privacy=ONE)
    np.testing.assert_allclose(cells.counts, pd.crosstab(TABLE["sex"], TABLE["code"]), atol=20)
    assert np.isnan(cells.test.p)
    numbers = TABLE[["age", "flag"]].assign(old=TABLE["age"] + 10 * TABLE["flag"])
    bounds = GaussianMoments(8.0, 1e-5, lower=[0, 0, 0], upper=[100, 1, 110])
    np.testing.assert_allclose(correlation(federated(numbers), privacy=bounds).values, numbers.corr(), atol=0.15)


def test_one_row_moves_a_reply_by_no_more_than_the_sensitivity():
    rows = pd.DataFrame({"a": [0.0, 99.0, -5.0], "b": [1.0, np.nan, 0.5], "t": ["x", "y", None]})
    payload = {
        "columns": np.array([0, 1]), "low": np.zeros(2), "high": np.array([100.0, 1.0]), "bins": 8,
        "text": np.array([2]), "listed": "x\ny", "sizes": np.array([2]), "by": -1, "groups": np.array([], dtype=str),
        "multiplier": 1.0, "sharers": 1, "colluding": 0,
    }  # fmt: skip

    def exact(table):
        from fedspan.statistics.describe import noisy_tables

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(noisy_tables, "charged_noise", lambda *_: lambda sums: sums)
            return local_noisy_table(fs.Site("a", table), **payload)["sums"][0]

    most = table_sensitivity(2, 1)
    assert most == math.sqrt(10)
    for i in range(3):
        moved = exact(rows) - exact(rows.drop(index=i))
        assert np.linalg.norm(moved) <= most + 1e-12


def test_the_site_s_ledger_counts_all_of_it(tmp_path):
    ledger = Ledger(tmp_path / "a.ledger", epsilon=3.0, delta=1e-5)
    fed = fs.LocalFederation([fs.Site("a", TABLE[["age"]], ledger=ledger)])
    cheap = GaussianMoments(2.0, 1e-5, lower=0.0, upper=100.0)
    fs.describe(fed, privacy=cheap)
    assert ledger.spent == pytest.approx(2.0)
    with pytest.warns(UserWarning, match="does not last"), pytest.raises((QuorumError, BudgetError)):
        histogram(fed, "age", privacy=ONE)
    histogram(fed, "age", privacy=GaussianMoments(1.0, 1e-5, lower=0.0, upper=100.0))
    assert 2.0 < ledger.spent < 3.0


def test_two_analyses_of_one_run_add_up():
    with federated(TABLE).begin("study") as run:
        fs.describe(run, categories=CATEGORIES, privacy=WIDE)
        histogram(run, "age", privacy=ONE)
    assert run.record.privacy.epsilon["0"] == pytest.approx(16.0)


def _scaled(fed):
    return fs.FedStandardScaler().fit(fed).transform(fed)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda fed: fs.describe(fed, by="sex", privacy=WIDE), "column 'sex' needs its names beforehand"),
        (lambda fed: fs.describe(fed, by="site", categories=CATEGORIES, privacy=WIDE), "compares single sites"),
        (lambda fed: fs.describe(fed, privacy=GaussianMoments(1.0, 1e-5, clip=2.0)), "need bounds of their own"),
        (lambda fed: histogram(fed, "age", bins=[0, 50, 90], privacy=ONE), "are edges, and under privacy"),
        (lambda fed: crosstab(fed, "sex", "code", privacy=ONE), "column 'sex' needs its names beforehand"),
        (lambda fed: correlation(fed, method="spearman", privacy=ONE), "has no sums with noise"),
        (lambda fed: fs.describe(fed, privacy=8.0), "privacy=8.0 must be None, or fedspan.privacy.GaussianMoments"),
        (
            lambda _: fs.describe(_scaled(federated(TABLE[["age"]])), privacy=ONE),
            "need them as they are",
        ),
    ],
)
def test_what_noise_can_not_cover_is_refused(ask, words):
    with pytest.raises(InputError, match=words):
        ask(federated(TABLE))


@pytest.mark.parametrize("step", ["describe.noisy_bins", "describe.noisy_table"])
def test_a_site_is_no_group_twice(step):
    """Each time its counts would have other noise, for one charge: the mean of 20,000 was the exact count."""
    payload = {"low": 0.0, "high": 1.0, "bins": 2, "by": SITES, "multiplier": 20.0, "sharers": 1, "colluding": 0}
    if step == "describe.noisy_table":
        none = np.array([], dtype=np.int64)
        payload |= {"columns": np.array([0]), "low": np.zeros(1), "high": np.ones(1), "text": none, "sizes": none}
        payload["listed"] = ""
    else:
        payload["column"] = 0
    fed = fs.LocalFederation([fs.Site("a", np.ones((9, 1)))])
    assert len(fed.ask(find_step(step).function, groups=np.array(["a", "b"]), **payload)["a"])
    with pytest.raises(MessageError, match="groups must hold no value twice"):
        fed.ask(find_step(step).function, groups=np.array(["a", "a"]), **payload)

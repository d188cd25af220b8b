"""Each site against the rest: tests are those of SciPy on the pooled rows, and find the site that differs."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedspan as fs
from fedspan.errors import InputError, PolicyError
from fedspan.statistics import site_differences

from .hospital_table import federated, patients, split

TABLE = patients(400)
SITES = split("even", 400)


def found_test(found, site, column, of):
    (test,) = [test for test in found.tests if (test.site, test.column, test.of) == (site, column, of)]
    return test


def test_tests_are_those_of_scipy():
    found = site_differences(federated(TABLE))
    for site in range(4):
        mine, rest = TABLE[site == SITES], TABLE[site != SITES]
        wanted = stats.ttest_ind(mine["crp"].dropna(), rest["crp"].dropna(), equal_var=False)
        test = found_test(found, str(site), "crp", "mean")
        np.testing.assert_allclose([test.statistic, test.p], [wanted.statistic, wanted.pvalue], rtol=1e-8)
        wanted = stats.chi2_contingency(
            [[part["crp"].isna().sum(), part["crp"].notna().sum()] for part in (mine, rest)]
        )
        assert found_test(found, str(site), "crp", "missing").p == pytest.approx(wanted.pvalue, rel=1e-10)
        edges = [-np.inf, *np.quantile(TABLE["age"], [0.1, 0.25, 0.5, 0.75, 0.9]), np.inf]
        counts = [[np.sum((part["age"] >= a) & (part["age"] < b)) for a, b in pairwise(edges)]
                  for part in (mine, rest)]  # fmt: skip
        wanted = stats.chi2_contingency(counts)
        assert found_test(found, str(site), "age", "quantiles").p == pytest.approx(wanted.pvalue, rel=1e-10)
    p = found.to_frame()["p"]
    np.testing.assert_allclose(found.to_frame()["corrected"], stats.false_discovery_control(p), rtol=1e-12)


def test_owners_may_refuse_sums_over_rows_without_gaps(monkeypatch):
    def refused(*_):
        raise PolicyError("numbers about few rows")

    everything = site_differences(federated(TABLE)).tests
    monkeypatch.setattr(sys.modules["fedspan.statistics.describe.site_differences"], "_scaled", refused)
    with pytest.warns(UserWarning, match="subspaces are not compared"):
        found = site_differences(federated(TABLE)).tests
    assert {test.of for test in everything} - {test.of for test in found} == {"subspace"}


def test_the_site_that_differs_is_found():
    table = TABLE.copy()
    table.loc[SITES == 2, "age"] += 25
    table.loc[(SITES == 1) & (np.arange(400) % 8 < 5), "crp"] = np.nan
    table.loc[SITES == 3, "sex"] = np.where(np.arange(100) % 10 < 9, "f", "m")
    found = site_differences(fs.federate(table, sites=SITES))
    first = {test.column: (test.site, test.of) for test in reversed(found.tests)}
    assert first["age"][0] == "2"
    assert first["crp"] == ("1", "missing")
    assert first["sex"] == ("3", "names")
    assert {"1", "2", "3"} <= set(found.differing())
    alike = site_differences(federated(TABLE))
    assert alike.differing(0.01) == {}


def test_a_turned_subspace_is_found_where_all_columns_look_alike():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 4)) @ np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0.4, -0.4, 0, 0], [0, 0, 0.4, -0.4]])
    site = np.arange(600) % 3
    assert not site_differences(fs.federate(rows, sites=site)).differing(0.01)
    rows[site == 1] = rows[site == 1][:, [0, 2, 1, 3]]  # the same columns, in other pairs
    tests = {test.site: test for test in site_differences(fs.federate(rows, sites=site)).tests if test.of == "subspace"}
    assert tests["1"].corrected < 0.01
    assert tests["1"].effect > 0.4


def test_subspaces_of_alike_sites_have_p_values_of_chance():
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(900, 5)) @ rng.normal(size=(5, 5))
        tests = site_differences(fs.federate(rows, sites=np.arange(900) % 3)).tests
        found += [test.p for test in tests if test.of == "subspace"]
    assert len(found) == 120
    assert 0.4 < np.mean(found) < 0.6
    assert 0.15 < np.mean(np.array(found) < 0.25) < 0.4


def test_small_sites_are_not_compared():
    found = site_differences(federated(TABLE, "tiny"))
    assert "tiny" not in {test.site for test in found.tests}
    assert len({test.site for test in found.tests}) == 2  # one more is hidden, so that the rest does not reveal it


def test_what_can_not_be_compared_is_refused():
    with pytest.raises(PolicyError, match="site_differences needs the replies of single sites"):
        site_differences(federated(TABLE, policy=fs.Policy(secure_sum=True)))
    with pytest.raises(InputError, match="needs at least two sites"):
        site_differences(federated(TABLE, "one"))
    gaps = pd.DataFrame({"x": np.full(40, np.nan), "same": 1.0})
    assert site_differences(federated(gaps)).tests == ()


def test_columns_names_and_sets_are_chosen_as_in_a_description():
    table = pd.DataFrame({"age": np.arange(400.0) % 83, "ward": np.arange(400) % 5 % 3})
    as_text = site_differences(federated(table), categorical=["ward"])
    assert {test.of for test in as_text.tests if test.column == "ward"} == {"names"}
    listed = site_differences(federated(table), categories={"ward": ["0", "1", "2"]})
    assert repr(listed.tests) == repr(as_text.tests)
    assert {test.of for test in site_differences(federated(table)).tests if test.column == "ward"} > {"mean"}
    assert site_differences(federated(table), least_set=101).tests == ()
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 4)))
    one, two = (found_test(site_differences(federated(wide), rank=r), "0", "", "subspace") for r in (1, 2))
    assert one.effect != two.effect

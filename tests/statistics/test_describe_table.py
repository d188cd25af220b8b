"""Descriptions are those of pandas and SciPy on the pooled rows, however these are split."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

import fedspan as fs
from fedspan.errors import InputError, PolicyError

from .hospital_table import CATEGORIES, federated, patients

TABLE = patients()
NUMBERS = ["age", "crp", "weight", "flag"]
STATISTICS = ["count", "mean", "std", "min", "25%", "50%", "75%", "max"]


def compare(found, pooled):
    wanted = pooled[NUMBERS].describe().T
    np.testing.assert_array_equal(found.loc[NUMBERS, "count"], wanted["count"])
    np.testing.assert_allclose(found.loc[NUMBERS, STATISTICS].astype(float), wanted[STATISTICS], rtol=1e-12)


@pytest.mark.parametrize("kind", ["even", "tiny", "sorted", "one"])
def test_numbers_are_those_of_pandas(kind):
    found = fs.describe(federated(TABLE, kind)).to_frame()
    compare(found, TABLE)
    assert list(found.index) == list(TABLE.columns)
    np.testing.assert_array_equal(found["missing"], TABLE.isna().sum())
    assert found.loc["none", "count"] == 0
    assert found.loc["none", ["mean", "50%", "min"]].isna().all()


def test_text_is_that_of_pandas():
    found = fs.describe(federated(TABLE), least_set=1)
    wanted = TABLE[["sex", "code"]].describe().T
    frame = found.to_frame().loc[["sex", "code"]]
    for key in ("count", "unique", "freq"):
        np.testing.assert_array_equal(frame[key].astype(int), wanted[key].astype(int))
    assert frame["top"].tolist() == wanted["top"].tolist()
    counts = found.categories_frame()["(all)"]
    for name, count in TABLE["code"].value_counts().items():
        assert counts["code", name] == count
    assert counts["code", "(missing)"] == TABLE["code"].isna().sum()


@pytest.mark.parametrize("kind", ["even", "tiny", "sorted"])
def test_groups_are_those_of_pandas(kind):
    found = fs.describe(federated(TABLE, kind), by="sex", quantiles=[0.1, 0.5, 0.975]).to_frame()
    for sex, rows in TABLE.groupby("sex"):
        wanted = rows[NUMBERS].describe(percentiles=[0.1, 0.5, 0.975]).T
        mine = found.xs(sex, level="sex").loc[NUMBERS]
        names = ["count", "mean", "std", "min", "10%", "50%", "97.5%", "max"]
        np.testing.assert_allclose(mine[names].astype(float), wanted[names], rtol=1e-12)


def test_sites_are_groups():
    sites = np.arange(len(TABLE)) % 4
    found = fs.describe(federated(TABLE), by="site").to_frame()
    for site, rows in TABLE.groupby(sites):
        mine = found.xs(str(site), level="site").loc[NUMBERS]
        np.testing.assert_allclose(mine[STATISTICS].astype(float), rows[NUMBERS].describe().T[STATISTICS], rtol=1e-12)
    with pytest.raises(PolicyError, match="by='site' needs the replies of single sites"):
        fs.describe(federated(TABLE, policy=fs.Policy(secure_sum=True)), by="site", categories=CATEGORIES)


def test_a_column_named_site_is_a_column():
    table = TABLE.assign(site=np.where(TABLE["age"] > 50, "old", "young"))
    assert fs.describe(federated(table), by="site").groups == ("old", "young")


def test_tests_are_those_of_scipy():
    found = {one.column: one for one in fs.describe(federated(TABLE), by="sex", ranks="exact", least_set=1).differences}
    f, m = (TABLE[TABLE["sex"] == sex] for sex in "fm")
    for column in NUMBERS:
        a, b = f[column].dropna(), m[column].dropna()
        means, ranks = found[column].tests
        wanted = stats.ttest_ind(a, b, equal_var=False)
        np.testing.assert_allclose([means.statistic, means.p], [wanted.statistic, wanted.pvalue], rtol=1e-7)
        wanted = stats.mannwhitneyu(a, b, method="asymptotic")
        np.testing.assert_allclose([ranks.statistic, ranks.p], [wanted.statistic, wanted.pvalue], rtol=1e-10)
        apart = (a.mean() - b.mean()) / np.sqrt((a.var() + b.var()) / 2)
        assert found[column].apart == pytest.approx(apart, rel=1e-7)
    wanted = stats.chi2_contingency(pd.crosstab(TABLE["sex"], TABLE["code"]))
    (test,) = found["code"].tests
    np.testing.assert_allclose([test.statistic, test.p], [wanted.statistic, wanted.pvalue], rtol=1e-10)


def test_tests_of_more_groups_are_those_of_scipy():
    table = TABLE[TABLE["code"].isin(list("ABC"))]
    found = {one.column: one for one in fs.describe(federated(table), by="code", ranks="exact").differences}
    groups = [rows["crp"].dropna() for _, rows in table.groupby("code")]
    for test, wanted in zip(found["crp"].tests, (stats.f_oneway(*groups), stats.kruskal(*groups)), strict=True):
        np.testing.assert_allclose([test.statistic, test.p], [wanted.statistic, wanted.pvalue], rtol=1e-10)


def test_ranks_of_whole_numbers_are_exact_by_sums():
    by_bins, exact = (fs.describe(federated(TABLE), by="sex", ranks=ranks).differences for ranks in ("bins", "exact"))
    for mine, wanted in zip(by_bins, exact, strict=True):
        if mine.column in ("age", "flag"):
            assert mine == wanted
    assert by_bins[1].tests[1].p == pytest.approx(exact[1].tests[1].p, rel=0.1)


@pytest.mark.parametrize("wide", ["a", "b"])
def test_ranks_in_bins_are_by_the_quartiles_of_all_rows(wide):
    """A group of few values that are far apart makes the bins of the others no wider."""
    rng = np.random.default_rng(0)
    group = np.repeat(["a", "b", "c"], [20, 20, 400]) if wide == "a" else np.repeat(["a", "b", "c"], [400, 400, 20])
    few = np.isin(group, ["a"] if wide == "a" else ["c"])
    values = rng.normal(size=len(group)) + np.where(group == "b", 0.2, 0.0)
    values[few] *= 1e4
    table = pd.DataFrame({"value": values, "group": group})
    fed = fs.federate(table, sites=np.arange(len(table)) % 3)
    (found,) = (one for one in fs.describe(fed, by="group").differences if one.column == "value")
    wanted = stats.kruskal(*(rows["value"] for _, rows in table.groupby("group")))
    assert found.tests[1].statistic == pytest.approx(wanted.statistic, rel=0.05)


def test_secure_sums_give_the_same():
    fed = federated(TABLE, policy=fs.Policy(secure_sum=True))
    found = fs.describe(fed, categories=CATEGORIES)
    frame, plain = found.to_frame(), fs.describe(federated(TABLE)).to_frame()
    shared = [name for name in STATISTICS if name not in ("min", "max")]
    np.testing.assert_allclose(
        frame.loc[NUMBERS, shared].astype(float), plain.loc[NUMBERS, shared].astype(float), rtol=1e-10
    )
    assert frame[["min", "max"]].isna().all(axis=None)
    assert found.run_.calls[1].secure
    names = fs.describe(fed).categories["code"]
    assert names.names == ()
    assert names.counts[0].tolist() == [TABLE["code"].notna().sum(), TABLE["code"].isna().sum()]
    with pytest.raises(InputError, match=r"list them, categories=\{'sex': \[\.\.\.\]\}"):
        fs.describe(fed, by="sex")


def test_groups_without_rows_and_rows_without_groups():
    table = TABLE.assign(sex=TABLE["sex"].where(np.arange(len(TABLE)) % 9 > 0))
    found = fs.describe(federated(table), by="sex", categories={"sex": ["f", "m", "x"]})
    assert found.rows.tolist() == [table["sex"].notna().sum(), *_sizes(table), 0]
    assert found.to_frame().loc[("age", "x"), "count"] == 0
    assert np.isnan(found.to_frame().loc[("age", "x"), "mean"])
    np.testing.assert_allclose(found.mean[0, 0], table[table["sex"].notna()]["age"].mean())


def _sizes(table):
    return [(table["sex"] == sex).sum() for sex in "fm"]


def test_few_rows_are_suppressed():
    found = fs.describe(fs.federate(TABLE.iloc[:4], sites=[0, 0, 1, 1]))
    assert np.isnan(found.rows).all()
    assert found.to_frame()[["count", "mean", "std", "50%", "min"]].isna().all(axis=None)
    table = pd.DataFrame({"x": [1.0, 2, 3, *[np.nan] * 20], "y": np.arange(23.0)})
    frame = fs.describe(fs.federate(table, sites=np.arange(23) % 3)).to_frame()
    assert frame.loc["x", ["count", "missing", "mean", "50%", "max"]].isna().all()
    assert frame.loc["y", "count"] == 23


def test_a_small_site_takes_another_one_with_it():
    found = fs.describe(federated(TABLE, "tiny"), by="site")
    rows = dict(zip(found.groups, found.rows[1:], strict=True))
    assert np.isnan(rows["tiny"])
    assert sum(np.isnan(count) for count in rows.values()) == 2
    hidden = [name for name, count in rows.items() if np.isnan(count)]
    for name in hidden:
        assert (
            found.to_frame()
            .xs(name, level="site")
            .drop(index="none")[["count", "mean", "freq", "50%"]]
            .isna()
            .all(axis=None)
        )


def test_table_one_reads_as_in_papers():
    table = fs.describe(federated(TABLE), by="sex").table_one()
    assert table.columns.tolist() == ["(all)", "f", "m", "test", "p", "SMD"]
    assert table.loc[("n", ""), "(all)"] == "240"
    assert table.loc[("age", "mean (deviation)"), "f"].startswith(f"{TABLE[TABLE['sex'] == 'f']['age'].mean():.1f} (")
    assert table.loc[("code", "A"), "(all)"].endswith("%)")
    assert fs.describe(federated(TABLE))._repr_html_().startswith("<table")


def test_numbers_can_be_text_and_arrays_have_columns_too():
    found = fs.describe(federated(TABLE), categorical=["flag", "sex", "code"])
    assert found.kinds == ("number", "number", "number", "text", "text", "text", "number")
    assert found.categories["flag"].names == ("0", "1")
    rows = np.random.default_rng(0).normal(size=(40, 3))
    found = fs.describe(fs.federate(rows, sites=np.arange(40) % 2))
    assert found.columns == ("x0", "x1", "x2")
    np.testing.assert_allclose(found.to_frame()["std"], rows.std(axis=0, ddof=1))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"by": "nurse"}, "by='nurse' is the name of no column; columns: age, crp"),
        ({"quantiles": [0.5, 1.0]}, "quantiles=1.0 must be a finite number above 0 and below 1"),
        ({"least_set": 0}, "least_set=0 must be a whole number of at least 1"),
        ({"ranks": "all"}, "ranks='all' must be one of 'bins', 'exact'"),
        ({"extremes": "no"}, "extremes='no' must be True or False"),
        ({"categorical": 3}, "categorical=3 must be 'auto' or a list of columns"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        fs.describe(federated(TABLE), **settings)


def test_a_table_is_refused_with_the_way_out():
    with pytest.raises(InputError, match=r"describe takes a federation, and this is a DataFrame: fedspan\.federate"):
        fs.describe(TABLE)
    with pytest.raises(InputError, match="correlation takes a federation"):
        fs.statistics.correlation(TABLE)


def test_an_owner_decides_about_extremes(monkeypatch):
    from fedspan.statistics.describe.parts import extremes

    fed = federated(TABLE)
    frame = fs.describe(fed, extremes=False).to_frame()
    assert frame[["min", "max"]].isna().all(axis=None)
    assert "describe.extremes" not in {call.step for call in fs.describe(fed, extremes=False).run_.calls}
    faulty = fed.with_faults(fs.FaultPlan(seed=0, error=0.0))
    assert fs.describe(faulty).to_frame().loc["age", "max"] == TABLE["age"].max()
    monkeypatch.setattr(extremes, "requested", lambda *_, **__: ({}, {"0": "its owner does not allow it"}))
    assert fs.describe(fed).to_frame()[["min", "max"]].isna().all(axis=None)


ANY = st.floats(-1e45, 1e45) | st.sampled_from([0.0, -0.0, 1.0, np.nan, 5e-324, -5e-324])


@settings(max_examples=25)
@given(hnp.arrays(float, st.tuples(st.integers(6, 30), st.just(2)), elements=ANY), st.integers(1, 5))
def test_any_numbers_have_the_quantiles_of_numpy(rows, sites):
    found = fs.describe(fs.federate(rows, sites=np.arange(len(rows)) % sites), least_set=1, extremes=False)
    for j in range(2):
        values = rows[~np.isnan(rows[:, j]), j]
        assert found.count[0, j] == len(values)
        if len(values):
            wanted = np.quantile(values, found.levels)
            np.testing.assert_allclose(found.quantiles[:, 0, j], wanted, rtol=1e-12)
            np.testing.assert_allclose(found.mean[0, j], values.mean(), rtol=1e-9, atol=1e-12 * np.abs(values).max())


def test_resumes_and_keeps_its_record(tmp_path):
    first = fs.describe(federated(TABLE, run_dir=tmp_path), by="sex")
    again = fs.describe(federated(TABLE, run_dir=tmp_path), by="sex")
    pd.testing.assert_frame_equal(first.to_frame(), again.to_frame())
    assert again.run_.what == "describe"
    assert all(call.replayed for call in again.run_.calls)


def test_groups_may_have_the_names_of_columns():
    table = pd.DataFrame({"x": np.arange(60.0), "arm": ["test", "p", "from"] * 20})
    fed = fs.federate(table, sites=np.arange(60) % 2)
    found = fs.describe(fed, by="arm").table_one()
    assert found.columns.tolist() == ["(all)", "from", "p", "test", "(test)", "(p)", "SMD"]
    assert found.loc[("n", ""), ["from", "p", "test"]].tolist() == ["20"] * 3
    bars = fs.statistics.histogram(fed, "x", by="arm", bins=3).to_frame()
    assert bars.columns.tolist() == ["(from)", "to", "(all)", "from", "p", "test"]


def test_settings_of_a_wrong_kind_are_refused():
    fed = fs.federate(np.arange(24.0).reshape(12, 2), sites=[0, 1, 2] * 4)
    for call, wrong, words in (
        (fs.describe, {"quantiles": 0.5}, "quantiles=0.5 must be a list of shares"),
        (fs.describe, {"categories": ["a"]}, "must be a dict of columns and their names"),
        (fs.statistics.histogram, {"column": 0, "categories": 3}, "must be a dict of columns and their names"),
        (fs.statistics.log_rank, {"groups": 3}, "groups=3 must be a list of names"),
    ):
        with pytest.raises(InputError, match=words):
            call(fed, **wrong)
    with pytest.raises(InputError, match="log_rank takes a federation, and this is a ndarray"):
        fs.statistics.log_rank(np.eye(3))
    with pytest.raises(InputError, match="drop='often' must be a finite number of at least 0 and at most 1"):
        fs.FaultPlan(drop="often")

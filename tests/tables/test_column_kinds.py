"""Kinds and tails of columns, from sums over all sites, or by one vote per site."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kurtosis as scipy_kurtosis

import fedspan as fs
from fedspan.errors import InputError
from fedspan.tables.parts.column_kinds import NUMBERS, TEXT, UNKNOWN, column_kinds, heavy_tails, kurtosis, local_powers


def federation(columns):
    return fs.LocalFederation([fs.Site(f"s{i}", pd.DataFrame({"a": column})) for i, column in enumerate(columns)])


def kinds(columns, known=UNKNOWN, votes=False):
    return federation(columns).run(column_kinds, known=np.array([known], dtype=np.int8), votes=votes)


@pytest.mark.parametrize(
    ("columns", "text", "by_votes"),
    [
        ([[1, 2], ["3", "4"]], False, False),
        ([[1, 2, 3], ["x", "y"]], False, True),  # three numbers against two names; one site against one
        ([[1, 2], ["x", "y"]], True, True),
        ([[1, 2], [3], ["x"] * 9], True, False),
        ([["-", None], [np.nan, np.nan]], False, False),
        ([["-", "a"], [None, None]], True, True),
        ([["-", 5], [None, None]], False, False),
        ([pd.Categorical([1, 2]), [None, None]], True, True),  # declared as names
        ([pd.Categorical([1, 2]), [3, 4], [5, 6]], False, False),
        ([["true", "False"], [True, False]], False, False),
        ([["10.0.0.1", "10.0.0.2"], ["10.0.0.3", 7]], True, True),
    ],
)
def test_a_column_is_text_where_names_are_at_least_as_many_as_numbers(columns, text, by_votes):
    assert kinds(columns).text.tolist() == [text]
    assert kinds(columns, votes=True).text.tolist() == [by_votes]


def test_known_kinds_are_kept():
    assert kinds([[1, 2]], known=TEXT).text.tolist() == [True]
    found = kinds([["a", "5"]], known=NUMBERS)
    assert found.text.tolist() == [False]
    assert found.missing.tolist() == [True]  # "a" is no number
    assert found.mean.tolist() == [5.0]


def test_missing_cells_and_means():
    found = kinds([[1.0, np.nan], ["7", "x"], [np.inf, 1.0]])
    assert found.missing.tolist() == [True]
    assert found.mean == pytest.approx([3.0])
    assert found.log_mean == pytest.approx([(2 * np.log(2) + np.log(8)) / 3])
    assert kinds([["a", "b"], ["c", "1"]]).missing.tolist() == [False]
    assert kinds([["a", "b"], ["c", "-"]]).missing.tolist() == [True]


def test_with_votes_means_are_medians_and_a_gap_anywhere_is_one():
    columns = [[1.0, 3.0], [4.0], [1e60, 1e60, np.nan], [np.nan]]
    found = kinds(columns, votes=True)
    assert found.mean.tolist() == [4.0]  # of 2, 4, 1e60, and a site that has none
    assert found.missing.tolist() == [True]
    assert kinds([[1.0, 3.0], [4.0]], votes=True).missing.tolist() == [False]
    assert kinds([["-"], ["-"]], votes=True).mean.tolist() == [0.0]


def test_sites_without_rows_are_harmless_unless_none_has_any():
    assert kinds([[1.0, 3.0], []]).mean.tolist() == [2.0]
    with pytest.raises(InputError, match="no rows"):
        kinds([[], []])


def test_means_that_no_honest_sums_can_have_are_refused():
    def attack(replies, bad, rng, call):
        return {site: {**replies[site], "sum": np.array([1e200])} for site in bad}

    fed = federation([[1.0, 2.0]] * 3).corrupt(attack, sites=["s1"])
    with pytest.raises(InputError, match="some site sends wrong sums"):
        fed.run(column_kinds, known=np.array([UNKNOWN], dtype=np.int8))
    found = fed.run(column_kinds, known=np.array([UNKNOWN], dtype=np.int8), votes=True)
    assert found.mean.tolist() == [1.5]


def test_with_votes_no_false_report_about_a_column_that_others_do_not_have_ends_the_run():
    def attack(replies, bad, rng, call):
        return {site: {**replies[site], "sum": np.array([1e300, 1e300])} for site in bad}

    frames = [pd.DataFrame({"text": ["a", "b"], "empty": [None, None]})] * 4 + [pd.DataFrame({"text": [1], "empty": 2})]
    fed = fs.LocalFederation([fs.Site(f"s{i}", frame) for i, frame in enumerate(frames)])
    found = fed.corrupt(attack, sites=["s4"]).run(column_kinds, known=np.full(2, UNKNOWN, dtype=np.int8), votes=True)
    assert found.text.tolist() == [True, False]
    assert found.mean.tolist() == [0.0, 1e70]


def tails(columns, votes=False):
    columns = [np.asarray(column, dtype=float) for column in columns]
    pooled = np.concatenate(columns)
    centre = np.array([pooled.mean()])
    log_centre = np.array([np.mean(np.sign(pooled) * np.log1p(np.abs(pooled)))])
    wanted = np.ones(1, dtype=bool)
    given = {"wanted": wanted, "centre": centre, "log_centre": log_centre, "votes": votes}
    return bool(federation(columns).run(heavy_tails, **given)[0])


rng = np.random.default_rng(0)
SHAPES = {
    "normal": (rng.normal(size=3000), False),
    "uniform": (rng.uniform(0, 65535, 3000), False),
    "log-normal": (rng.lognormal(5, 2, 3000), True),
    "both tails": (rng.standard_t(1.5, 3000) * 1000, True),
    "rare flag": (np.arange(3000) % 500 == 0, False),  # the logarithm only scales two values
    "mostly full": (np.where(np.arange(3000) % 100, 254, rng.integers(0, 255, 3000)), False),  # it makes this worse
    "constant": (np.full(3000, 7.1), True),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("votes", [False, True])
def test_which_shapes_become_logarithms(shape, votes):
    values, expected = SHAPES[shape]
    assert tails([values], votes) == expected
    assert tails(np.array_split(values, 6), votes) == expected


@given(st.integers(0, 2**32), st.floats(-1e6, 1e6), st.floats(-10, 10))
def test_kurtosis_is_that_of_the_pooled_numbers_about_any_centre(seed, shift, off):
    values = np.random.default_rng(seed).exponential(size=(50, 1)) + shift
    site = fs.Site("a", values)
    centre = values.mean(axis=0) + off
    sums = local_powers(site, wanted=np.ones(1, dtype=bool), centre=centre, log_centre=np.zeros(1))
    found = kurtosis(sums["n"], sums["powers"], centre)
    np.testing.assert_allclose(found, scipy_kurtosis(values, fisher=False), rtol=1e-4)


def test_extreme_sums_of_a_site_are_no_kurtosis():
    huge = np.full((4, 1), 1e300)
    assert np.isnan(kurtosis(np.array([1]), huge, np.zeros(1))).all()
    assert np.isnan(kurtosis(np.array([0]), np.zeros((4, 1)), np.zeros(1))).all()


def test_unwanted_columns_leave_nothing():
    site = fs.Site("a", np.ones((4, 2)))
    sums = local_powers(site, wanted=np.array([True, False]), centre=np.zeros(2), log_centre=np.zeros(2))
    assert sums["n"].tolist() == [4, 0]
    assert not sums["powers"][:, 1].any()

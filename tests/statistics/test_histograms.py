"""Histograms are those of numpy on the pooled rows, over edges that need no smallest or largest value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.statistics import histogram

from .hospital_table import federated, patients

TABLE = patients()


@pytest.mark.parametrize("kind", ["even", "tiny", "sorted", "one"])
def test_counts_are_those_of_numpy(kind):
    edges = [20, 30, 42.5, 60, 89]
    found = histogram(federated(TABLE, kind), "age", bins=edges, by="sex", least_set=1)
    for counts, rows in zip(found.counts, (TABLE, *(rows for _, rows in TABLE.groupby("sex"))), strict=True):
        np.testing.assert_array_equal(counts, np.histogram(rows["age"], edges)[0])
    assert found.below.tolist() == [0, 0, 0]


def test_edges_are_round_and_no_value_of_a_row():
    found = histogram(federated(TABLE), "crp", bins=10)
    assert set(found.edges.tolist()).isdisjoint(TABLE["crp"])
    width = np.diff(found.edges)
    np.testing.assert_allclose(width, width[0])
    assert 8 <= len(found.edges) <= 16
    frame = found.to_frame()
    assert frame["from"].iloc[0] == -np.inf
    assert frame["to"].iloc[-1] == np.inf
    kept = frame["(all)"].notna()
    wanted = [((TABLE["crp"] >= a) & (TABLE["crp"] < b)).sum() for a, b in zip(frame["from"], frame["to"], strict=True)]
    np.testing.assert_array_equal(frame["(all)"][kept], np.array(wanted)[kept])
    assert not {call.step for call in found.run_.calls} & {"describe.extremes", "describe.column_values"}


def test_constant_columns_and_columns_without_values():
    table = pd.DataFrame({"same": np.full(20, 7.0), "none": np.full(20, np.nan)})
    found = histogram(federated(table), "same")
    assert np.nansum(found.counts) + found.below[0] + found.above[0] == 20
    assert np.nansum(histogram(federated(table), "none").counts) == 0


def test_secure_sums_give_the_same():
    fed = federated(TABLE, policy=fs.Policy(secure_sum=True))
    np.testing.assert_array_equal(histogram(fed, "crp").counts, histogram(federated(TABLE), "crp").counts)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"column": "sex"}, "column='sex' holds text, and a histogram is of numbers"),
        ({"column": "age", "bins": 0}, "bins=0 must be a whole number between 1 and 10000"),
        ({"column": "age", "bins": [3, 2, 1]}, "must be a number of bins, or at least two finite edges that rise"),
        ({"column": "size"}, "column='size' is the name of no column"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        histogram(federated(TABLE), **settings)


def test_a_column_without_values_has_empty_bins():
    fed = fs.federate(np.column_stack([np.full(30, np.nan), np.arange(30.0)]), sites=np.arange(30) % 3)
    assert histogram(fed, 0).to_frame()["(all)"].tolist() == [0.0, 0.0, 0.0]

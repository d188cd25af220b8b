"""Labels that name the site of each row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.federation.site_labels import site_rows


def test_two_labels_with_one_name_are_refused():
    with pytest.raises(InputError, match="both name the site '1'"):
        fs.federate(np.eye(3), sites=np.array([1, "1", 2], dtype=object))
    with pytest.raises(InputError, match="two sites have the name 'a'"):
        fs.LocalFederation([fs.Site("a", np.eye(2)), fs.Site("a", np.eye(2))])


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([1, 2], "one label for each of the 3 rows"),
        ([1.0, np.nan, 2.0], "missing value"),
        (np.array([1.0, np.nan, 2.0]), "NaN"),
        (["a", float("nan"), "b"], "missing value"),
        (pd.Series(["a", None, "b"], dtype="string"), "missing value"),
        (pd.to_datetime(pd.Series(["2020-01-01", None, "2020-01-02"])), "missing"),
        ([1, "1", 2], "both name the site"),
        (np.array(["a", None, "b"], dtype=object), "missing value"),
        (["a", "", "b"], "empty label"),
        (pa.array(["a", None, "b"]), "missing value"),
        (np.ma.masked_array([1, 2, 3], mask=[False, True, False]), "masked"),
        ({"a": 0, "b": 1, "c": 2}, "sites is a dict"),
        ({"a", "b", "c"}, "sites is a set"),
        (3, "sites=3, and must be a list"),
        (2.5, "sites is a float"),
        ([("a", 1), ("a", 2), ("b", 1)], "a label of the type tuple"),
        ([("a",), ("a", 2), ("b", 1)], "a label of the type tuple"),
        (pd.DataFrame({"site": ["a", "b", "a"]}), "one label for each of the 3 rows"),
    ],
)
def test_bad_labels_are_refused(labels, reason):
    with pytest.raises(InputError, match=reason):
        fs.federate(np.eye(3), sites=labels)


@pytest.mark.parametrize(
    "labels",
    [
        ("b", "a", "b"),
        pa.array(["b", "a", "b"]),
        pa.chunked_array([["b"], ["a", "b"]]),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pd.Series(["b", "a", "b"], index=[7, 8, 9]),
        pd.Categorical(["b", "a", "b"]),
        pd.Index(["b", "a", "b"]),
        np.ma.masked_array(["b", "a", "b"]),
        (text for text in "bab"),
    ],
    ids=lambda labels: type(labels).__name__,
)
def test_labels_of_any_library_name_the_sites(labels):
    assert {name: rows.tolist() for name, rows in site_rows(labels, 3).items()} == {"a": [1], "b": [0, 2]}


def test_series_with_a_list_of_their_own_are_read_by_it():
    """As polars has it: its to_numpy takes no dtype."""

    class Series:
        def __init__(self, values):
            self.to_list = lambda: values
            self.to_numpy = lambda: np.array(values, dtype=object)

        def __iter__(self):
            return iter(self.to_list())

    assert list(site_rows(Series(["b", "a", "b"]), 3)) == ["a", "b"]
    with pytest.raises(InputError, match="missing value"):
        site_rows(Series(["b", None, "b"]), 3)

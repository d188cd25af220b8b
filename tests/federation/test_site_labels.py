"""Labels that name the site of each row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import (
    InputError,
)


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
    ],
)
def test_bad_labels_are_refused(labels, reason):
    with pytest.raises(InputError, match=reason):
        fs.federate(np.eye(3), sites=labels)

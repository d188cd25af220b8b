"""A first look is of one run, and its parts are those of the functions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import InputError
from fedspan.statistics import correlation, overview

from .hospital_table import CATEGORIES, federated, patients

TABLE = patients()


def test_parts_are_those_of_the_functions():
    found = overview(federated(TABLE), by="sex")
    pd.testing.assert_frame_equal(
        found.description.to_frame(), fs.describe(federated(TABLE), by="sex", max_categories=12).to_frame()
    )
    np.testing.assert_array_equal(found.correlation.values, correlation(federated(TABLE)).values)
    assert [one.column for one in found.histograms] == ["age", "crp", "weight", "flag", "none"]
    assert found.run_.what == "overview"
    assert len(found.run_.calls) == len({call.number for call in found.run_.calls})


def test_secure_sums_compare_no_sites():
    found = overview(federated(TABLE, policy=fs.Policy(secure_sum=True)), categories=CATEGORIES)
    assert found.differences is None
    assert found.description.rows.tolist() == [240]
    with pytest.raises(InputError, match="bins=-1 must be a whole number"):
        overview(federated(TABLE), bins=-1)

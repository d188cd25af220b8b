"""Results of statistics are shown as tables."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.errors import MissingPackageError

TABLE = pd.DataFrame({"age": np.arange(40.0), "sex": ["f", "m"] * 20, "dx": ["<b>a</b>"] * 20 + ["b"] * 20})


@pytest.fixture(scope="module")
def fed():
    return fs.federate(TABLE, sites=np.arange(40) % 3)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (fs.describe, "19.5"),
        (lambda fed: fs.statistics.crosstab(fed, "sex", "dx"), "sex"),
        (lambda fed: fs.statistics.histogram(fed, "age", bins=4), "from"),
        (fs.statistics.correlation, "age"),
        (fs.statistics.site_differences, "corrected"),
    ],
)
def test_a_result_is_shown_as_a_table_of_its_numbers(fed, result, shown):
    found = result(fed)
    assert shown in repr(found)
    assert "array(" not in repr(found)
    assert "<table" in found._repr_html_()
    assert "<b>a</b>" not in found._repr_html_()


def test_without_pandas_a_result_is_there_and_its_table_names_what_is_missing(monkeypatch):
    found = fs.describe(fs.federate(np.random.default_rng(0).normal(size=(30, 2)), sites=np.arange(30) % 2))
    monkeypatch.setattr("fedspan.statistics.describe.parts.shown_frame.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert "once pandas is installed" in repr(found)
    for frame in (found.to_frame, found.run_.to_frame):
        with pytest.raises(MissingPackageError, match=r"to_frame\(\) needs pandas: pip install '\.\[tables\]'"):
            frame()

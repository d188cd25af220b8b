"""Crosstabs are those of pandas on the pooled rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fedspan as fs
from fedspan.errors import InputError
from fedspan.statistics import crosstab

from .hospital_table import CATEGORIES, federated, patients

TABLE = patients()


@pytest.mark.parametrize("kind", ["even", "tiny", "sorted", "one"])
def test_counts_are_those_of_pandas(kind):
    found = crosstab(federated(TABLE, kind), "sex", "code", least_set=1)
    wanted = pd.crosstab(TABLE["sex"], TABLE["code"], margins=True, margins_name="(all)")
    pd.testing.assert_frame_equal(found.to_frame(margins=True).astype(int), wanted, check_dtype=False, check_like=True)
    test = stats.chi2_contingency(wanted.iloc[:-1, :-1])
    np.testing.assert_allclose([found.test.statistic, found.test.p], [test.statistic, test.pvalue], rtol=1e-10)


def test_small_counts_are_suppressed():
    found = crosstab(federated(TABLE), "sex", "code")
    wanted = pd.crosstab(TABLE["sex"], TABLE["code"]).to_numpy()
    kept = ~np.isnan(found.counts)
    np.testing.assert_array_equal(found.counts[kept], wanted[kept])
    assert not kept[(wanted > 0) & (wanted < 5)].any()
    assert np.isnan(found.test.p)
    assert found.total == wanted.sum()


def test_the_same_counts_are_hidden_in_any_order():
    found, turned = crosstab(federated(TABLE), "sex", "code"), crosstab(federated(TABLE), "code", "sex")
    np.testing.assert_array_equal(turned.counts, found.counts.T)
    listed = {"sex": ["m", "f"], "code": list("FEDCBA")}
    backwards = crosstab(federated(TABLE), "sex", "code", categories=listed)
    np.testing.assert_array_equal(backwards.counts[::-1, ::-1], found.counts)


def test_numbers_are_names_in_their_order():
    table = pd.DataFrame({"ward": np.arange(60) % 12, "sex": list("fm") * 30})
    assert crosstab(federated(table), "ward", "sex").row_names == tuple(map(str, range(12)))


def test_secure_sums_need_the_names():
    fed = federated(TABLE, policy=fs.Policy(secure_sum=True))
    found = crosstab(fed, "sex", "code", categories=CATEGORIES)
    np.testing.assert_array_equal(found.counts, crosstab(federated(TABLE), "sex", "code").counts)
    with pytest.raises(InputError, match="column 'sex' has names that no site may send under secure sums"):
        crosstab(fed, "sex", "code")


def test_listed_names_stay_without_rows():
    found = crosstab(federated(TABLE), "sex", "flag", categories={"sex": ["f", "m", "x"], "flag": ["0", "1"]})
    assert found.row_names == ("f", "m", "x")
    assert found.counts[2].tolist() == [0, 0]


def test_bad_columns_are_refused():
    with pytest.raises(InputError, match="rows='sex' and columns='sex' are the same column"):
        crosstab(federated(TABLE), "sex", "sex")
    with pytest.raises(InputError, match="columns=9 must be a whole number between 0 and"):
        crosstab(federated(TABLE), "sex", 9)
    table = pd.DataFrame({"id": [f"p{i}" for i in range(300)], "sex": list("fm") * 150})
    with pytest.raises(InputError, match="column 'id' has 300 names, and a table has at most 256"):
        crosstab(federated(table), "id", "sex")

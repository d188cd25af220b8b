"""Totals that no honest sites can have are refused."""

from __future__ import annotations

import numpy as np
import pytest

from fedspan.errors import InputError, MessageError
from fedspan.federation import Total
from fedspan.sums.plausible_totals import ABSURD, CountedRows, refuse_absurd, whole


def counted(n, sites):
    return Total({"n": n}, tuple(sites), {})


def test_rows_of_more_sites_replace_those_of_fewer():
    rows = CountedRows(10, ("a", "b"))
    rows.compare(counted(14, "abc"))
    assert (rows.n, rows.sites) == (14, ("a", "b", "c"))
    rows.compare(counted(9, "ac"))
    rows.compare(counted(5, "d"))  # other sites: nothing to compare with
    assert (rows.n, rows.sites) == (14, ("a", "b", "c"))


@pytest.mark.parametrize(("n", "sites"), [(15, "abc"), (13, "abc"), (15, "ab"), (13, "abcd"), (-1, "ab"), (2.5, "ab")])
def test_a_number_of_rows_that_contradicts_an_earlier_one_is_refused(n, sites):
    rows = CountedRows(14, ("a", "b", "c"))
    with pytest.raises(MessageError):
        rows.compare(counted(n, sites))


def test_numbers_whose_square_overflows_are_refused():
    refuse_absurd(0.99 * ABSURD, np.array([1.0, -0.99 * ABSURD]))
    for value in (ABSURD, np.array([0.0, -ABSURD]), np.nan):
        with pytest.raises(InputError, match="beyond 1e\\+100"):
            refuse_absurd(1.0, value)


def test_a_total_must_have_its_keys_and_shapes():
    total = Total({"sum": np.zeros((2, 3)), "n": 4}, ("a",), {})
    assert whole(total, sum=(2, 3), n=()) is total
    with pytest.raises(MessageError, match=r"sent the shape \(2, 3\) as 'sum', and it must have the shape \(3,\)"):
        whole(total, sum=(3,))
    with pytest.raises(MessageError, match="sent nothing as 'bad'"):
        whole(total, bad=())

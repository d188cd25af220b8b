"""Replies and their totals."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import (
    InputError,
)
from fedspan.federation.replies import Total

from .conftest import count


@fs.step
def mean_of_rows(site):
    return {"mean": site.X.mean(axis=0), "n": len(site)}


@fs.step
def first_column(site):
    return {"column": site.X[:, 0]}


@fs.step
def name_of(site):
    return {"name": site.name}


def test_what_was_not_sent_or_has_several_shapes_cannot_be_stacked(fed):
    with pytest.raises(InputError, match=r"^site 's0' sent no 'mean', it sent \['n'\]$"):
        fed.ask(count).stack("mean")
    with pytest.raises(InputError, match=r"'column' cannot be stacked: the sites sent the shapes \[\(4,\), \(5,\)"):
        fed.ask(first_column).stack("column")


def test_sums_and_means_by_hand(wire):
    sites = [fs.Site("a", np.array([[1.0], [2.0]])), fs.Site("b", np.array([[10.0]]))]

    @fs.step
    def parts(site):
        X = site.X
        return {
            "sum": X.sum(axis=0).astype(np.float32),
            "n": len(X),
            "f": 0.5,
            "flags": X[:1, 0] > 5,
            "u": np.uint8([200]),
        }

    fed = fs.LocalFederation(sites, wire=wire)
    total = fed.sum(parts)
    assert isinstance(total, Total)
    assert total.sites == ("a", "b")
    assert (total["sum"], total["n"], total["f"]) == (np.array([13.0]), 3, 1.0)
    assert total["sum"].dtype == np.float64
    assert total["flags"].tolist() == [1]
    assert total["u"].tolist() == [400]
    mean = fed.mean(parts)
    assert (mean["n"], mean["sum"], mean["f"]) == (1.5, np.array([6.5]), 0.5)


def test_sums_of_words_are_refused(fed):
    with pytest.raises(InputError, match="'name' is not a number"):
        fed.sum(name_of)


def test_a_sum_that_overflows_is_refused(fed):
    @fs.step
    def large(site):
        return {"x": np.array([1e308])}

    @fs.step
    def large_counts(site):
        return {"x": np.array([2**62])}

    with pytest.raises(InputError, match="overflows"):
        fed.sum(large)
    with pytest.raises(InputError, match="overflow 64 bits"):
        fed.sum(large_counts)

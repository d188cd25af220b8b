"""The union of the sites' names: what leaves a site, what is kept, and what a site cannot do to it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedspan as fs
from fedspan.federation import FailureKind
from fedspan.tables.parts.category_union import (
    LONGEST,
    category_union,
    local_names,
    most_frequent,
    packed,
    unpacked,
)

HERE = np.array([0])


def federation(columns, **options):
    """Make a federation of sites with one column of text each."""
    sites = [fs.Site(f"s{i}", pd.DataFrame({"a": column})) for i, column in enumerate(columns)]
    return fs.LocalFederation(sites, **options)


def union_of(fed, max_categories=32, min_count=1):
    return fed.run(category_union, wanted=HERE, max_categories=max_categories, min_count=min_count)[0][0]


def test_the_union_is_sorted_and_without_what_is_missing():
    fed = federation([["udp", "-", "tcp"], ["tcp", "icmp", None], ["", " udp ", "?"]])
    assert union_of(fed) == ("icmp", "tcp", "udp")


def test_rare_names_do_not_leave_their_site():
    fed = federation([["a", "a", "b"], ["b", "c", "c"]])
    assert union_of(fed, min_count=2) == ("a", "c")
    replies = fed.ask(local_names, wanted=HERE, min_count=2, most=10)
    assert replies["s0"]["names"] == "a"


def test_a_site_sends_its_most_frequent_names_and_no_endless_ones():
    texts = [f"n{i:04}" for i in range(300) for _ in range(1 + (i == 299))] + ["x" * LONGEST, "y" * (LONGEST + 1)]
    sent = union_of(federation([texts]))
    assert len(sent) == 256
    assert "n0299" in sent
    assert "n0298" not in sent
    many = union_of(federation([texts]), max_categories=50)  # eight times as many
    assert len(many) == 301
    assert "x" * LONGEST in many


def test_names_are_kept_by_their_number_of_rows_over_all_sites():
    columns = [["a"] * 3 + ["b"] * 2, ["b"] * 2 + ["c"] * 3, ["c", "d", "-", "-"]]
    fed = federation(columns)
    kept = fed.run(most_frequent, wanted=HERE, candidates=(("a", "b", "c", "d"),), max_categories=2)
    assert kept.names == (("b", "c"),)
    np.testing.assert_allclose(kept.shares[0], np.array([4, 4, 4]) / 12)  # the rest are 3 a and 1 d; two are missing
    every = fed.run(most_frequent, wanted=HERE, candidates=(("d", "a"),), max_categories=1, fixed=[True])
    assert every.names == (("d", "a"),)
    np.testing.assert_allclose(every.shares[0], np.array([1, 3, 8]) / 12)


def test_rare_names_are_dropped_only_from_columns_with_too_many():
    fed = federation([["a"] * 90 + ["b"] * 8 + ["c"] * 2])
    names = ("a", "b", "c")
    for most, rare, kept in ((3, 0.5, names), (2, 0.05, ("a", "b")), (2, 0.085, ("a",)), (1, 0.95, ())):
        found = fed.run(most_frequent, wanted=HERE, candidates=(names,), max_categories=most, rare=rare)
        assert found.names == (kept,)


def test_with_votes_each_site_has_one_vote_to_share():
    columns = [["tcp"] * 50 + ["udp"] * 50] * 4 + [["fake"] * 90_000]
    fed = federation(columns)
    given = {"wanted": HERE, "candidates": (("fake", "tcp", "udp"),), "max_categories": 2}
    assert fed.run(most_frequent, **given).names == (("fake", "tcp"),)
    kept = fed.run(most_frequent, **given, votes=True)
    assert kept.names == (("tcp", "udp"),)
    np.testing.assert_allclose(kept.shares[0], [0.4, 0.4, 0.2])


def overlong(reply):
    return {"names": "n" * (LONGEST + 1), "sizes": np.array([1])}


def too_many(reply):
    return packed([[f"n{i}" for i in range(5000)]])


def other_number(reply):
    return {"names": "a\nb", "sizes": np.array([3])}


def negative(reply):
    return {"names": "a", "sizes": np.array([-1])}


def untidy(reply):
    return {"names": " a", "sizes": np.array([1])}


def a_missing_mark(reply):
    return {"names": "-", "sizes": np.array([1])}


def fractions(reply):
    return {"names": "a", "sizes": np.array([1.0])}


def a_number(reply):
    return {"names": 3, "sizes": np.array([1])}


@pytest.mark.parametrize(
    "malformed", [overlong, too_many, other_number, negative, untidy, a_missing_mark, fractions, a_number]
)
def test_a_site_that_breaks_the_rules_is_left_out_with_a_reason(malformed):
    fed = federation([["tcp", "udp"]] * 5)

    def attack(replies, bad, rng, call):
        return {site: malformed(replies[site]) for site in bad}

    corrupt = fed.corrupt(attack, sites=["s3"])
    with corrupt.begin("attacked") as run:
        if malformed is a_number:  # the policy rejects it, because the other replies hold text
            names, trusted = category_union(run, wanted=HERE, max_categories=9)
            assert "'names' is numbers" in run.record.failures[0][2]
        else:
            with pytest.warns(UserWarning, match="s3"):
                names, trusted = category_union(run, wanted=HERE, max_categories=9)
            assert run.record.failures[0][2].kind is FailureKind.REJECTED
            assert "s3" not in trusted.sites
    assert names == (("tcp", "udp"),)


def test_junk_names_of_many_sites_do_not_make_the_request_of_counts_long(monkeypatch):
    monkeypatch.setattr("fedspan.tables.parts.category_union._MOST_CANDIDATES", 3)
    fed = federation([["tcp", "udp", f"junk-{i}-{j}"] for i in range(4) for j in range(2)])
    assert union_of(fed) == ("junk-0-0", "tcp", "udp")


@pytest.mark.parametrize("lists", [[], [[]], [["a"]], [[""]], [["a", "b c"], [], ["é"]], [[], [""], []]])
def test_lists_of_names_travel(lists):
    assert unpacked(**packed(lists)) == tuple(map(tuple, lists))

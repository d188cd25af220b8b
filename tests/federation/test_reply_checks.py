"""Checks of replies against the policy and against each other, each failure with its reason."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import (
    InputError,
    QuorumError,
)
from fedspan.federation.outcomes import FailureKind
from fedspan.wire import encode

from .conftest import count, make_sites


@fs.step
def first_column(site):
    return {"column": site.X[:, 0]}


@fs.step
def name_of(site):
    return {"name": site.name}


release = threading.Event()


@fs.step
def misbehave(site, how):
    reply = {"x": np.ones(3), "n": 1}
    if site.name == "s2":
        if how == "late":
            release.wait(300)
        elif how == "oversize":
            reply["x"] = np.ones(100_000)
        elif how == "nan":
            reply["x"] = np.array([1.0, np.nan, 1.0])
        elif how == "inf scalar":
            reply["n"] = float("inf")
        elif how == "shape":
            reply["x"] = np.ones(4)
        elif how == "transposed":
            reply["x"] = np.ones((3, 1))
        elif how == "key":
            reply["extra"] = 1
        elif how == "missing key":
            del reply["n"]
        elif how == "text":
            reply["x"] = np.array(["a", "b", "c"])
        elif how == "none":
            reply["n"] = None
        elif how == "complex":
            reply["x"] = np.ones(3) * 1j
        elif how == "error":
            raise ZeroDivisionError("the instrument\nis off")
        elif how == "not a dict":
            return [1, 2]
    return reply


REASONS = {
    "late": "late: no reply within 2 s",
    "oversize": "more than the 50000 allowed",
    "nan": "non-finite: 'x'",
    "inf scalar": "non-finite: 'n'",
    "shape": r"misshapen: 'x' has the shape \(4\), most sites sent \(3\)",
    "transposed": r"misshapen: 'x' has the shape \(3, 1\)",
    "key": "misshapen: the reply has the keys",
    "missing key": "misshapen: the reply has the keys",
    "text": "misshapen: 'x' is text",
    "none": "misshapen: 'n' is None",
    "complex": "misshapen: 'x' is complex",
    "error": "raised ZeroDivisionError: the instrument is off",
    "not a dict": "must be a dict",
}


@pytest.mark.parametrize("how", sorted(REASONS))
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_a_bad_reply_is_a_failed_site_with_its_reason(how, n_jobs, wire):
    release.clear()
    policy = fs.Policy(deadline=2.0 if how == "late" else 60, max_bytes=50_000)
    fed = fs.LocalFederation(make_sites(), wire=wire, n_jobs=n_jobs, policy=policy)
    replies = fed.ask(misbehave, how=how)
    release.set()
    assert list(replies.ok) == ["s0", "s1", "s3", "s4", "s5", "s6"]
    with pytest.raises(KeyError, match=REASONS[how]):
        _ = replies["s2"]
    assert fed.record.calls[0].failed == replies.failed
    assert fed.record.calls[0].answered == tuple(replies.ok)
    assert "s2" not in fed.record.calls[0].bytes_up
    total = fed.sum(misbehave, how="none" if how == "late" else how)
    assert total["n"] == 6


def test_a_reply_that_may_not_travel_is_a_failed_site(wire):
    @fs.step
    def bad_at_s1(site):
        return {"x": [1] if site.name == "s1" else 1}

    replies = fs.LocalFederation(make_sites(), wire=wire).ask(bad_at_s1)
    assert "'x' holds a list" in replies.failed["s1"]
    assert len(replies.ok) == 6


def test_non_finite_values_may_be_allowed(wire):
    @fs.step
    def nan(site):
        return {"x": float("nan")}

    fed = fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(finite=False))
    assert np.isnan(fed.ask(nan).stack("x")).all()


def test_values_that_are_not_finite_may_be_added_up_where_the_policy_allows(wire):
    @fs.step
    def nan(site):
        return {"x": float("nan")}

    assert np.isnan(fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(finite=False)).sum(nan)["x"])


def test_ragged_keys_may_have_any_shape(wire):
    @fs.step(ragged=["tasks"])
    def tasks(site):
        k = 1 if site.name == "s3" else 2
        return {"tasks": np.zeros((k, 2)) if k == 1 else np.zeros(2), "n": k}

    assert fs.LocalFederation(make_sites(), wire=wire).ask(tasks).failed == {}


def test_replies_with_one_entry_per_row_may_have_any_length(fed):
    replies = fed.ask(first_column)
    assert replies.failed == {}
    assert [len(reply["column"]) for reply in replies.values()] == [4 + i for i in range(7)]
    with pytest.raises(InputError, match="cannot be stacked"):
        replies.stack("column")


def test_a_wrong_number_of_columns_per_row_is_reported_as_such(wire):
    @fs.step
    def some_columns(site):
        return {"x": np.zeros((len(site), 2 if site.name == "s1" else 3))}

    failed = fs.LocalFederation(make_sites(), wire=wire).ask(some_columns).failed
    assert list(failed) == ["s1"]
    assert "'x' has the shape (rows, 2), most sites sent (rows, 3) (if that is intended" in failed["s1"]


def test_where_two_shapes_are_equally_common_no_site_is_blamed(wire):
    @fs.step
    def halves(site):
        return {"x": np.zeros(100 + int(site.name[1]) % 2)}

    fed = fs.LocalFederation(make_sites(4), wire=wire)
    assert fed.ask(halves).failed == {}
    with pytest.raises(
        QuorumError, match=r"0 of 4 .*s0, s2: misshapen: 'x' has the shape \(100\), others sent \(101\)"
    ):
        fed.sum(halves)


def test_sites_with_as_many_rows_as_columns_are_checked_too(wire):
    @fs.step
    def column_sums(site):
        return {"s": np.zeros(7) if site.name == "s2" else site.X.sum(axis=0)}

    fed = fs.LocalFederation([fs.Site(f"s{i}", np.eye(3)) for i in range(5)], wire=wire)
    total = fed.sum(column_sums)
    assert total["s"].tolist() == [4.0, 4.0, 4.0]
    assert "(7)" in total.failed["s2"]


def test_shapes_may_change_from_call_to_call(wire):
    @fs.step
    def first(site, k):
        return {"x": site.X[0, :k]}

    fed = fs.LocalFederation(make_sites(), wire=wire)
    fed.ask(first, k=2)
    assert fed.ask(first, ["s0"], k=3)["s0"]["x"].shape == (3,)
    assert fed.ask(first, ["s0", "s1"], k=1).stack("x").shape == (2, 1)


@pytest.mark.parametrize("n_sites", [1, 2, 3])
def test_shape_faults_are_noticed_in_the_smallest_federations(wire, n_sites):
    fed = fs.LocalFederation(make_sites(n_sites), wire=wire, policy=fs.Policy(quorum=1))
    faulty = fed.with_faults(fs.FaultPlan(seed=0, shape=0.4))
    answered = 0
    for _ in range(20):
        with suppress(QuorumError):
            answered += faulty.sum(count)["n"] > 0
    assert answered > 5
    assert fed.record.failures
    assert all("misshapen" in why for _, _, why in fed.record.failures)


def test_texts_of_different_lengths_are_counted_each(wire):
    fed = fs.LocalFederation([fs.Site(name, np.zeros((2, 1))) for name in ("a", "b" * 20, "c")], wire=wire)
    fed.ask(name_of)
    sizes = fed.record.calls[0].bytes_up
    assert sizes == {name: len(encode({"name": name})) for name in fed.sites}
    assert len(set(sizes.values())) == 2


def test_bytes_are_those_of_the_messages(fed):
    fed.ask(count)
    call = fed.record.calls[0]
    assert call.bytes_up["s0"] == len(encode({"n": 4}))
    assert call.bytes_down["s0"] == len(encode({}))
    assert fed.record.bytes_up == 7 * len(encode({"n": 4}))


@pytest.mark.parametrize("large", [("s0",), ("s0", "s1", "s5"), tuple(f"s{i}" for i in range(7))], ids=len)
def test_every_oversize_reply_fails_whichever_comes_first(wire, large):
    @fs.step
    def sized(site):
        return {"x": np.ones(1000 if site.name in large else 3)}

    fed = fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(max_bytes=1000, quorum=1))
    if len(large) == 7:
        with pytest.raises(QuorumError) as caught:
            fed.ask(sized)
        failed = caught.value.failed
    else:
        failed = fed.ask(sized).failed
    assert tuple(failed) == large
    assert {failure.kind for failure in failed.values()} == {FailureKind.OVERSIZE}

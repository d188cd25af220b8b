"""Policy: deadlines, quorum, sizes, finite values and shapes, each with the reason in the record."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import DeadlineError, PolicyError, QuorumError

from .conftest import count, make_sites

release = threading.Event()


@fs.step
def misbehave(site, how):
    reply = {"x": np.ones(3), "n": 1}
    if site.name == "s2":
        if how == "late":
            release.wait(20)
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
    "late": "late: no reply within 0.3 s",
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
    policy = fs.Policy(deadline=0.3 if how == "late" else 20, max_bytes=50_000)
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


def test_below_the_quorum_the_run_stops_and_says_who_failed_and_why(fed):
    @fs.step
    def most_fail(site):
        if site.name != "s0":
            raise OSError("disk full")
        return {"n": 1}

    with pytest.raises(
        QuorumError, match=r"1 of 7 sites answered .*quorum needs 4.*s1: .*OSError: disk full"
    ) as caught:
        fed.ask(most_fail)
    assert sorted(caught.value.failed) == [f"s{i}" for i in range(1, 7)]
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    ("quorum", "asked", "needed"),
    [
        ("majority", 7, 4),
        ("majority", 8, 5),
        ("majority", 1, 1),
        ("all", 7, 7),
        (3, 7, 3),
        (9, 7, 7),
        (0.5, 7, 4),
        (1.0, 7, 7),
        (0.1, 30, 3),
        (0.01, 7, 1),
    ],
)
def test_quorum_counts(quorum, asked, needed):
    assert fs.Policy(quorum=quorum).needed(asked) == needed


@pytest.mark.parametrize(
    "bad",
    [
        {"deadline": float("inf")},
        {"deadline": 0},
        {"deadline": float("nan")},
        {"deadline": None},
        {"run_deadline": 0.0},
        {"run_deadline": float("inf")},
        {"run_deadline": "a day"},
        {"quorum": 0},
        {"quorum": 1.5},
        {"quorum": 0.0},
        {"quorum": "most"},
        {"quorum": True},
        {"max_bytes": 0},
        {"max_bytes": 1.5},
        {"secure_sum": "yes"},
    ],
    ids=str,
)
def test_impossible_policies_are_refused(bad):
    with pytest.raises(PolicyError, match=next(iter(bad))):
        fs.Policy(**bad)


def test_non_finite_values_may_be_allowed(wire):
    @fs.step
    def nan(site):
        return {"x": float("nan")}

    fed = fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(finite=False))
    assert np.isnan(fed.ask(nan).stack("x")).all()


def test_a_payload_that_is_too_large_is_refused_before_it_is_sent(wire):
    fed = fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(max_bytes=1000))

    @fs.step
    def take(site, x):
        return {}

    with pytest.raises(fs.errors.MessageError, match="more than the 1000 allowed"):
        fed.ask(take, x=np.zeros(1000))
    assert fed.record.calls == []


def test_a_hung_site_costs_one_deadline_and_comes_back(wire):
    release.clear()
    fed = fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(deadline=0.3))
    assert list(fed.ask(misbehave, how="late").failed) == ["s2"]
    assert fed.ask(count).failed == {"s2": "late: still busy with call 0"}
    release.set()
    for _ in range(1000):
        if not fed.ask(count).failed:
            break
    else:
        pytest.fail("the site never came back")


def test_ragged_keys_may_have_any_shape(wire):
    @fs.step(ragged=["tasks"])
    def tasks(site):
        k = 1 if site.name == "s3" else 2
        return {"tasks": np.zeros((k, 2)) if k == 1 else np.zeros(2), "n": k}

    assert fs.LocalFederation(make_sites(), wire=wire).ask(tasks).failed == {}


def test_where_two_shapes_are_equally_common_nobody_is_blamed(wire):
    @fs.step
    def halves(site):
        return {"x": np.zeros(100 + int(site.name[1]) % 2)}

    fed = fs.LocalFederation(make_sites(4), wire=wire)
    assert fed.ask(halves).failed == {}
    with pytest.raises(QuorumError, match=r"0 of 4 .*s0: misshapen: 'x' has the shape \(100\), others sent \(101\)"):
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


def test_many_hung_sites_cost_two_deadlines_not_one_each():
    release.clear()

    @fs.step
    def hang(site):
        release.wait(20)
        return {}

    fed = fs.LocalFederation(make_sites(12), policy=fs.Policy(deadline=0.3))
    with pytest.raises(QuorumError, match="0 of 12"):
        fed.ask(hang)
    release.set()
    assert fed.record.calls[0].seconds < 12 * 0.3


def test_values_that_are_not_finite_may_be_added_up_where_the_policy_allows(wire):
    @fs.step
    def nan(site):
        return {"x": float("nan")}

    assert np.isnan(fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(finite=False)).sum(nan)["x"])


def test_calls_on_the_federation_itself_have_the_whole_deadline_each():
    fed = fs.LocalFederation(make_sites(), policy=fs.Policy(run_deadline=1000.0))
    for _ in range(2):
        assert fed.sum(count)["n"] == 49
        fed._run.began -= 2000.0  # the time that has gone by
    with fed.begin("slow") as run:
        run.sum(count)
        run._run.began -= 2000.0
        with pytest.raises(DeadlineError, match=r"run_deadline=1000 s and stops before call 1"):
            run.sum(count)


def test_what_has_one_entry_per_row_is_told_so(wire):
    @fs.step
    def some_columns(site):
        return {"x": np.zeros((len(site), 2 if site.name == "s1" else 3))}

    failed = fs.LocalFederation(make_sites(), wire=wire).ask(some_columns).failed
    assert list(failed) == ["s1"]
    assert "'x' has the shape (rows, 2), most sites sent (rows, 3) (if that is as it should be" in failed["s1"]

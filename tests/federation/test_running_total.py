"""Replies are added up group by group: the same total, the same failures, and memory for one group."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import fedspan as fs
from fedspan.federation import Failure
from fedspan.federation.calls import running_total
from fedspan.federation.calls.call import Call, Delivery
from fedspan.federation.outcomes import FailureKind
from fedspan.federation.site.steps import find_step
from fedspan.sums.one_round import local_moments


def _merged(replies):
    return {"values": np.concatenate([reply["values"] for reply in replies]), "n": sum(reply["n"] for reply in replies)}


@fs.step("tests.running_sum", reveals="sums")
def numbers(site: fs.Site, odd: str, size: int = 3) -> dict[str, object]:
    """Leaves the site: numbers; the sites that `odd` names reply in another form, or fail."""
    if site.name in odd.split():
        if odd.endswith("fail"):
            raise ValueError("no")
        return {"values": np.ones(size + 1), "n": 1}
    return {"values": np.full(size, 0.1) * site.X[0, 0], "n": 1, "small": np.uint8(200)}


@fs.step("tests.running_merge", reveals="sums", ragged=["values"], merge=_merged)
def parts(site: fs.Site, odd: str) -> dict[str, object]:
    """Leaves the site: its first value."""
    return {"values": site.X[0, :1] + (site.name in odd.split()), "n": 1}


def refuse_large(replies):
    return {
        site: Failure(FailureKind.REJECTED, "large") for site, reply in replies.items() if reply["values"].max() > 1e3
    }


def federation(n=23):
    rng = np.random.default_rng(0)
    return fs.LocalFederation([fs.Site(f"{i:03d}", rng.normal(size=(1, 2)) + (i == 9) * 1e4) for i in range(n)])


def outcome(make):
    try:
        found = make(federation())
    except fs.errors.FedspanError as error:
        return str(error)
    return {key: np.asarray(value).tobytes() for key, value in found.items()}, found.sites, sorted(found.failed)


CALLS = {
    "sum": lambda fed: fed.sum(numbers, odd=""),
    "mean": lambda fed: fed.mean(numbers, odd=""),
    "odd form in the middle": lambda fed: fed.sum(numbers, odd="011 012"),
    "the first ones odd": lambda fed: fed.sum(numbers, odd="000 001 002 003 004"),
    "most odd": lambda fed: fed.sum(numbers, odd=" ".join(f"{i:03d}" for i in range(5, 23))),
    "one fails": lambda fed: fed.sum(numbers, odd="007 fail"),
    "all fail": lambda fed: fed.sum(numbers, odd=" ".join(fed.sites) + " fail"),
    "merge": lambda fed: fed.merge(parts, odd=""),
    "merge with a check": lambda fed: fed.merge(parts, refuse_large, odd=""),
}


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("name", CALLS)
def test_groups_change_nothing(name, together, monkeypatch):
    whole = outcome(CALLS[name])
    monkeypatch.setattr(running_total, "_AT_ONCE", 4)
    monkeypatch.setattr(running_total, "_TOGETHER", together)
    monkeypatch.setattr(running_total, "_GROUP_BYTES", 1)
    assert outcome(CALLS[name]) == whole


@pytest.mark.parametrize("odd", ["", "200 fail"])
def test_the_bits_of_a_total_do_not_depend_on_how_many_replies_come_at_once(odd):
    rng = np.random.default_rng(0)
    wide = fs.LocalFederation([fs.Site(f"{i:02d}", rng.normal(size=(3, 400))) for i in range(30)])  # 640 kB a reply
    many = federation(300)
    for fed in (wide, many):
        other_way = fed.with_faults(fs.FaultPlan())  # it sees all replies before they are added up
        found, expected = (one.merge(local_moments, widest=400)["scatter"] for one in (fed, other_way))
        assert found.tobytes() == expected.tobytes()
    assert many.sum(numbers, odd=odd)["values"].tobytes() == other_way.sum(numbers, odd=odd)["values"].tobytes()


def test_memory_is_that_of_a_group():
    fed = federation(200)
    tracemalloc.start()
    try:
        fed.sum(numbers, odd="", size=20_000)  # 160 kB a site
        assert tracemalloc.get_traced_memory()[1] < 10e6  # 32 MB in all
    finally:
        tracemalloc.stop()


def test_large_replies_take_the_memory_of_two():
    """The total, and the one that is being added to it."""
    size = 2**20
    running = running_total.RunningTotal(
        call=Call("run", 0, 0, find_step(numbers), {}, tuple("abcdef")),
        how="sum",
        policy=fs.Policy(),
        check=None,
    )
    tracemalloc.start()
    try:
        running.collect(lambda sites: {site: Delivery(0, {"x": np.full(size, 0.1)}) for site in sites}, together=1)
        assert tracemalloc.get_traced_memory()[1] < 2.5 * 8 * size
    finally:
        tracemalloc.stop()
    assert running.whole
    np.testing.assert_array_equal(running.of({})["x"], sum([np.full(size, 0.1)] * 6))


def test_a_repeated_call_is_made_again_after_its_reply_was_added_up():
    class InterruptedError(Exception):
        pass

    fed, seen = federation(3), []

    def stop(replies):
        seen.append(len(replies))
        if len(seen) == 1:
            raise InterruptedError
        return {}

    with pytest.raises(InterruptedError):
        fed.merge(parts, stop, odd="")
    assert fed.merge(parts, stop, odd="")["n"] == 3

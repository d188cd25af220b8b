"""The last replies that a consensus averages: which sites count, and which replies are rejected."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs
from fedspan.errors import QuorumError
from fedspan.federation import Replies
from fedspan.pca.parts.consensus import MISSES, LastReplies

NAMES = ("a", "b", "c", "d")
NUMBERS = {"rho": 1.0, "top": 2.0, "n": 3, "augmented_lagrangian": 0.5, "distance": 0.1}


def reply(value):
    return {"message": np.full(2, float(value)), "loss": float(value), **NUMBERS}


def new():
    return LastReplies(NAMES, (2,))


def test_a_site_counts_after_its_first_answer_and_while_it_misses_a_few():
    last = new()
    assert last.names == ()
    last.keep(Replies({"a": reply(1), "c": reply(3)}, {"b": "late"}))
    assert last.names == ("a", "c")
    assert not last.complete
    for _ in range(MISSES - 1):
        last.keep(Replies({"a": reply(5)}, {"b": "late", "c": "late"}))
    assert last.names == ("a", "c")
    np.testing.assert_array_equal(last.values("message", last.names), [[5, 5], [3, 3]])
    np.testing.assert_array_equal(last.values("loss", ("c", "a")), [3, 5])


def test_an_offline_site_does_not_count_and_returns_with_its_first_answer():
    last = new()
    last.keep(Replies({"a": reply(1), "b": reply(2), "d": reply(4)}, {"c": "late"}))
    for _ in range(MISSES):
        last.keep(Replies({}, {"b": "late"}))
    assert last.names == ("a", "d")
    assert last.offline == {"b"}
    assert not last.complete  # c has missed one request only
    for _ in range(MISSES - 1):
        last.keep(Replies({}, {"c": "late"}))
    assert last.complete
    last.keep(Replies({"b": reply(7)}, {}))
    assert last.names == ("a", "b", "d")
    np.testing.assert_array_equal(last.values("message", ("b",)), [[7, 7]])


def test_only_misses_in_a_row_count():
    last = new()
    for _ in range(3):
        last.keep(Replies({"a": reply(1)}, {}))
        for _ in range(MISSES - 1):
            last.keep(Replies({}, {"a": "late"}))
    assert last.names == ("a",)


@fs.step
def answer(site, silent: str):
    if site.name in silent:
        raise RuntimeError("down")
    return reply(len(site))


def test_a_silent_sample_costs_the_round_and_too_few_sites_in_all_the_run():
    fed = fs.LocalFederation([fs.Site(name, np.zeros((i + 1, 1))) for i, name in enumerate(NAMES)])
    last = new()
    assert last.request(fed, fed, answer, silent="d") == ("a", "b", "c")
    for _ in range(MISSES):
        assert last.request(fed, fed.subset("d"), answer, silent="d") == ()
    assert last.names == ("a", "b", "c")
    for _ in range(MISSES - 1):
        assert last.request(fed, fed.subset(["b", "c"]), answer, silent="bcd") == ()
    with pytest.raises(QuorumError):  # three of four are offline now
        last.request(fed, fed.subset(["b", "c"]), answer, silent="bcd")
    fresh = new()
    for _ in range(MISSES - 1):  # too few of all sites answer
        assert fresh.request(fed, fed, answer, silent="cd") == ()
    with pytest.raises(QuorumError):  # two of four are offline now
        fresh.request(fed, fed, answer, silent="cd")


BAD = {
    "shape": {"message": np.zeros(3)},
    "text": {"message": np.array(["x", "y"])},
    "whole numbers": {"message": np.zeros(2, dtype=int)},
    "none": {"message": None},
    "no number": {"loss": "low"},
    "truth": {"loss": True},
    "array": {"rho": np.ones(2)},
}


@pytest.mark.parametrize("what", [*BAD, "missing"])
def test_a_malformed_reply_fails_its_site_even_where_it_is_the_only_one(what):
    malformed = reply(1) | BAD.get(what, {})
    if what == "missing":
        del malformed["loss"]
    fed = fs.LocalFederation([fs.Site(name, np.zeros((1, 1))) for name in NAMES])
    attacked = fed.corrupt(lambda replies, bad, rng, call: dict.fromkeys(bad, malformed), sites=["b"])
    with attacked.begin("test") as run:
        last = new()
        assert last.request(run, run.subset("b"), answer, silent="") == ()
        assert last.request(run, run, answer, silent="") == ("a", "c", "d")
        assert "b" in run.record.calls[-1].failed
    assert last.names == ("a", "c", "d")

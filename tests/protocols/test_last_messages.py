"""Who counts in an average of last messages."""

from __future__ import annotations

import numpy as np
import pytest
from fedspan.pca.parts.last_messages import PATIENCE, LastMessages

import fedspan as fs
from fedspan.errors import QuorumError
from fedspan.federation import Replies

NAMES = ("a", "b", "c", "d")


def reply(value):
    return {"message": np.full(2, float(value)), "loss": float(value)}


def new():
    return LastMessages(NAMES, (2,), ["loss"])


def test_who_never_answered_does_not_count_and_who_missed_a_few_still_does():
    last = new()
    assert last.names == ()
    last.hear(Replies({"a": reply(1), "c": reply(3)}, {"b": "late"}))
    assert last.names == ("a", "c")
    assert not last.complete
    for _ in range(PATIENCE - 1):
        last.hear(Replies({"a": reply(5)}, {"b": "late", "c": "late"}))
    assert last.names == ("a", "c")
    np.testing.assert_array_equal(last.messages(last.names), [[5, 5], [3, 3]])
    np.testing.assert_array_equal(last.numbers(("c", "a")), [[3], [5]])


def test_who_is_gone_leaves_and_comes_back_with_the_first_answer():
    last = new()
    last.hear(Replies({"a": reply(1), "b": reply(2), "d": reply(4)}, {"c": "late"}))
    for _ in range(PATIENCE):
        last.hear(Replies({}, {"b": "late"}))
    assert last.names == ("a", "d")
    assert not last.complete  # c was asked once only
    for _ in range(PATIENCE - 1):
        last.hear(Replies({}, {"c": "late"}))
    assert last.complete
    last.hear(Replies({"b": reply(7)}, {}))
    assert last.names == ("a", "b", "d")
    np.testing.assert_array_equal(last.messages(("b",)), [[7, 7]])


def test_silence_counts_in_a_row_only():
    last = new()
    for _ in range(3):
        last.hear(Replies({"a": reply(1)}, {}))
        for _ in range(PATIENCE - 1):
            last.hear(Replies({}, {"a": "late"}))
    assert last.names == ("a",)


@fs.step
def say(site, silent):
    if site.name in silent:
        raise RuntimeError("down")
    return reply(len(site))


def test_a_sample_that_is_down_costs_the_turn_and_too_few_sites_in_all_the_run():
    fed = fs.LocalFederation([fs.Site(name, np.zeros((i + 1, 1))) for i, name in enumerate(NAMES)])
    last = new()
    assert last.ask(fed, fed, say, silent="d") == ("a", "b", "c")
    for _ in range(PATIENCE):
        assert last.ask(fed, fed.subset("d"), say, silent="d") == ()
    assert last.names == ("a", "b", "c")
    for _ in range(PATIENCE - 1):
        assert last.ask(fed, fed.subset(["b", "c"]), say, silent="bcd") == ()
    with pytest.raises(QuorumError):  # three of four are gone now
        last.ask(fed, fed.subset(["b", "c"]), say, silent="bcd")
    fresh = new()
    for _ in range(PATIENCE - 1):  # all are asked, and too few answer
        assert fresh.ask(fed, fed, say, silent="cd") == ()
    with pytest.raises(QuorumError):  # two of four are gone now
        fresh.ask(fed, fed, say, silent="cd")


BAD = {
    "shape": {"message": np.zeros(3), "loss": 1.0},
    "text": {"message": np.array(["x", "y"]), "loss": 1.0},
    "whole numbers": {"message": np.zeros(2, dtype=int), "loss": 1.0},
    "none": {"message": None, "loss": 1.0},
    "no number": {"message": np.zeros(2), "loss": "low"},
    "truth": {"message": np.zeros(2), "loss": True},
    "missing": {"message": np.zeros(2)},
}


@pytest.mark.parametrize("what", BAD)
def test_a_strange_reply_is_a_failed_site_even_where_it_is_the_only_one(what):
    fed = fs.LocalFederation([fs.Site(name, np.zeros((1, 1))) for name in NAMES])
    attacked = fed.corrupt(lambda replies, bad, rng, call: dict.fromkeys(bad, BAD[what]), sites=["b"])
    with attacked.begin("test") as run:
        last = new()
        assert last.ask(run, run.subset("b"), say, silent="") == ()
        assert last.ask(run, run, say, silent="") == ("a", "c", "d")
        assert "b" in run.record.calls[-1].failed
    assert last.names == ("a", "c", "d")

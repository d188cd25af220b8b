"""Where attacks get hold of replies. The attacks themselves have tests of their own."""

from __future__ import annotations

import numpy as np
import pytest

import fedspan as fs

from .conftest import count, make_sites, walk


def test_an_attack_sees_everything_and_writes_only_its_own_sites(fed):
    seen = {}

    def attack(replies, bad, rng, call):
        seen.update(replies=replies, bad=bad, draw=rng.random(), step=call.step, number=call.number)
        return {name: {"n": 1000} for name in replies}

    bad = fed.corrupt(attack, sites=["s6", "s1"])
    assert bad.sum(count)["n"] == 49 - 5 - 10 + 2000
    assert seen["bad"] == ("s1", "s6")
    assert {name: reply["n"] for name, reply in seen["replies"].items()} == {f"s{i}": 4 + i for i in range(7)}
    assert seen["step"].endswith(".count")
    assert seen["number"] == 0
    first = seen["draw"]
    bad.ask(count, ["s0", "s1"])
    assert seen["bad"] == ("s1",)
    assert seen["number"] == 1
    assert seen["draw"] != first
    assert fed.sum(count)["n"] == 49


def test_attacked_sums_and_asks_are_the_same_for_the_wire():
    def noise(replies, bad, rng, call):
        return {name: {**replies[name], "position": rng.normal(size=3)} for name in bad}

    results = []
    for wire in (False, True):
        fed = fs.LocalFederation(make_sites(), wire=wire).corrupt(noise, sites=["s2"])
        results.append(np.stack([fed.sum(walk, pull=0.1)["position"], fed.ask(walk, pull=0.2).stack("position")[2]]))
    np.testing.assert_array_equal(*results)


HOSTILE = {
    "nothing": None,
    "a list": [1, 2],
    "an object": {"n": object()},
    "object array": {"n": np.array([object()])},
    "nan": {"n": float("nan")},
    "wrong key": {"m": 1},
    "bad key": {3: 1},
    "text": {"n": "many"},
    "shape": {"n": np.zeros((4, 4))},
    "huge": {"n": np.zeros(10**6)},
    "huge int": {"n": 10**30},
    "bytes": b"FSPN",
    "number": 7,
    "empty": {},
    "nested": {"n": {"n": 1}},
    "masked": {"n": np.ma.masked_array([1.0], [True])},
    "complex": {"n": 1j},
}


@pytest.mark.parametrize("what", sorted(HOSTILE))
def test_whatever_an_attack_sends_costs_only_its_own_site(what, wire):
    fed = fs.LocalFederation(make_sites(), wire=wire, policy=fs.Policy(max_bytes=10**6))
    bad = fed.corrupt(lambda replies, bad, rng, call: dict.fromkeys(bad, HOSTILE[what]), sites=["s0"])
    replies = bad.ask(count)
    assert list(replies.failed) == ["s0"]
    assert replies.failed["s0"]
    assert bad.sum(count)["n"] == 45


def test_a_site_that_the_attack_leaves_out_stays_honest(fed):
    assert fed.corrupt(lambda *_: {}, sites=["s0"]).sum(count)["n"] == 49


def test_an_attack_can_answer_for_a_site_whose_own_step_failed(wire):
    @fs.step
    def broken_at_s0(site):
        if site.name == "s0":
            raise OSError
        site.state["calls"] = site.state.get("calls", 0) + 1
        return {"n": 1}

    fed = fs.LocalFederation(make_sites(), wire=wire)
    bad = fed.corrupt(lambda replies, bad, rng, call: {name: {"n": 100} for name in bad}, sites=["s0"])
    assert [bad.sum(broken_at_s0)["n"] for _ in range(3)] == [106, 106, 106]


def test_unknown_sites_cannot_be_corrupted(fed):
    with pytest.raises(fs.errors.InputError, match="no site named 'x'"):
        fed.corrupt(lambda *_: {}, sites=["x"])

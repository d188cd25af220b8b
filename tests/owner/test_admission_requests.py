"""Requests: whatever a head claims, the rules judge, and the log names, what runs; and the log stays readable."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import fedspan as fs
from fedspan.engines.remote.coordinator import remote_federation
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.mixed_regression.parts.moment_products import local_pair_product
from fedspan.owner.audit_log import read_lines
from fedspan.sums.moments import local_sums
from tests.engines.remote.people import authority, user

from .owner_desk import NUMBERS, OFFER, SUMS, Desk, Wires, numbers

PAIR = "mixed_regression.pair_product"
PAIRED = {"models": np.zeros((1, 3)), "Q": np.eye(3)[:, None, :], "transposed": False}


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path / "a")
    yield desk
    desk.worker.close()


@pytest.mark.parametrize("how", ["secure", "secure offer", "Sum", ""])
def test_a_request_can_not_switch_off_sums_only(tmp_path, how):
    desk = Desk(tmp_path / "a", "sums_only = true")
    assert "allows secure sums only" in desk.ask()
    assert desk.ask(run="r 2", how=how) == "the request's 'how' must be one of 'ask', 'sum', 'mean', 'merge'"
    assert [line["outcome"] for line in desk.lines()] == ["refused", "refused"]


@pytest.fixture
def three(tmp_path):
    rule = "sums_only = true\nrounds_per_day = 2\nlargest_reply = 100_000"
    frames = {name: numbers(columns="xyzt", seed=seed) for seed, name in enumerate("abc")}
    desks = [Desk(tmp_path / name, rule, frame, 'target = "t"', name) for name, frame in frames.items()]
    yield desks
    for desk in desks:
        desk.worker.close()


def federation(desks):
    sites = [desk.name for desk in desks]
    return RemoteFederation(Wires(*desks), user(), authority(sites), 1, fs.Policy(secure_sum=True))


def test_the_log_names_the_summed_step_in_every_stage_of_a_secure_sum(three):
    with federation(three) as fed:
        total = fed.sum(local_sums)
    np.testing.assert_allclose(total["sum"], sum(desk.owned.site.X.sum(axis=0) for desk in three), atol=1e-6)
    for desk in three:
        calls = [line for line in desk.lines() if line["step"]]
        assert {line["step"] for line in calls} == {SUMS}
        assert [line["stage"] for line in calls] == ["offer", "share", "masked", "confirm", "unmask"]
        assert [line["how"] for line in desk.lines() if not line["step"]] == ["hello", "keys", "end"]
        assert desk.owned.admission.log.rounds("alice").total == 1


@pytest.mark.parametrize("where", ["apart too", "apart alone"])
def test_a_forbidden_step_can_not_be_hidden_in_the_part_for_one_site(three, monkeypatch, where):
    honest = remote_federation.call_head

    def hostile(call, to, *rest):
        if call.step.id == OFFER:
            payload = dict(call.payload)
            what = payload.pop("what")
            payload |= {"what": SUMS} if where == "apart too" else {}
            call = replace(call, payload=payload, apart={site: {"what": what} for site in to})
        return honest(call, to, *rest)

    monkeypatch.setattr(remote_federation, "call_head", hostile)
    why = "has 'what' twice" if where == "apart too" else "does not allow step '" + PAIR
    with federation(three) as fed, pytest.raises(fs.errors.QuorumError, match=why):
        fed.sum(local_pair_product, **PAIRED)
    for desk in three:
        assert not [line for line in desk.lines() if line["step"] and line["outcome"] == "answered"]


def test_a_second_offer_does_not_change_the_step_of_a_sum_in_the_log(desk):
    offered = {"session": "r/0/x", **NUMBERS}
    assert "key" in desk.ask(OFFER, payload={"what": SUMS, **offered})
    other = "sums.mean"
    assert "with another step" in desk.ask(OFFER, part=1, payload={"what": other, **offered})
    assert "takes (site" in desk.ask("secure_sum.confirm", part=3, payload={"session": "r/0/x"})
    alive = {"session": "r/0/x", "alive": np.ones(3, dtype=bool)}
    assert "shared no secrets" in desk.ask("secure_sum.confirm", part=3, payload=alive)
    assert [line["step"] for line in desk.lines()][1:] == [other, "secure_sum.confirm", SUMS]


def test_the_payload_of_a_summed_step_is_marked(desk):
    payload = {"what": SUMS, "session": "r/0/x", **NUMBERS, "U": np.eye(2)}
    assert "payload begin with 'with ', and some here do not" in desk.ask(OFFER, payload=payload)


NONSENSE = [
    *[("number", value) for value in (None, "abc", float("nan"), 2.5, -7, True, np.zeros(3))],
    *[("part", value) for value in ("x", -3, 1, 2.0)],
    *[("run", value) for value in ("", "x" * 501, 3)],
    *[("step", value) for value in ("", None, np.zeros(3), "x\x1b[2J\n2026-11-15 alice answered", "x" * 501)],
    *[("how", value) for value in (np.zeros(3), "secure", None)],
    *[
        ("transforms", json.dumps(value))
        for value in ([[5, None]], [["x", [3]]], {"x": 1}, [["x"]], [["x", None]] * 101)
    ],
    ("transforms", "[" * 100_000),
    *[("sites", json.dumps(value)) for value in ({"a": "0"}, {"a": -2}, ["a"], {"a": 1.5}, {"b": 0})],
    *[("seed", value) for value in ("x", "1.5", "", 7)],
    *[("serial", value) for value in ("x", -1, 1.5)],
    *[("threads", value) for value in (0, 1025, 1.0, "2")],
    *[("max_bytes", value) for value in (-1, 1e9, None)],
    *[("deadline", value) for value in (float("nan"), float("inf"), "1", None)],
    *[("kind", value) for value in ("dance", np.zeros(2), None)],
    *[("version", value) for value in (None, 3, "x" * 501)],
]


@pytest.mark.parametrize("who", ["alice", "mallory"])
def test_an_invalid_head_is_refused_and_logged(tmp_path, who):
    desk = Desk(tmp_path / "a", 'users = ["alice"]')
    sender = user(who, "analyst" if who == "alice" else "viewer")
    for number, (name, value) in enumerate(NONSENSE):
        before = len(desk.lines())
        why = desk.ask(run=f"r {number}", who=sender, over={name: value})
        assert desk.found.head["kind"] == "refused", (name, value, why)
        line = desk.lines()[-1]
        assert len(desk.lines()) == before + 1
        assert (line["who"], line["outcome"], line["ran"]) == (who, "refused", False), (name, value)
    desk.open()  # and the log is read from its beginning
    assert len(list(read_lines(desk.folder / "audit.jsonl"))) == len(NONSENSE)
    assert desk.ask(run="later")["n"] == 40


def about(desk):
    return json.loads(bytes(desk.found.parts["about"]))


@pytest.mark.parametrize(
    ("rules", "who", "why"),
    [
        ('users = ["bob"]', user(), "its owner does not list 'alice'"),
        ("", user("mia", "viewer"), "'mia' has the role 'viewer', which may not run steps"),
        ("least_rows = 100", user(), "this site has fewer rows than its owner requires"),
    ],
)
def test_users_without_access_learn_that_a_site_exists_and_nothing_else(tmp_path, rules, who, why):
    desk = Desk(tmp_path / "a", rules)
    assert desk.ask(kind="hello", who=who) == "about"
    found = about(desk)
    assert set(desk.found.parts) == {"about"}
    assert set(found) == {"version", "refused"}
    assert why in found["refused"]
    assert ("you are not among this site's users" in found["refused"]) == ("least_rows" not in rules)
    for kind in ("keys", "end", "call"):
        assert why in desk.ask(kind=kind, who=who, run="r", least=2)
    assert [(line["how"], line["outcome"]) for line in desk.lines()] == [
        (kind, "refused") for kind in ("hello", "keys", "end", "ask")
    ]
    assert not list((desk.folder / "store").glob("*.run"))


def test_users_learn_what_the_site_is_and_that_is_logged(desk):
    assert desk.ask(kind="hello") == "about"
    assert about(desk)["fingerprint"].startswith("40x2 float64")
    assert desk.ask(kind="end") == "done"
    assert [(line["how"], line["outcome"], line["ran"]) for line in desk.lines()] == [
        ("hello", "answered", False),
        ("end", "answered", False),
    ]
    assert desk.lines()[0]["bytes"] > 100

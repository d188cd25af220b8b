"""Whatever a request says of itself: the rules judge, and the log names, what is run; and the log stays readable."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import fedspan as fs
from fedspan.cli import main
from fedspan.engines.remote.coordinator import remote_engine as engine
from fedspan.engines.remote.coordinator.remote_federation import RemoteFederation
from fedspan.engines.remote.messages.envelope import texts
from fedspan.errors import PolicyError
from fedspan.mixed_regression.parts.moment_products import local_pair_product
from fedspan.owner import read_owned_site
from fedspan.owner.audit_log import AuditLog, AuditLogError, read_lines
from fedspan.sums.moments import local_sums
from tests.engines.remote.people import authority, user

from .desk import NUMBERS, OFFER, SUMS, Desk, Wires, numbers

PAIR = "mixed_regression.pair_product"
PAIRED = {"models": np.zeros((1, 3)), "Q": np.eye(3)[:, None, :], "transposed": False}


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path / "a")
    yield desk
    desk.worker.close()


@pytest.mark.parametrize("how", ["secure", "secure offer", "Sum", ""])
def test_sums_only_is_not_switched_off_by_a_word_of_the_asker(tmp_path, how):
    desk = Desk(tmp_path / "a", "sums_only = true")
    assert "allows secure sums only" in desk.ask()
    assert desk.ask(run="r 2", how=how) == "the request's 'how' must be one of ask, sum, mean"
    assert [line["outcome"] for line in desk.lines()] == ["refused", "refused"]


@pytest.fixture
def three(tmp_path):
    rule = "sums_only = true\nrounds_per_day = 2\nlargest_reply = 100_000"
    frames = {name: numbers(columns="xyzt", seed=seed) for seed, name in enumerate("abc")}
    desks = [Desk(tmp_path / name, rule, frame, 'label = "t"', name) for name, frame in frames.items()]
    yield desks
    for desk in desks:
        desk.worker.close()


def federation(desks):
    sites = [desk.name for desk in desks]
    return RemoteFederation(Wires(*desks), user(), authority(sites), 1, fs.Policy(secure_sum=True))


def test_of_a_secure_sum_the_log_names_the_summed_step_in_every_round(three):
    with federation(three) as fed:
        total = fed.sum(local_sums)
    np.testing.assert_allclose(total["sum"], sum(desk.owned.site.X.sum(axis=0) for desk in three), atol=1e-6)
    for desk in three:
        calls = [line for line in desk.lines() if line["step"]]
        assert {line["step"] for line in calls} == {SUMS}
        assert [line["how"] for line in calls] == [
            f"secure {stage}" for stage in ("offer", "share", "masked", "confirm", "unmask")
        ]
        assert [line["how"] for line in desk.lines() if not line["step"]] == ["hello", "introduce", "end"]
        assert desk.owned.guard.log.rounds("alice").total == 1


@pytest.mark.parametrize("where", ["apart too", "apart alone"])
def test_a_forbidden_step_is_not_hidden_in_what_one_site_is_told(three, monkeypatch, where):
    honest = engine.call_head

    def hostile(call, to, *rest):
        if call.step.name == OFFER:
            told = dict(call.payload)
            what = told.pop("what")
            told |= {"what": SUMS} if where == "apart too" else {}
            call = replace(call, payload=told, apart={site: {"what": what} for site in to})
        return honest(call, to, *rest)

    monkeypatch.setattr(engine, "call_head", hostile)
    why = "says 'what' twice" if where == "apart too" else "does not allow step '" + PAIR
    with federation(three) as fed, pytest.raises(fs.errors.QuorumError, match=why):
        fed.sum(local_pair_product, **PAIRED)
    for desk in three:
        assert not [line for line in desk.lines() if line["step"] and line["outcome"] == "answered"]


def test_a_second_word_on_a_sum_does_not_change_what_the_log_says_of_it(desk):
    told = {"session": "r/0/x", **NUMBERS}
    assert "key" in desk.ask(OFFER, payload={"what": SUMS, **told})
    other = "sums.mean"
    assert "with another step" in desk.ask(OFFER, part=1, payload={"what": other, **told})
    assert "takes (site" in desk.ask("secure_sum.confirm", part=3, payload={"session": "r/0/x"})
    alive = {"session": "r/0/x", "alive": np.ones(3, dtype=bool)}
    assert "shared no secrets" in desk.ask("secure_sum.confirm", part=3, payload=alive)
    assert [line["step"] for line in desk.lines()][1:] == [other, "secure_sum.confirm", SUMS]


def test_what_a_summed_step_is_told_is_named_as_such(desk):
    payload = {"what": SUMS, "session": "r/0/x", **NUMBERS, "U": np.eye(2)}
    assert "names that begin with 'with '" in desk.ask(OFFER, payload=payload)


NONSENSE = [
    *[("number", value) for value in (None, "abc", float("nan"), 2.5, -7, True, np.zeros(3))],
    *[("part", value) for value in ("x", -3, 1, 2.0)],
    *[("run", value) for value in ("", "x" * 501, 3)],
    *[("step", value) for value in ("", None, np.zeros(3), "x\x1b[2J\n2026-11-15 alice answered", "x" * 501)],
    *[("how", value) for value in (np.zeros(3), "secure", None)],
    *[("transforms", texts(value)) for value in ([[5, None]], [["x", [3]]], {"x": 1}, [["x"]], [["x", None]] * 101)],
    ("transforms", "[" * 100_000),
    *[("sites", texts(value)) for value in ({"a": "0"}, {"a": -2}, ["a"], {"a": 1.5}, {"b": 0})],
    *[("seed", value) for value in ("x", "1.5", "", 7)],
    *[("serial", value) for value in ("x", -1, 1.5)],
    *[("threads", value) for value in (0, 1025, 1.0, "2")],
    *[("max_bytes", value) for value in (-1, 1e9, None)],
    *[("deadline", value) for value in (float("nan"), float("inf"), "1", None)],
    *[("kind", value) for value in ("dance", np.zeros(2), None)],
    *[("version", value) for value in (None, 3, "x" * 501)],
]


@pytest.mark.parametrize("who", ["alice", "mallory"])
def test_whatever_a_head_says_is_refused_at_the_door_and_written_down(tmp_path, who):
    desk = Desk(tmp_path / "a", 'users = ["alice"]')
    asker = user(who, "lead" if who == "alice" else "member")
    for number, (name, value) in enumerate(NONSENSE):
        before = len(desk.lines())
        why = desk.ask(run=f"r {number}", who=asker, over={name: value})
        assert desk.found.head["kind"] == "refused", (name, value, why)
        line = desk.lines()[-1]
        assert len(desk.lines()) == before + 1
        assert (line["who"], line["outcome"], line["ran"]) == (who, "refused", False), (name, value)
    desk.open()  # and the log is read from its beginning
    assert len(list(read_lines(desk.folder / "audit.jsonl"))) == len(NONSENSE)
    assert desk.ask(run="later")["n"] == 40


def test_no_line_is_written_that_could_not_be_read_again(tmp_path):
    log = AuditLog(tmp_path / "log")
    line = dict.fromkeys(("who", "role", "run", "step", "why"), "") | {
        "transforms": [],
        "budget_left": None,
        "how": "ask",
    }
    good = line | {"call": 0, "part": 0, "bytes": 1, "outcome": "answered", "ran": True}
    log.append(good)
    for key, value in (("call", "abc"), ("call", True), ("part", None), ("who", 3), ("ran", 1), ("transforms", "x")):
        with pytest.raises(AuditLogError, match=f"cannot take a line: its '{key}' is not what it must be"):
            log.append(good | {key: value})
    with pytest.raises(AuditLogError, match="cannot take a line"):
        log.append(good | {"when": "soon"})
    log.append(good)
    assert AuditLog(tmp_path / "log").lines == 2


def test_the_log_is_printed_without_control_characters(desk, capsys):
    desk.ask("x\x1b[2J\n2026-11-15T00:00:00  alice  answered fine\u2028\x9b")
    assert main(["site", "log", str(desk.folder / "audit.jsonl"), "--refused"]) == 0
    said = capsys.readouterr().out
    assert r"refused x\x1b[2J\n2026-11-15T00:00:00  alice  answered fine\u2028\x9b: " in said
    assert len(said.splitlines()) == 4
    assert all(line.isprintable() for line in said.splitlines())


@pytest.mark.parametrize(
    "text", ["hunter22", "hunter22\nsecond", '{"a": 1}', "{", '{"when": 3}\n', "\n", '[1]\n{"when": "']
)
def test_a_file_that_is_no_audit_log_is_left_as_it_is(tmp_path, text):
    secret = tmp_path / "a" / "secret"
    Desk(tmp_path / "a").worker.close()
    secret.write_text(text)
    secret.chmod(0o600)
    with (tmp_path / "a" / "site.toml").open("a") as file:
        file.write('[log]\nfile = "secret"\n')
    if text == "{":  # as far as anybody can tell, the beginning of the first line
        read_owned_site(tmp_path / "a" / "site.toml")
        return
    with pytest.raises(PolicyError, match=r"was altered at line 1 \("):
        read_owned_site(tmp_path / "a" / "site.toml")
    assert secret.read_text() == text


def test_a_cut_line_after_an_altered_one_is_left_as_it_is(desk):
    desk.ask()
    desk.ask(number=1, after=0)
    log = desk.folder / "audit.jsonl"
    spoilt = log.read_text().replace("alice", "alicf", 1) + '{"when": "20'
    log.write_text(spoilt)
    with pytest.raises(PolicyError, match="altered at line 2"):
        read_owned_site(desk.folder / "site.toml")
    assert log.read_text() == spoilt


def about(desk):
    return json.loads(bytes(desk.found.parts["about"]))


@pytest.mark.parametrize(
    ("rules", "who", "why"),
    [
        ('users = ["bob"]', user(), "does not allow user 'alice' to ask anything"),
        ("", user("mia", "member"), "'mia' has the role 'member', which may not ask anything"),
        ("least_rows = 100", user(), "this site has fewer rows than its owner asks for"),
    ],
)
def test_strangers_learn_that_a_site_is_there_and_nothing_else(tmp_path, rules, who, why):
    desk = Desk(tmp_path / "a", rules)
    assert desk.ask(kind="hello", who=who) == "about"
    told = about(desk)
    assert set(desk.found.parts) == {"about"}
    assert set(told) == {"version", "stranger"}
    assert why in told["stranger"]
    assert ("you are not among this site's users" in told["stranger"]) == ("least_rows" not in rules)
    for kind in ("introduce", "end", "call"):
        assert why.replace("ask anything", "").strip() in desk.ask(kind=kind, who=who, run="r", least=2)
    assert [(line["how"], line["outcome"]) for line in desk.lines()] == [
        (kind, "refused") for kind in ("hello", "introduce", "end", "ask")
    ]
    assert not list((desk.folder / "store").glob("*.run"))


def test_users_are_told_what_the_site_is_and_that_is_written_down(desk):
    assert desk.ask(kind="hello") == "about"
    assert about(desk)["fingerprint"].startswith("40x2 float64")
    assert desk.ask(kind="end") == "done"
    assert [(line["how"], line["outcome"], line["ran"]) for line in desk.lines()] == [
        ("hello", "answered", False),
        ("end", "answered", False),
    ]
    assert desk.lines()[0]["bytes"] > 100


def test_looking_at_a_log_refuses_what_a_site_would_refuse(tmp_path):
    secret = tmp_path / "password"
    secret.write_bytes(b"hunter22")  # no line is finished
    with pytest.raises(AuditLogError, match="it is no line of an audit log"):
        list(read_lines(secret))

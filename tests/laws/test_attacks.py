"""Every attack of the package, found by itself, against every law."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedspan import attacks
from fedspan.federation import AttackedCall
from fedspan.wire import canonical

from . import protocol_laws
from .attack_examples import ALL, BAD, CALL, EXAMPLES, FLOATING, Example, attacks_of, differing, honest_replies, same
from .discovery import check_exported
from .protocol_examples import EXAMPLES as PROTOCOLS

every_attack = pytest.mark.parametrize("law", ALL, ids=repr)
every_selecting_attack = pytest.mark.parametrize("law", [law for law in ALL if law.selects], ids=repr)
seeds = st.integers(0, 2**32)


def written(attack: Any, replies: Any, bad: tuple[str, ...] = BAD, seed: int = 0, call: AttackedCall = CALL) -> Any:
    return attack(replies, bad, np.random.default_rng(seed), call)


def test_every_attack_is_exported_and_every_example_is_of_its_attack() -> None:
    found = attacks_of(attacks)
    assert len(found) >= 12
    check_exported(found, attacks)
    for name, examples in EXAMPLES.items():
        assert examples
        for law in examples:
            assert found[name] in (law.make(), type(law.make())), f"{law} is no {name}"


@every_attack
@settings(max_examples=20, deadline=None)
@given(seeds)
def test_only_floating_values_of_bad_sites_change(law: Example, seed: int) -> None:
    replies = honest_replies(seed)
    lies = written(law.make(), replies)
    assert set(lies) <= set(BAD), "honest sites lie"
    changed: set[str] = set()
    for site, reply in lies.items():
        assert list(reply) == list(replies[site])
        changed |= set(differing(reply, replies[site]))
    assert changed, "no reply was changed"
    assert changed <= set(FLOATING)


@every_attack
def test_honest_replies_are_never_modified(law: Example) -> None:
    replies = honest_replies()
    for reply in replies.values():
        for value in reply.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = True  # so that nothing but the attack itself keeps it from writing
    before = copy.deepcopy(replies)
    lies = written(law.make(), replies)
    for site, reply in replies.items():
        assert list(reply) == list(before[site])
        assert not differing(reply, before[site]), "what was honest is another one afterwards"
    for site, reply in lies.items():  # nor can a lie be used to do it
        assert reply is not replies[site]
        for key in FLOATING:
            if isinstance(reply[key], np.ndarray):
                shared = [who for who, other in replies.items() if np.shares_memory(reply[key], other[key])]
                assert not shared, f"{key} is in the memory of what was honest"


@every_attack
@settings(max_examples=10, deadline=None)
@given(seeds)
def test_the_same_seed_gives_the_same_lie(law: Example, seed: int) -> None:
    replies = honest_replies(seed)
    backwards = {site: replies[site] for site in reversed(replies)}
    first, second = written(law.make(), replies, seed=seed), written(law.make(), backwards, seed=seed)
    assert first.keys() == second.keys()
    for site in first:
        assert not differing(first[site], second[site])


@every_attack
def test_lies_have_the_type_of_the_truth_and_can_be_sent(law: Example) -> None:
    replies = honest_replies()
    for site, reply in written(law.make(), replies).items():
        canonical(reply, "reply")
        for key in FLOATING:
            honest, lie = replies[site][key], reply[key]
            assert np.asarray(lie).dtype == np.asarray(honest).dtype
            if law.keeps_shape:
                assert type(lie) is type(honest)
                assert np.shape(lie) == np.shape(honest)
            else:
                assert np.shape(lie) != np.shape(honest)
            assert np.isfinite(lie).all() == law.finite


@every_selecting_attack
def test_keys_select_what_is_rewritten(law: Example) -> None:
    replies = honest_replies()
    for reply in written(law.make(keys=["gradient", "loss"]), replies).values():
        assert set(differing(reply, replies[reply["word"][-1]])) <= {"gradient", "loss"}
    free, bound = written(law.make(keys="gradient"), replies), written(law.make(keys=("gradient",)), replies)
    assert any(differing(free[site], replies[site]) for site in free), "no reply was changed"
    for site in free:
        assert not differing(free[site], bound[site]), "one name is not a list of one"


@every_selecting_attack
def test_a_count_that_is_named_becomes_a_float(law: Example) -> None:
    replies = honest_replies()
    lies = written(law.make(keys=["n", "counts", "word", "mask", "converged", "labels", "nothing"]), replies)
    assert lies
    for site, reply in lies.items():
        assert np.asarray(reply["n"]).dtype == np.asarray(reply["counts"]).dtype == np.float64
        assert isinstance(reply["n"], float) or not law.keeps_shape
        for key in ("word", "mask", "converged", "labels", "nothing", *FLOATING):  # what is no number stays honest
            assert same(reply[key], replies[site][key])


@every_selecting_attack
@pytest.mark.parametrize(
    ("steps", "hit"),
    [
        (["package.module.local_basis"], True),
        (["local_basis"], True),
        ("module.local_basis", True),
        (["gradient", "local_basis"], True),
        (["basis"], False),  # not after a dot
        (["package.module"], False),
        (["other.package.module.local_basis"], False),
    ],
)
def test_steps_select_which_calls_are_attacked(law: Example, steps: Any, hit: bool) -> None:
    assert bool(written(law.make(steps=steps), honest_replies())) is hit


@every_attack
def test_a_bad_site_without_a_reply_of_its_own_borrows_one(law: Example) -> None:
    replies = honest_replies()
    del replies["b"], replies["d"]
    lies = {}
    for seed in range(4):  # a redrawn attack takes turns
        lies |= written(law.make(), replies, seed=seed)
    assert set(lies) == set(BAD)
    for reply in lies.values():
        assert reply["word"] == "from a"
        assert list(reply) == list(replies["a"])


@every_attack
def test_where_nobody_answered_or_nothing_is_selected_bad_sites_stay_as_they_are(law: Example) -> None:
    assert written(law.make(), {}) == {}
    if law.selects:
        assert written(law.make(keys=["no such key"]), honest_replies()) == {}
    assert written(law.make(), {site: {"n": 3, "word": "x"} for site in "abcde"}) == {}


@every_attack
def test_it_works_when_all_sites_are_bad_or_there_is_but_one(law: Example) -> None:
    replies = honest_replies()
    assert set(written(law.make(), replies, tuple("abcde"))) <= set("abcde")
    alone = written(law.make(), {"b": replies["b"]}, ("b",))
    assert set(alone) == {"b"}
    assert [key for key in FLOATING if np.isfinite(alone["b"][key]).all() != law.finite] == []


@every_attack
def test_values_of_unequal_shapes_and_kinds_and_missing_keys_are_taken(law: Example) -> None:
    replies: dict[str, dict[str, Any]] = {
        "a": {"x": np.ones((3, 2)), "y": 1.0},
        "b": {"x": np.ones((5, 2)), "y": np.ones(2), "z": 4.0},
        "c": {"x": "no", "y": None},
        "d": {"x": np.ones((3, 2)) + 1j, "y": 2.0},
        "e": {},
    }
    for bad in (("b", "d"), ("a", "c", "d"), tuple("abcde")):
        lies = written(law.make(), replies, bad)
        assert set(lies) <= set(bad) - {"c", "e"}
        assert {site: set(lie) for site, lie in lies.items()} == {site: set(replies[site]) for site in lies}


@every_attack
def test_empty_arrays_and_honest_sites_that_diverged_are_taken(law: Example) -> None:
    replies = {site: {"x": np.ones(3) * i, "none": np.zeros((0, 2))} for i, site in enumerate("abcde")}
    replies["c"]["x"] = np.array([np.nan, 1.0, np.inf])
    for site, reply in written(law.make(), replies).items():
        assert np.isfinite(reply["x"]).all() == law.finite
        if law.keeps_shape:
            assert reply["none"].shape == replies[site]["none"].shape
    everyone = {site: {"x": np.full((4, 2), np.nan)} for site in "abcde"}
    assert written(law.make(), everyone)


@every_selecting_attack
def test_repr_is_complete_and_equality_is_by_value(law: Example) -> None:
    attack = law.make()
    again = eval(repr(attack), {name: getattr(attacks, name) for name in attacks.__all__})
    assert again == attack
    assert hash(again) == hash(attack)
    assert repr(law.make(steps=["s"], keys=["k"])) != repr(attack)
    assert law.make(steps=["s"], keys="k") == law.make(steps=("s",), keys=["k"])
    for field in fields(attack):
        assert f"{field.name}={getattr(attack, field.name)!r}" in repr(attack)


@every_attack
@pytest.mark.parametrize("protocol", ["moments", "fedpg", "feddl", "byz_altgdmin"])
def test_protocols_of_every_kind_can_be_attacked(law: Example, protocol: str) -> None:
    """By sums, with state at the sites, with landmarks, with targets; all protocols meet some attacks in their laws."""
    protocol_laws.check_survives_attack(PROTOCOLS[protocol], law.make())


@pytest.mark.slow
def test_importing_the_package_is_light() -> None:
    code = "import sys, fedspan; before = set(sys.modules); import fedspan.attacks; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {".".join(name.split(".")[:2]) for name in done.stdout.split() if name.startswith("fedspan")}
    assert packages <= {"fedspan.attacks", "fedspan.checks", "fedspan.errors"}
    assert not re.search(r"\b(scipy|sklearn|pandas|rich)\b", done.stdout)

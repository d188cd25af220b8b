"""Attacks at work in an embedded federation, with and without the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.laws.attack_examples import ALL, Example, same

from fedspan.attacks import Mimic, NonFinite, Ones, Redrawn, SignFlip, WrongShape
from fedspan.engines.local.embedded import LocalFederation
from fedspan.federation import Federation, Site, step

every_attack = pytest.mark.parametrize("law", ALL, ids=repr)


@step
def describe(site: Site) -> dict[str, Any]:
    X = site.X
    basis = np.linalg.svd(X.T, full_matrices=False)[0][:, :2]
    return {"basis": basis, "mean": X.mean(axis=0), "trace": float(np.trace(X.T @ X)), "n": len(X), "half": X[0, 0] / 2}


@step
def fragile(site: Site) -> dict[str, Any]:
    if site.name == "d":
        raise RuntimeError("out of order")
    return {"mean": site.X.mean(axis=0), "name": site.name}


def federation(wire: bool = False, **kwargs: Any) -> LocalFederation:
    rng = np.random.default_rng(4)
    sites = [Site(name, rng.normal(size=(6 + i, 5))) for i, name in enumerate("abcdefg")]
    return LocalFederation(sites, seed=11, wire=wire, **kwargs)


def asked(fed: Federation, times: int = 2) -> list[tuple[dict[str, Any], dict[str, str]]]:
    replies = [fed.ask(describe) for _ in range(times)]
    return [(reply.ok, reply.failed) for reply in replies]


@every_attack
def test_the_wire_and_threads_change_nothing(law: Example) -> None:
    def run(**kwargs: Any) -> list[tuple[dict[str, Any], dict[str, str]]]:
        return asked(federation(**kwargs).corrupt(law.make(), sites=["b", "e"]))

    plain = run()
    for other in (run(wire=True), run(wire=True, n_jobs=2)):
        for (ok, failed), (ok_other, failed_other) in zip(plain, other, strict=True):
            assert failed == failed_other
            assert list(ok) == list(ok_other)
            for site in ok:
                assert list(ok[site]) == list(ok_other[site])
                assert all(same(ok[site][key], ok_other[site][key]) for key in ok[site])


@every_attack
def test_honest_sites_are_heard_as_without_the_attack(law: Example) -> None:
    honest = asked(federation())
    attacked = asked(federation().corrupt(law.make(), sites=["b", "e"]))
    changed = False
    for (ok, _), (ok_attacked, failed) in zip(honest, attacked, strict=True):
        assert set(failed) <= {"b", "e"}
        for site in ok_attacked:
            alike = all(same(ok[site][key], ok_attacked[site][key]) for key in ok[site])
            assert alike or site in ("b", "e")
            changed |= not alike
        changed |= bool(failed)
    assert changed


@pytest.mark.parametrize("attack", [NonFinite(), NonFinite("inf")], ids=repr)
def test_a_policy_catches_what_is_not_finite(attack: Any) -> None:
    replies = federation().corrupt(attack, sites=["b", "e"]).ask(describe)
    assert list(replies.failed) == ["b", "e"]
    assert all("non-finite" in reason for reason in replies.failed.values())


@pytest.mark.parametrize("attack", [WrongShape(), WrongShape("transpose")], ids=repr)
def test_a_policy_catches_a_wrong_shape(attack: Any) -> None:
    replies = federation().corrupt(attack, sites=["b", "e"]).ask(describe)
    assert list(replies.failed) == ["b", "e"]
    assert all("misshapen" in reason for reason in replies.failed.values())


def test_steps_and_keys_reach_the_right_calls() -> None:
    fed = federation().corrupt(Ones(steps=["describe"], keys=["mean"]), sites=["b"])
    reply = fed.ask(describe)["b"]
    assert reply["mean"].tolist() == [100.0] * 5
    assert reply["trace"] != 100.0
    assert fed.ask(fragile)["b"]["mean"].tolist() != [100.0] * 5


def test_a_bad_site_whose_step_failed_lies_all_the_same() -> None:
    replies = federation().corrupt(Ones(), sites=["d"]).ask(fragile)
    assert replies["d"] == {"mean": pytest.approx(np.full(5, 100.0)), "name": "a"}


def test_a_redrawn_set_differs_from_call_to_call_and_is_repeatable() -> None:
    def bad_sites() -> list[list[str]]:
        fed = federation().corrupt(Redrawn(Ones(keys=["trace"]), 2), sites=list("abcdefg"))
        return [[site for site, reply in ok.items() if reply["trace"] == 100.0] for ok, _ in asked(fed, 6)]

    turns = bad_sites()
    assert all(len(turn) == 2 for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1
    assert turns == bad_sites()


def test_attacks_can_be_combined() -> None:
    fed = federation().corrupt(SignFlip(keys=["trace"]), sites=["b"]).corrupt(Mimic("c", keys=["mean"]), sites=["e"])
    replies, honest = fed.ask(describe), federation().ask(describe)
    assert replies["b"]["trace"] == -honest["b"]["trace"]
    np.testing.assert_array_equal(replies["e"]["mean"], honest["c"]["mean"])
    assert replies["e"]["trace"] == honest["e"]["trace"]

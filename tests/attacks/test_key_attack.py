"""Attacks in an embedded federation, with and without the wire, and the parameters that they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedspan.attacks import (
    ALittleIsEnough,
    InnerProduct,
    Mimic,
    NonFinite,
    Ones,
    Orthogonal,
    Redrawn,
    ScaledReverse,
    SignFlip,
    WrongShape,
)
from fedspan.errors import InputError
from fedspan.federation import FailureKind
from tests.laws.attack_examples import ALL, Example, same

from .attacked_federation import describe, federation, fragile, outcomes


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ones(np.nan), "scale=nan must be a finite number"),
        (lambda: Orthogonal("3"), "scale='3' must be a finite number"),  # type: ignore[arg-type]
        (lambda: ScaledReverse(np.inf), "factor=inf must be"),
        (lambda: ALittleIsEnough(None), "z=None must be"),  # type: ignore[arg-type]
        (lambda: InnerProduct(True), "eps=True must be"),
        (lambda: NonFinite("none"), "value='none' must be one of 'nan', 'inf'"),
        (lambda: WrongShape("bend"), "how='bend' must be one of 'drop', 'transpose'"),
        (lambda: SignFlip(steps=[]), r"steps=\(\) must be one or more names, or None for all steps"),
        (lambda: SignFlip(keys=[""]), r"keys=\('',\) must be one or more names"),
        (lambda: SignFlip(keys=[3]), r"keys=\(3,\) must be"),  # type: ignore[list-item]
        (lambda: Redrawn(SignFlip(), 0), "count=0 must be a whole number of at least 1"),
        (lambda: Redrawn(SignFlip(), 1.0), "count=1.0 must be"),  # type: ignore[arg-type]
    ],
)
def test_a_parameter_is_refused_when_the_attack_is_made(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_parameters_from_numpy_look_like_python_ones() -> None:
    assert repr(Orthogonal(np.float32(3))) == repr(Orthogonal(3)) == "Orthogonal(steps=None, keys=None, scale=3.0)"
    assert repr(Redrawn(SignFlip(), np.int64(2))) == "Redrawn(attack=SignFlip(steps=None, keys=None), count=2)"  # type: ignore[arg-type]


every_attack = pytest.mark.parametrize("law", ALL, ids=repr)


@every_attack
def test_the_wire_and_threads_change_nothing(law: Example) -> None:
    def run(**kwargs: Any) -> list[tuple[dict[str, Any], dict[str, str]]]:
        return outcomes(federation(**kwargs).corrupt(law.make(), sites=["b", "e"]))

    plain = run()
    for other in (run(wire=True), run(wire=True, n_jobs=2)):
        for (ok, failed), (ok_other, failed_other) in zip(plain, other, strict=True):
            assert failed == failed_other
            assert list(ok) == list(ok_other)
            for site in ok:
                assert list(ok[site]) == list(ok_other[site])
                assert all(same(ok[site][key], ok_other[site][key]) for key in ok[site])


@every_attack
def test_honest_replies_arrive_as_without_the_attack(law: Example) -> None:
    honest = outcomes(federation())
    attacked = outcomes(federation().corrupt(law.make(), sites=["b", "e"]))
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
    assert all(failure.kind is FailureKind.NON_FINITE for failure in replies.failed.values())


@pytest.mark.parametrize("attack", [WrongShape(), WrongShape("transpose")], ids=repr)
def test_a_policy_catches_a_wrong_shape(attack: Any) -> None:
    replies = federation().corrupt(attack, sites=["b", "e"]).ask(describe)
    assert list(replies.failed) == ["b", "e"]
    assert all(failure.kind is FailureKind.MISSHAPEN for failure in replies.failed.values())


def test_steps_and_keys_reach_the_right_calls() -> None:
    fed = federation().corrupt(Ones(steps=["describe"], keys=["mean"]), sites=["b"])
    reply = fed.ask(describe)["b"]
    assert reply["mean"].tolist() == [100.0] * 5
    assert reply["trace"] != 100.0
    assert fed.ask(fragile)["b"]["mean"].tolist() != [100.0] * 5


def test_a_malicious_site_attacks_although_its_step_failed() -> None:
    replies = federation().corrupt(Ones(), sites=["d"]).ask(fragile)
    assert replies["d"] == {"mean": pytest.approx(np.full(5, 100.0)), "name": "a"}


def test_attacks_can_be_combined() -> None:
    fed = federation().corrupt(SignFlip(keys=["trace"]), sites=["b"]).corrupt(Mimic("c", keys=["mean"]), sites=["e"])
    replies, honest = fed.ask(describe), federation().ask(describe)
    assert replies["b"]["trace"] == -honest["b"]["trace"]
    np.testing.assert_array_equal(replies["e"]["mean"], honest["c"]["mean"])
    assert replies["e"]["trace"] == honest["e"]["trace"]

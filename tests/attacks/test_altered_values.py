"""Honest values that are reversed, shifted, copied or misshapen, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedspan.attacks import (
    ALittleIsEnough,
    InnerProduct,
    Mimic,
    ScaledReverse,
    SignFlip,
    WrongShape,
)

from .replies_by_hand import sent


@pytest.mark.parametrize(
    ("attack", "c", "d", "loss_c"),
    [
        (SignFlip(), [-4, -6], [-8, -8], -5),
        (ScaledReverse(), [-40, -40], [-40, -40], -40),
        (ScaledReverse(0.5), [-2, -2], [-2, -2], -2),
        (ALittleIsEnough(), [0.5, 1], [0.5, 1], 0.5),
        (ALittleIsEnough(z=-1), [3, 1], [3, 1], 3),
        (InnerProduct(), [-0.2, -0.1], [-0.2, -0.1], -0.2),
        (InnerProduct(2), [-4, -2], [-4, -2], -4),
        (Mimic(), [1, 1], [1, 1], 1),
        (Mimic("b"), [3, 1], [3, 1], 3),
        (Mimic("d"), [1, 1], [1, 1], 1),  # is malicious itself
        (Mimic("z"), [1, 1], [1, 1], 1),  # did not answer
    ],
    ids=repr,
)
def test_by_hand(attack: Any, c: list[float], d: list[float], loss_c: float) -> None:
    found = sent(attack)
    np.testing.assert_allclose(found["c"]["x"], c, rtol=1e-15)
    np.testing.assert_allclose(found["d"]["x"], d, rtol=1e-15)
    assert found["c"]["loss"] == pytest.approx(loss_c)


def test_mimic_copies_a_shape_too() -> None:
    replies = {"a": {"x": np.ones((2, 3))}, "b": {"x": np.zeros((5, 3))}}
    assert sent(Mimic(), replies, ("b",))["b"]["x"].shape == (2, 3)


def test_wrong_shapes() -> None:
    value = np.arange(6.0).reshape(3, 2)
    replies = {"a": {"x": value, "square": np.eye(2), "vector": np.arange(3.0), "empty": np.zeros((0, 2)), "n": 1.0}}
    dropped = sent(WrongShape(), replies, ("a",))["a"]
    np.testing.assert_array_equal(dropped["x"], value[:2])
    np.testing.assert_array_equal(dropped["vector"], [0, 1])
    assert dropped["empty"].shape == (0, 2, 1)
    assert dropped["n"].tolist() == [1.0]
    turned = sent(WrongShape("transpose"), replies, ("a",))["a"]
    np.testing.assert_array_equal(turned["x"], value.T)
    assert turned["square"].shape == (2, 2, 1)
    assert turned["vector"].shape == (3, 1)
    cube = sent(WrongShape("transpose"), {"a": {"x": np.zeros((2, 3, 4))}, "b": {"x": np.zeros((2, 3, 4))}}, ("a", "b"))
    assert cube["b"]["x"].shape == (4, 3, 2)


def test_single_precision_is_attacked_in_double() -> None:
    replies = {site: {"x": np.array([1e8 + 8 * i, 3e38], dtype=np.float32)} for i, site in enumerate("abcd")}
    found = sent(ScaledReverse(1), replies)["c"]["x"]
    assert found.dtype == np.float32
    assert found[0] == -np.float32(100000012)
    assert found[1] == -np.float32(3e38)  # the sum does not overflow
    assert np.isneginf(sent(ScaledReverse(10), replies)["c"]["x"][1])  # the attack does, and may

"""Constants, chessboards, noise and values that are not finite, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedspan.attacks import (
    Alternating,
    NonFinite,
    Ones,
    RandomNoise,
)

from .replies_by_hand import sent


@pytest.mark.parametrize(
    ("attack", "c", "d", "loss_c"),
    [
        (Ones(), [100, 100], [100, 100], 100),
        (Ones(-2), [-2, -2], [-2, -2], -2),
        (Alternating(), [10, -10], [10, -10], 10),
        (Alternating(0.5), [0.5, -0.5], [0.5, -0.5], 0.5),
    ],
    ids=repr,
)
def test_by_hand(attack: Any, c: list[float], d: list[float], loss_c: float) -> None:
    found = sent(attack)
    assert found["c"]["x"].tolist() == c
    assert found["d"]["x"].tolist() == d
    assert found["c"]["loss"] == loss_c


def test_the_chessboard_of_a_matrix_has_rank_one() -> None:
    board = sent(Alternating(), {"a": {"x": np.zeros((3, 4))}}, ("a",))["a"]["x"]
    assert board.tolist() == [[10, -10, 10, -10], [-10, 10, -10, 10], [10, -10, 10, -10]]
    assert np.linalg.matrix_rank(board) == 1
    cube = sent(Alternating(), {"a": {"x": np.zeros((2, 2, 2))}}, ("a",))["a"]["x"]
    assert cube[1, 1, 1] == cube[0, 0, 1] == -10
    assert cube[1, 1, 0] == cube[0, 0, 0] == 10


def test_noise_has_its_scale_and_every_site_its_own() -> None:
    replies = {site: {"x": np.ones(4000), "y": np.ones(4000) * 1j} for site in "abcd"}
    found = sent(RandomNoise(5), replies)
    for site in "cd":
        assert abs(found[site]["x"].mean()) < 0.4
        assert found[site]["x"].std() == pytest.approx(5, rel=0.05)
        assert found[site]["y"].real.std() == pytest.approx(5, rel=0.05)
        assert found[site]["y"].imag.std() == pytest.approx(5, rel=0.05)
    assert abs(np.corrcoef(found["c"]["x"], found["d"]["x"])[0, 1]) < 0.1


def test_non_finite_values() -> None:
    assert np.isnan(sent(NonFinite())["c"]["x"]).all()
    assert np.isposinf(sent(NonFinite("inf"))["c"]["x"]).all()
    assert sent(NonFinite("inf"))["c"]["loss"] == float("inf")

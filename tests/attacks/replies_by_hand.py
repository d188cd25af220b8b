"""Honest replies of four sites, and what malicious ones send."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.laws.attack_examples import CALL

#: Malicious sites are c and d. The mean of all is (4, 4); of a and b it is (2, 1).
REPLIES = {
    "a": {"x": np.array([1.0, 1.0]), "loss": 1.0},
    "b": {"x": np.array([3.0, 1.0]), "loss": 3.0},
    "c": {"x": np.array([4.0, 6.0]), "loss": 5.0},
    "d": {"x": np.array([8.0, 8.0]), "loss": 7.0},
}


def sent(attack: Any, replies: Any = REPLIES, bad: tuple[str, ...] = ("c", "d"), seed: int = 0) -> Any:
    return attack(replies, bad, np.random.default_rng(seed), CALL)

"""An example of every attack: whoever adds an attack adds a line here, and the battery tests it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedspan.attacks import (
    ALittleIsEnough,
    Alternating,
    InnerProduct,
    Mimic,
    NonFinite,
    Ones,
    Orthogonal,
    RandomNoise,
    Redrawn,
    ScaledReverse,
    SignFlip,
    WrongShape,
)
from fedspan.federation import AttackedCall

CALL = AttackedCall("package.module.local_basis", 3)
BAD = ("b", "d")


@dataclass(frozen=True)
class Example:
    """How to make an attack, with or without `steps` and `keys`, and whether shapes and finite values stay."""

    make: Callable[..., Any]
    keeps_shape: bool = True
    finite: bool = True

    def __repr__(self) -> str:
        return repr(self.make())


EXAMPLES: dict[str, list[Example]] = {
    "ALittleIsEnough": [Example(lambda **k: ALittleIsEnough(1.5, **k))],
    "Alternating": [Example(Alternating)],
    "InnerProduct": [Example(lambda **k: InnerProduct(0.5, **k))],
    "Mimic": [Example(Mimic), Example(lambda **k: Mimic("e", **k))],
    "NonFinite": [Example(NonFinite, finite=False), Example(lambda **k: NonFinite("inf", **k), finite=False)],
    "Ones": [Example(Ones)],
    "Orthogonal": [Example(lambda **k: Orthogonal(3, **k))],
    "RandomNoise": [Example(lambda **k: RandomNoise(7, **k))],
    "Redrawn": [Example(lambda **k: Redrawn(SignFlip(**k), 2)), Example(lambda **k: Redrawn(RandomNoise(7, **k), 1))],
    "ScaledReverse": [Example(lambda **k: ScaledReverse(10, **k))],
    "SignFlip": [Example(SignFlip)],
    "WrongShape": [
        Example(WrongShape, keeps_shape=False),
        Example(lambda **k: WrongShape("transpose", **k), keeps_shape=False),
    ],
}

ALL = [example for examples in EXAMPLES.values() for example in examples]


def honest_replies(seed: int = 0) -> dict[str, dict[str, Any]]:
    """Return the replies of five sites, with every kind of value; arrays are read-only as in a federation."""
    rng = np.random.default_rng(seed)
    replies: dict[str, dict[str, Any]] = {}
    for site in "abcde":
        reply: dict[str, Any] = {
            "basis": np.linalg.qr(rng.normal(size=(8, 3)))[0],
            "gradient": rng.normal(size=5),
            "single": rng.normal(size=(2, 3)).astype(np.float32),
            "spectrum": rng.normal(size=4) + 1j * rng.normal(size=4),
            "cube": rng.normal(size=(2, 3, 2)),
            "zero_dim": np.array(rng.normal()),
            "loss": float(rng.normal()),
            "phase": complex(rng.normal(), rng.normal()),
            "n": int(rng.integers(1, 100)),
            "counts": rng.integers(0, 9, size=4),
            "mask": rng.random(4) < 0.5,
            "converged": True,
            "word": f"from {site}",
            "labels": np.array(["x", "y"]),
            "nothing": None,
        }
        for value in reply.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        replies[site] = reply
    return replies


FLOATING = ("basis", "gradient", "single", "spectrum", "cube", "zero_dim", "loss", "phase")


def same(a: Any, b: Any) -> bool:
    """Whether two values are alike in kind, type and every bit."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and repr(a) == repr(b)

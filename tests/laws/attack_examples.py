"""An example of every attack.

An attack without an entry in `EXAMPLES` is made by itself and must keep all laws; one that sends wrong shapes or what
is not finite on purpose gets a line here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from fedspan import attacks
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

from .discovery import arguments, callables_of, name_of

CALL = AttackedCall("package.module.local_basis", 3)
BAD = ("b", "d")


@dataclass(frozen=True)
class Example:
    """How to make an attack, with or without `steps` and `keys`, and whether shapes and finite values stay.

    A function is not made, and `selects` no steps and keys.
    """

    make: Callable[..., Any]
    keeps_shape: bool = True
    finite: bool = True
    selects: bool = True

    def __repr__(self) -> str:
        return name_of(self.make())


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

#: For the parameters of attacks that have no example.
USUAL = {"attack": SignFlip(), "count": 1, "eps": 0.5, "factor": 10.0, "scale": 7.0, "z": 1.5}


#: What the package exports beside its attacks.
OTHERS: tuple[str, ...] = ()


def attacks_of(package: ModuleType) -> dict[str, Any]:
    return callables_of(package, OTHERS, "OTHERS in tests/laws/attack_examples.py")


def example_of(found: Any) -> Example:
    if not inspect.isclass(found):
        return Example(lambda: found, selects=False)
    given = arguments(found, USUAL, "EXAMPLES in tests/laws/attack_examples.py")
    return Example(lambda **more: found(**given, **more))


def examples_of(package: ModuleType) -> list[Example]:
    return [law for name, kind in attacks_of(package).items() for law in EXAMPLES.get(name) or [example_of(kind)]]


ALL = examples_of(attacks)


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


def differing(reply: Any, other: Any) -> list[str]:
    """Return the keys of a reply that differ from another's in anything."""
    return [key for key in reply if not same(reply[key], other[key])]

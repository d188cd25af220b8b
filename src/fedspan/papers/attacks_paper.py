"""Attacks that the reproductions share, and attacks made for one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.attacks import ALittleIsEnough, InnerProduct, Mimic, RandomNoise, ScaledReverse, SignFlip
from fedspan.attacks.key_attack import KeyAttack, SeenReplies
from fedspan.federation import Attack, AttackedCall
from fedspan.linalg import orthonormalize, top_eigenpairs
from fedspan.linalg import subspace_median as median_of_subspaces
from fedspan.sums.row_moments import packed, unpacked

#: Attacks of the literature, which none of the papers has.
KNOWN_ATTACKS: dict[str, Attack] = {
    "sign flip": SignFlip(),
    "reverse x10": ScaledReverse(10.0),
    "a little is enough": ALittleIsEnough(1.5),
    "inner product": InnerProduct(0.1),
    "random x100": RandomNoise(100.0),
    "mimic": Mimic(),
}


@dataclass(frozen=True)
class OuterProduct:
    """Send ``A A'`` where another attack would send A: the same attack on sites that send covariances."""

    attack: Attack
    rank: int

    def __call__(
        self, replies: Mapping[str, Any], bad: tuple[str, ...], rng: np.random.Generator, call: AttackedCall
    ) -> dict[str, Any]:
        """Rewrite the covariances of the Byzantine sites."""
        bases = {site: {"basis": top_eigenpairs(unpacked(replies[site]["phi"]), self.rank)[1]} for site in bad}
        sent = {site: reply["basis"] for site, reply in self.attack(bases, bad, rng, call).items()}
        return {site: {**replies[site], "phi": packed(sent[site] @ sent[site].T)} for site in bad}


@dataclass(frozen=True)
class Rotated(KeyAttack):
    """Send, from all Byzantine sites, the median basis of the honest ones rotated by `angle` (in radians).

    Small angles are the dangerous ones: such a reply is among the honest ones.
    """

    angle: float

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> NDArray[Any]:
        """Return the rotated basis (1, n, r)."""
        agreed = median_of_subspaces(seen.good).basis
        other = orthonormalize(np.hstack([agreed, rng.standard_normal(agreed.shape)]))[:, agreed.shape[1] :]
        return np.asarray([np.cos(self.angle) * agreed + np.sin(self.angle) * other])


@dataclass(frozen=True)
class JustBelow(KeyAttack):
    """Send gradients of 9.9 times the honest median length, reversed or in one `fixed` direction.

    The coordinator refuses gradients from ten times the median length on. Sites must have equally many rows.
    """

    fixed: bool

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> NDArray[Any]:
        """Return the gradient (1, n, r)."""
        sent = -seen.good.mean(axis=0)
        if self.fixed:
            sent = np.random.default_rng(0).standard_normal(sent.shape)
        return np.asarray([sent * 9.9 * np.median(np.linalg.norm(seen.good, axis=(1, 2))) / np.linalg.norm(sent)])


@dataclass(frozen=True)
class Collude:
    """Send one and the same value from all Byzantine sites, `length` times as long as honest ones are.

    With `claim`, as the first cluster's; with `late`, only in Phase 2. With a `spread` each site sends it with noise of
    its own, that long in units of the value. Equal changes have one vote, and these differ.
    """

    claim: bool
    length: float = 1.0
    late: bool = False
    spread: float = 0.0

    def __call__(
        self, replies: Mapping[str, Any], bad: tuple[str, ...], rng: np.random.Generator, call: AttackedCall
    ) -> dict[str, Any]:
        """Rewrite the arrays of the Byzantine sites."""
        first = next(iter(replies.values()))
        sent: dict[str, Any] = {}
        arrays = {
            key: value for key, value in first.items() if isinstance(value, np.ndarray) and value.dtype.kind == "f"
        }
        for key, value in arrays.items() if "part" in first or not self.late else ():
            if key != "part":
                direction = np.random.default_rng(5).standard_normal(value.shape)
                typical = np.median([np.linalg.norm(reply[key]) for reply in replies.values()])
                sent[key] = direction * (self.length * typical / np.linalg.norm(direction))
            elif self.claim:
                sent[key] = np.eye(len(value))[0]
        found = {site: {**replies[site], **sent} for site in bad if site in replies}
        for reply in found.values() if self.spread else ():
            for key in sent.keys() - {"part"}:
                noise = rng.standard_normal(sent[key].shape)
                reply[key] = sent[key] + noise * (self.spread * np.linalg.norm(sent[key]) / np.linalg.norm(noise))
        return found

"""Attacks that alter honest values: reversed, shifted within their spread, copied, or in another shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedspan.attacks.key_attack import Array, KeyAttack, SeenReplies
from fedspan.checks import one_of


@dataclass(frozen=True)
class SignFlip(KeyAttack):
    """Send ``-x`` where ``x`` is the honest reply of the malicious site.

    L. Li, W. Xu, T. Chen, G. B. Giannakis and Q. Ling, "RSA: Byzantine-robust stochastic aggregation methods for
    distributed learning from heterogeneous datasets", AAAI 2019.
    """

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
        """Return each site's own value with the other sign."""
        return -seen.own


@dataclass(frozen=True)
class ScaledReverse(KeyAttack):
    """Send ``-factor`` times the mean of all honest replies, also those of the malicious sites.

    With b malicious sites among L the mean that the coordinator sees is about ``(L - b - b * factor) / L`` times the
    honest one. It changes its sign only where ``b * (1 + factor) > L``.

    A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024.
    """

    factor: float = 10.0

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
        """Return the reversed mean."""
        mean: Array = seen.honest.mean(axis=0, keepdims=True)
        return -self.factor * mean


@dataclass(frozen=True)
class InnerProduct(KeyAttack):
    """Send ``-eps`` times the mean of the replies of the good sites.

    The honest replies of the malicious sites do not count (in `ScaledReverse` they do). A small `eps` is enough to
    turn the inner product of a robust average and the true mean negative when the honest replies disagree. Where no
    good site has a value of that shape, all honest values are taken.

    C. Xie, O. Koyejo and I. Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation",
    UAI 2019.
    """

    eps: float = 0.1

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
        """Return the reversed mean of the good sites."""
        mean: Array = seen.good.mean(axis=0, keepdims=True)
        return -self.eps * mean


@dataclass(frozen=True)
class ALittleIsEnough(KeyAttack):
    """Send ``mean - z * std``, entry by entry, of the good sites: a reply that hides in their spread.

    The standard deviation is that of a population (divided by their number). For complex values it is that of the
    distance from the mean, a real number. Where no good site has a value of that shape, all honest values are taken.
    With z of about 1 to 1.5 it is hard to distinguish from an honest reply.

    M. Baruch, G. Baruch and Y. Goldberg, "A little is enough: circumventing defenses for distributed learning",
    NeurIPS 2019.
    """

    z: float = 1.5

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
        """Return the mean less z standard deviations."""
        mean: Array = seen.good.mean(axis=0, keepdims=True)
        std: Array = seen.good.std(axis=0, keepdims=True)
        return mean - self.z * std


@dataclass(frozen=True)
class Mimic(KeyAttack):
    """Send what one good site sends: it then counts several times, and sites unlike it look like outliers.

    S. P. Karimireddy, L. He and M. Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing",
    ICLR 2022.

    Parameters
    ----------
    site : str, optional
        The site to copy. By default, and in a call where it did not answer or is itself malicious, the first good site
        by name that has a value. Without one the malicious sites stay honest.
    """

    site: str | None = None

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
        """Return the copied value."""
        good = [site for site in seen.values if site not in seen.bad]
        if not good:
            return seen.own
        return seen.values[self.site if self.site in good else good[0]][None]


@dataclass(frozen=True)
class WrongShape(KeyAttack):
    """Send the honest values in a wrong shape: without the last row ("drop"), or with the axes reversed ("transpose").

    A number, an empty array, a vector and a square matrix to transpose would keep their shape: the value gets one axis
    more.
    """

    how: str = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("how", self.how, ("drop", "transpose"))

    def corrupted(self, seen: SeenReplies, rng: np.random.Generator) -> Array:
        """Return each malicious site's own value in a wrong shape."""
        own = seen.own
        if own.ndim > 1:
            bent = own[:, :-1] if self.how == "drop" else np.moveaxis(own.T, -1, 0)
            if bent.shape != own.shape:
                return bent
        return own[..., None]

"""Noise on the rows themselves (Section 5.1 of the paper): a transform through which all later steps see them."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedspan.arrays import Array
from fedspan.errors import InputError
from fedspan.federation import Federation, transform
from fedspan.federation.site.parameters import ArrayOf, Real
from fedspan.privacy.mechanisms import GaussianData
from fedspan.privacy.noise import LARGEST_MULTIPLIER, with_noise

#: Lengths that are far from where double precision ends.
Length = Annotated[float, Real(least=1e-100, most=1e100)]


class _OneOrPerColumn:
    """A finite number (an array of double precision without axes), or one for each column."""

    @staticmethod
    def check(name: str, value: object) -> Array | float:
        if isinstance(value, np.ndarray) and value.shape == () and value.dtype == np.float64:
            return Real().check(name, float(value))
        return ArrayOf("float", 1).check(name, value)


def _mu2(clip: float, sigma: float, **_: object) -> float:
    """Return the cost: the square of how far one row can move, over the noise."""
    if sigma > LARGEST_MULTIPLIER * 2 * clip:
        raise InputError(f"sigma={sigma:g} must be at most {2 * LARGEST_MULTIPLIER:g} times clip={clip:g}")
    return (2 * clip / sigma) ** 2


@transform("privacy.noisy_rows", mu2=_mu2)
def noisy_rows(
    X: Array, key: bytes, center: Annotated[Array | float, _OneOrPerColumn()], clip: Length, sigma: Length
) -> Array:
    """Return rows drawn in to a ball, plus noise.

    A row with NaN or infinity becomes the centre plus noise, so that no reply reveals it.
    """
    if X.ndim != 2 or np.shape(center) not in ((), (1,), X.shape[1:]):
        raise InputError(
            f"rows with noise must be a table, and the center one number or one for each column: X has the shape "
            f"{X.shape}, center {np.shape(center)}"
        )
    D = np.asarray(X, dtype=np.float64) - center
    D[~np.isfinite(D).all(axis=1)] = 0.0
    largest = np.maximum(np.abs(D).max(axis=1, keepdims=True, initial=0.0), 1e-300)  # no square overflows
    D /= largest  # first: a factor for both would have few digits where rows are huge and the ball is tiny
    norms = np.maximum(np.linalg.norm(D, axis=1, keepdims=True), 1e-300)
    D *= np.minimum(largest, clip * (1 - 1e-9) / norms)
    noisy = with_noise(D, key, sensitivity=2 * clip, multiplier=sigma / (2 * clip), numbers=D.shape[1])
    return np.asarray(center + noisy)  # rounding changes rows that have their noise already


def with_noisy_rows(federation: Federation, privacy: GaussianData) -> Federation:
    """Return the federation whose sites show noisy rows to every step."""
    center = np.asarray(privacy.center, dtype=np.float64)
    return federation.apply(noisy_rows, center=center, clip=float(privacy.clip), sigma=privacy.sigma)

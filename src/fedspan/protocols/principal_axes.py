"""What every PCA protocol returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class PrincipalAxes:
    """Principal axes of the scatter matrix ``S = sum_i x_i x_i'`` of all rows.

    Attributes
    ----------
    components : array (k, d)
        Orthonormal rows, largest scatter first.
    scatter : array (k,)
        The eigenvalues of S that belong to them.
    total : float
        The trace of S.
    n : int
        The number of rows.
    """

    components: NDArray[np.float64]
    scatter: NDArray[np.float64]
    total: float
    n: int


def with_fixed_signs(components: NDArray[Any]) -> NDArray[Any]:
    """Return axes (k, d) with signs as scikit-learn has them: the largest entry by magnitude is positive."""
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    signs[signs == 0] = 1.0
    fixed: NDArray[Any] = components * signs[:, None]
    return fixed

"""What every PCA protocol returns."""

from __future__ import annotations

from dataclasses import dataclass

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

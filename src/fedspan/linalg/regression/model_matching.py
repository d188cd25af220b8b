"""How far a set of models is from another one, when nobody says which belongs to which."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from fedspan.errors import InputError

Array = NDArray[np.float64]


def bottleneck_distance(models: ArrayLike, truth: ArrayLike) -> float:
    """Return ``min over permutations p of max_j ||models[p(j)] - truth[j]||``, the error of a mixture of regressions.

    Not the permutation of the smallest sum: that one may have a larger maximum.

    Parameters
    ----------
    models, truth : (k, d) arrays

    Examples
    --------
    >>> bottleneck_distance([[0.0], [1.0]], [[1.1], [0.2]])
    0.2
    """
    A, B = np.asarray(models, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if A.shape != B.shape or A.ndim != 2 or not A.size:
        raise InputError(f"models and truth must be (k, d) arrays of one shape, not {A.shape} and {B.shape}")
    distances = np.linalg.norm(A[:, None] - B[None], axis=2)
    heights = np.unique(distances)
    low, high = 0, len(heights) - 1  # the smallest height at which a permutation stays below it
    while low < high:
        middle = (low + high) // 2
        rows, columns = linear_sum_assignment(distances > heights[middle])
        if (distances[rows, columns] <= heights[middle]).all():
            high = middle
        else:
            low = middle + 1
    return float(heights[low])


def matched_share(labels: ArrayLike, truth: ArrayLike) -> float:
    """Return the share of labels that agree with the truth once their names are matched as well as possible.

    Examples
    --------
    >>> matched_share([1, 1, 0, 0], [0, 0, 0, 1])
    0.75
    """
    a, b = np.asarray(labels), np.asarray(truth)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise InputError(f"labels and truth must be vectors of one length, not of the shapes {a.shape} and {b.shape}")
    names_a, found = np.unique(a, return_inverse=True)
    names_b, right = np.unique(b, return_inverse=True)
    together = np.zeros((len(names_a), len(names_b)))
    np.add.at(together, (found, right), 1)
    return float(together[linear_sum_assignment(-together)].sum() / len(a))

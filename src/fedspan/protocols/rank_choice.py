"""How many directions of a representation the tasks really use: one round, 2 R^2 + 3 numbers up per site.

In R directions, more than are needed, the coefficients ``b_k`` of the tasks have a second moment M, of which noise
explains C (see `fit_moments`). Directions in which M is several times C are kept. The scale of features and targets
does not matter. Only tasks with twice as many rows as directions are asked: in smaller ones noise is amplified without
bound.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation.safe_arithmetic import lower_median
from fedspan.federation import Federation
from fedspan.linalg import orthonormalize
from fedspan.protocols.fit_moments import fit_moments
from fedspan.protocols.tasks import Counts, Tasks

Matrix = NDArray[np.float64]

#: Directions in which the coefficients vary by so many times more than noise would by chance are kept.
BEYOND_CHANCE = 1.25


def largest_rank(tasks: Tasks, max_rank: int, n_columns: int, intercept: bool, parts: int) -> int:
    """Return the largest rank to look for: half of the rows of a typical site are in tasks of twice as many rows."""
    size = lower_median(np.array([_usual_size(rows) for _, rows in tasks.held.values()]))
    return max(1, min(max_rank, n_columns // 2, len(tasks.labels), (int(size / parts) - intercept) // 2))


def _usual_size(rows: Counts) -> float:
    """Return how many rows the task of a site's middle row has: tasks of a row or two do not hide the large ones.

    Examples
    --------
    >>> _usual_size(np.array([2, 2, 2, 2, 2, 100]))
    100.0
    """
    sizes = np.sort(rows)
    return float(sizes[np.searchsorted(np.cumsum(sizes), sizes.sum() / 2)])


def chosen_directions(
    federation: Federation, U: Matrix, tasks: Tasks, intercept: bool, parts: int, max_rank: int, resilient: bool
) -> Matrix:
    """Return the directions (n, r) in the span of `U` (n, R) that the tasks use, at least one.

    Of q tasks that share nothing, the second moment is up to ``(1 + sqrt(R / q))^2`` times that of the noise.
    """
    R = U.shape[1]
    least = (2 * R + intercept) * parts
    federation = federation.subset(site for site in federation.sites if site not in tasks.sites_without(least))
    asked = len(set().union(*(at[rows >= least].tolist() for at, rows in tasks.held.values())))
    found = fit_moments(federation, U, intercept, resilient=resilient, parts=parts, least=least)
    values, directions = beyond_noise(found.moment, found.noise)
    rank = max(1, int(np.sum(values > BEYOND_CHANCE * (1.0 + np.sqrt(R / max(1, asked))) ** 2)))
    if rank == R < min(max_rank, len(U), len(tasks.labels)) or rank == R == max_rank > 1:
        warnings.warn(
            f"all {R} directions that were looked for are in use, and the rows and tasks of a typical site allow no "
            "more (or max_rank): where more are to be expected, give the rank",
            stacklevel=3,
        )
    return orthonormalize(U @ directions[:, :rank], complete=True)


def beyond_noise(moment: Matrix, noise: Matrix) -> tuple[NDArray[np.float64], Matrix]:
    """Return the generalised eigenvalues of `moment` against `noise`, largest first, and directions that span it.

    Examples
    --------
    >>> beyond_noise(np.diag([1.0, 50.0]), np.diag([1.0, 10.0]))[0]
    array([5., 1.])
    """
    sizes, axes = np.linalg.eigh((noise + noise.T) / 2)
    largest = float(np.abs(np.linalg.eigvalsh((moment + moment.T) / 2)).max(initial=0.0))
    sizes = np.maximum(sizes, max(float(sizes[-1]), largest, np.finfo(float).tiny) * 1e-14)  # no noise at all: some
    root, inverse = (axes * np.sqrt(sizes)) @ axes.T, (axes / np.sqrt(sizes)) @ axes.T
    relative = inverse @ moment @ inverse
    values, vectors = np.linalg.eigh((relative + relative.T) / 2)
    return values[::-1], root @ vectors[:, ::-1]

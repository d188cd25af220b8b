"""How many directions of a representation the tasks really use: one round.

Up per site: 2 R^2 + 3 numbers; by sums, where tasks have rows at several sites, the normal equations of all q tasks.

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
from fedspan.few_shot.parts.fit_moments import FitMoments, fit_moments
from fedspan.few_shot.parts.task_coefs import centred, common_centre, inverses, local_normal_equations
from fedspan.few_shot.parts.tasks import Counts, Tasks
from fedspan.linalg import orthonormalize

Matrix = NDArray[np.float64]

#: Directions in which the coefficients vary by so many times more than noise would by chance are kept.
BEYOND_CHANCE = 1.25


def largest_rank(
    tasks: Tasks, max_rank: int, n_columns: int, intercept: bool, parts: int, *, resilient: bool = False
) -> int:
    """Return the largest rank to look for: half of the rows are in tasks of at least twice as many rows.

    By sums of all rows, however they are split. Where sites may lie (`resilient`) of the rows of a typical site.
    """
    size = _usual_size(tasks.pooled)
    if resilient:
        size = lower_median(np.array([_usual_size(rows) for _, rows in tasks.held.values()]))
    return max(1, min(max_rank, n_columns // 2, len(tasks.labels), (int(size / parts) - intercept) // 2))


def _usual_size(rows: Counts) -> float:
    """Return how many rows the task of the middle row has: tasks of a row or two do not hide the large ones.

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
    if resilient or tasks.whole:
        federation = federation.subset(site for site in federation.sites if site not in tasks.sites_without(least))
        asked = len(set().union(*(at[rows >= least].tolist() for at, rows in tasks.held.values())))
        found = fit_moments(federation, U, intercept, resilient=resilient, parts=parts, least=least)
    else:
        asked = int(np.sum(tasks.pooled >= least))
        found = pooled_moments(federation, U, tasks, intercept, parts)
    values, directions, across = beyond_noise(found.moment, found.noise)
    if found.by_site is not None:
        values = np.minimum(values, typical_ratios(*found.by_site, across))
        order = np.argsort(-values, kind="stable")
        values, directions = values[order], directions[:, order]
    rank = max(1, int(np.sum(values > BEYOND_CHANCE * (1.0 + np.sqrt(R / max(1, asked))) ** 2)))
    if rank == R < min(max_rank, len(U), len(tasks.labels)) or rank == R == max_rank > 1:
        warnings.warn(
            f"all {R} directions that were looked for are in use, and the rows and tasks of a typical site (by sums: "
            "of all) allow no more (or max_rank): where more are to be expected, give the rank",
            stacklevel=3,
        )
    if not resilient:  # otherwise a typical site has rows enough for all that were looked for
        rank = _learnable(tasks, rank, intercept, parts)
    return orthonormalize(U @ directions[:, :rank], complete=True)


def _learnable(tasks: Tasks, rank: int, intercept: bool, parts: int) -> int:
    """Return `rank`, or less with a warning: so many that half of the rows, as they are split, have a say."""
    cells = np.concatenate([rows for _, rows in tasks.held.values()])
    most = max(1, int(_usual_size(cells) / parts) - intercept - 1)
    if rank > most:
        warnings.warn(
            f"the tasks use {rank} directions, and {most} are learned: the rows of most tasks are split so finely over "
            f"the sites that more would be fitted exactly. Join sites, or give the rank",
            stacklevel=4,
        )
    return min(rank, most)


def pooled_moments(federation: Federation, U: Matrix, tasks: Tasks, intercept: bool, parts: int) -> FitMoments:
    """Return what the pooled rows of tasks at several sites say of U (n, R), from sums: q (R^2 + 2 R + 3) numbers.

    Of tasks with at least twice as many rows as directions. So the rank does not depend on how rows are split.
    """
    centre = common_centre(federation, U, intercept)
    total = federation.sum(local_normal_equations, U=U, tasks=tasks.labels, centre=centre, parts=parts)
    R = U.shape[1]
    there = total["rows"] >= 2 * R + intercept
    keys = ("gram", "cross", "sums", "squares", "rows")
    gram, cross, squares, _, rows = centred({key: total[key][there] for key in keys}, intercept)
    inverse = inverses(gram)
    b = (inverse @ cross[:, :, None])[:, :, 0]
    free = max(1, int(np.sum(rows - R - intercept)))
    loss = max(0.0, float(np.sum(squares - np.einsum("kr,kr->k", b, cross)))) / free
    share = rows / max(1, int(rows.sum()))
    noise = loss * np.einsum("k,krs->rs", share, inverse)
    return FitMoments((b * share[:, None]).T @ b, noise, loss, free)


def typical_ratios(moments: Matrix, noises: Matrix, across: Matrix) -> NDArray[np.float64]:
    """Return by how much the second moments (L, R, R) exceed the noise's along each of R axes, at the median site.

    Where sites differ, liars can move a median of matrices by as much as that, in any direction. Along a direction that
    honest sites do not use, most sites say so.
    """
    across = across / np.abs(across).max(axis=0)
    along, chance = (np.einsum("ir,lij,jr->lr", across, values, across) for values in (moments, noises))
    floor = 1e-14 * np.abs(np.trace(moments, axis1=1, axis2=2))  # no noise at all: some
    chance = np.maximum(chance, np.maximum(floor, np.finfo(float).tiny)[:, None])
    return np.asarray(np.median(along / chance, axis=0))


def beyond_noise(moment: Matrix, noise: Matrix) -> tuple[NDArray[np.float64], Matrix, Matrix]:
    """Return the generalised eigenvalues of `moment` against `noise`, largest first, and directions that span it.

    At last the axes along which the eigenvalues are measured: ``v' moment v`` where ``v' noise v = 1``.

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
    return values[::-1], root @ vectors[:, ::-1], inverse @ vectors[:, ::-1]

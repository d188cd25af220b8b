"""The matrix whose leading left singular vectors start AltGDmin, and what sites send of it.

``Theta_0 = sum_k X_k' trunc(y_k) e_k'`` (n, q): column k points towards the coefficients of task k. Without the 1/m of
the papers, which does not change what it spans: so every row counts alike, also where tasks differ in size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from fedspan.errors import InputError
from fedspan.federation import Site, step
from fedspan.few_shot.parts.disclosure_counts import of_truncated_tasks
from fedspan.few_shot.parts.task_names import positions
from fedspan.few_shot.parts.task_rows import Part, TaskRows
from fedspan.linalg import orthonormalize

Matrix = NDArray[np.float64]


@step("few_shot.start_basis", reveals="sums", fewest=of_truncated_tasks)
def local_basis(site: Site, rank: int, alpha: float, intercept: bool, parts: int) -> dict[str, Any]:
    """Leaves the site: the `rank` leading left singular vectors of its Theta_0 (n, rank)."""
    Theta = theta(site, alpha, intercept, parts)
    if len(Theta) < rank:
        raise InputError(f"this site has {len(Theta)} tasks, and needs at least {rank} for as many directions")
    return {"basis": leading(Theta, rank)}


@step("few_shot.start_loadings", reveals="sums", fewest=of_truncated_tasks)
def local_loadings(
    site: Site, U: Matrix, tasks: NDArray[Any], alpha: float, intercept: bool, parts: int
) -> dict[str, Any]:
    """Leaves the site: ``V = Theta_0' U`` (q, r), zero for tasks that it has not."""
    V = np.zeros((len(tasks), U.shape[1]))
    at, known = positions(TaskRows.of(site).labels, tasks)
    V[at[known]] = (theta(site, alpha, intercept, parts) @ U)[known]
    return {"loadings": V}


@step("few_shot.start_product", reveals="sums", fewest=of_truncated_tasks)
def local_product(
    site: Site, V: Matrix, tasks: NDArray[Any], alpha: float, intercept: bool, parts: int
) -> dict[str, Any]:
    """Leaves the site: ``Theta_0 V`` (n, r)."""
    at, known = positions(TaskRows.of(site).labels, tasks)
    return {"product": theta(site, alpha, intercept, parts)[known].T @ V[at[known]]}


@step("few_shot.start_own_product", reveals="sums", fewest=of_truncated_tasks)
def local_own_product(site: Site, U: Matrix, alpha: float, intercept: bool, parts: int) -> dict[str, Any]:
    """Leaves the site: ``Theta_0 Theta_0' U`` (n, r), where no task has rows at another site."""
    Theta = theta(site, alpha, intercept, parts)
    return {"product": Theta.T @ (Theta @ U)}


def theta(site: Site, alpha: float, intercept: bool, parts: int) -> Matrix:
    """Return the transpose of the site's Theta_0 (q, n), from the first of `parts` parts of the rows.

    What is larger than ``sqrt(alpha)`` in y is truncated to 0. Memory: n q; the last one is kept.
    """
    key = (alpha, intercept, parts)
    kept: dict[Any, Matrix] = site.cached("theta", dict)
    if key not in kept:
        found = _theta(TaskRows.of(site), *key)
        kept.clear()
        kept[key] = found
    return kept[key]


def _theta(tasks: TaskRows, alpha: float, intercept: bool, parts: int) -> Matrix:
    rows = Part(0, parts).rows
    Theta = np.zeros((len(tasks), tasks.X.shape[1]))
    bound = np.sqrt(max(alpha, 0.0))
    for block in tasks.blocks():
        y = block.y[:, rows]
        y = y - y.mean(axis=1, keepdims=True) if intercept else y
        y = np.where(np.abs(y) <= bound, y, 0.0)
        if intercept:  # as good as taking the means off the rows of X
            y = y - y.mean(axis=1, keepdims=True)
        Theta[block.tasks] = (y[:, None, :] @ block.X[:, rows])[:, 0]
    return Theta


def leading(Theta: Matrix, rank: int) -> Matrix:
    """Return the `rank` leading right singular vectors (n, rank) of `Theta` (q, n), from its smaller Gram matrix."""
    q, n = Theta.shape
    if n <= q:
        vectors = eigh(Theta.T @ Theta, subset_by_index=[n - rank, n - 1])[1]
    else:
        vectors = Theta.T @ eigh(Theta @ Theta.T, subset_by_index=[q - rank, q - 1])[1]
    return orthonormalize(vectors[:, ::-1], complete=True)

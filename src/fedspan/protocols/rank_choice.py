"""How many directions of a representation the tasks really use: one round, 2 R^2 numbers up per site.

In R directions, more than are needed, the coefficients ``b_k`` of the tasks have a second moment M. Where nothing is
shared it is the one that noise gives them, ``C = sigma^2 (T_k' T_k)^-1`` on average, which a site knows. Directions in
which M is several times C are kept. The scale of features and targets does not matter, nor how large the tasks are.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import GeometricMedian
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.linalg import orthonormalize
from fedspan.protocols.task_rows import Part, TaskRows, fitted, least_rows
from fedspan.wire import Message

Matrix = NDArray[np.float64]

#: Directions in which the coefficients vary by so many times more than noise would by chance are kept.
BEYOND_CHANCE = 1.25
_LARGEST = 1e150  # numbers that can still be squared


@step
@np.errstate(over="ignore", invalid="ignore")  # of numbers so large that the policy refuses the reply
def local_moments(site: Site, U: Matrix, intercept: bool, parts: int) -> dict[str, Any]:
    """Leaves the site: the second moment of all ``b_k`` (R, R), the one that noise would give them, and its rows."""
    R = U.shape[1]
    moment, spread, loss, rows, free = np.zeros((R, R)), np.zeros((R, R)), 0.0, 0, 0
    part = Part(0, parts).rows
    for block in TaskRows.of(site).blocks(least_rows(R + intercept, parts)):
        T, y = block.X[:, part] @ U, block.y[:, part]
        b, a = fitted(T, y, intercept)
        residual = (T @ b[:, :, None])[:, :, 0] + a[:, None] - y
        T = T - T.mean(axis=1, keepdims=True) if intercept else T
        k, m, _ = T.shape
        moment += m * (b.T @ b)
        spread += m * np.linalg.pinv(T.transpose(0, 2, 1) @ T, hermitian=True).sum(axis=0)
        loss += float(np.vdot(residual, residual))
        rows, free = rows + k * m, free + k * (m - R - intercept)
    return {"moment": moment, "noise": spread * (loss / max(1, free)), "rows": rows}


def chosen_directions(
    federation: Federation, U: Matrix, n_tasks: int, intercept: bool, parts: int, resilient: bool
) -> Matrix:
    """Return the directions (n, r) in the span of `U` (n, R) that the tasks use, at least one.

    Of q tasks that share nothing, the second moment is up to ``(1 + sqrt(R / q))^2`` times that of the noise.
    """
    R = U.shape[1]
    payload: dict[str, Any] = {"U": U, "intercept": intercept, "parts": parts}
    if resilient:
        replies = federation.accept(federation.ask(local_moments, **payload), lambda reply: _per_row(reply, R))
        moment, noise = (GeometricMedian()(replies.stack(key)).value for key in ("moment", "noise"))
    else:
        total = federation.sum(local_moments, **payload)
        moment, noise = total["moment"], total["noise"]
    values, directions = beyond_noise(moment, noise)
    rank = max(1, int(np.sum(values > BEYOND_CHANCE * (1.0 + np.sqrt(R / n_tasks)) ** 2)))
    if rank == R > 1:
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


def _per_row(reply: Message, R: int) -> Message:
    values = {key: np.asarray(reply[key]) for key in ("moment", "noise")}
    rows = reply["rows"]
    if any(value.shape != (R, R) or value.dtype.kind not in "iuf" for value in values.values()):
        raise InputError(f"the second moments must be matrices {(R, R)} of real numbers")
    if not isinstance(rows, int) or rows < 1:
        raise InputError(f"no task of this site has more than {R} rows")
    return {key: np.clip(value, -_LARGEST, _LARGEST) / rows for key, value in values.items()}

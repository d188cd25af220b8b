"""How well a representation fits, and how large the tasks' coefficients are in it: one round, 2 r^2 + 3 numbers up.

In r directions the coefficients ``b_k`` that the sites find have a second moment M. Noise alone would give them
``C = sigma^2 (T_k' T_k)^-1`` on average, which a site knows: what is left, M - C, is that of the true ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.aggregation import GeometricMedian
from fedspan.aggregation.safe_arithmetic import lower_median
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.few_shot.parts.disclosure_counts import of_fitted_tasks
from fedspan.few_shot.parts.task_rows import Part, TaskRows, fitted, least_rows
from fedspan.wire import Message

Matrix = NDArray[np.float64]

_MOST_ROWS = 1e150
#: Entries beyond this many times those of a typical site are cut: nobody needs to say more to be outvoted.
_BEYOND = 1e12


@dataclass(frozen=True)
class FitMoments:
    """What a federation's tasks say of a representation.

    Attributes
    ----------
    moment : array (r, r)
        Second moment of the ``b_k`` that were found, per row.
    noise : array (r, r)
        The one that noise alone would give them.
    loss : float
        Squared residuals per degree of freedom.
    free : float
        Degrees of freedom: rows less what was fitted to them.
    by_site : pair of arrays (L, r, r), optional
        `moment` and `noise` as each site told them, where they are medians.
    """

    moment: Matrix
    noise: Matrix
    loss: float
    free: float
    by_site: tuple[Matrix, Matrix] | None = None

    @property
    def true_moment(self) -> Matrix:
        """Second moment (r, r) of the true ``b_k``: what noise does not explain."""
        sizes, axes = np.linalg.eigh(symmetric(self.moment - self.noise))
        return np.asarray((axes * np.maximum(sizes, 0.0)) @ axes.T)


@step("few_shot.fit_moments", reveals="sums", fewest=of_fitted_tasks)
@np.errstate(over="ignore", invalid="ignore")  # of numbers so large that the policy refuses the reply
def local_moments(site: Site, U: Matrix, intercept: bool, parts: int, least: int) -> dict[str, Any]:
    """Leaves the site: second moments of its ``b_k`` and of their noise (r, r), squared residuals, rows, freedom.

    Of tasks with at least `least` rows. The last number counts the degrees of freedom.
    """
    r = U.shape[1]
    moment, spread, loss, rows, free = np.zeros((r, r)), np.zeros((r, r)), 0.0, 0, 0
    part = Part(0, parts).rows
    for block in TaskRows.of(site).blocks(max(least, least_rows(r + intercept, parts))):
        T, y = block.X[:, part] @ U, block.y[:, part]
        b, a = fitted(T, y, intercept)
        residual = (T @ b[:, :, None])[:, :, 0] + a[:, None] - y
        T = T - T.mean(axis=1, keepdims=True) if intercept else T
        k, m, _ = T.shape
        moment += m * (b.T @ b)
        spread += m * np.linalg.pinv(T.transpose(0, 2, 1) @ T, hermitian=True).sum(axis=0)
        loss += float(np.vdot(residual, residual))
        rows, free = rows + k * m, free + k * (m - r - intercept)
    return {"moment": moment, "noise": spread * (loss / max(1, free)), "loss": loss, "rows": rows, "free": free}


def fit_moments(
    federation: Federation, U: Matrix, intercept: bool, *, resilient: bool, parts: int = 1, least: int = 0
) -> FitMoments:
    """Return what the tasks with at least `least` rows say of U: by sums, or by medians over the sites."""
    payload: dict[str, Any] = {"U": U, "intercept": intercept, "parts": parts, "least": least}
    if not resilient:
        total = federation.sum(local_moments, **payload)
        rows, free = max(1, total["rows"]), max(1, total["free"])
        return FitMoments(total["moment"] / rows, total["noise"] / rows, float(total["loss"]) / free, free)
    replies = federation.accept(federation.ask(local_moments, **payload), lambda reply: _per_row(reply, U.shape[1]))
    moments, noises = (bounded(replies.stack(key)) for key in ("moment", "noise"))
    loss, free = (float(np.median(replies.stack(key))) for key in ("loss", "free"))
    moment, noise = (GeometricMedian()(values).value for values in (moments, noises))
    return FitMoments(moment, noise, loss, free * len(replies), (moments, noises))


def bounded(matrices: Matrix) -> Matrix:
    """Return the sites' matrices (L, r, r) with entries cut that would overflow in sums of them.

    Examples
    --------
    >>> bounded(np.array([[[1.0]], [[2.0]], [[1e308]]])).ravel()
    array([1.e+00, 2.e+00, 2.e+12])
    """
    bound = _BEYOND * lower_median(np.abs(matrices).max(axis=(1, 2)))
    return np.clip(matrices, -bound, bound)


def symmetric(matrix: Matrix) -> Matrix:
    """Return the symmetric part."""
    return np.asarray((matrix + matrix.T) / 2)


def told_sums(reply: Message) -> tuple[int, int, float]:
    """Return the rows, degrees of freedom and squared residuals that a site tells, or refuse them."""
    rows, free, loss = reply.get("rows"), reply.get("free"), reply.get("loss")
    if type(rows) is not int or type(free) is not int or min(rows, free) < 1 or max(rows, free) > _MOST_ROWS:
        raise InputError("a site must tell its rows and degrees of freedom, whole numbers of at least 1")
    if not isinstance(loss, int | float) or isinstance(loss, bool) or not abs(loss) <= np.finfo(np.float64).max:
        raise InputError("a site must tell its loss, a finite number")
    return rows, free, max(0.0, float(loss))


def told_matrix(reply: Message, key: str, shape: tuple[int, ...]) -> Matrix:
    """Return a matrix of real numbers that a site tells, or refuse it."""
    value = np.asarray(reply.get(key))
    if value.shape != shape or value.dtype.kind not in "iuf":
        raise InputError(f"the {key} must be a matrix {shape} of real numbers, not {value.dtype}{value.shape}")
    return value.astype(np.float64)


def _per_row(reply: Message, r: int) -> Message:
    if reply.get("rows") == 0:
        raise InputError(f"no task of this site has rows enough for {r} directions")
    rows, free, loss = told_sums(reply)
    moments = {key: told_matrix(reply, key, (r, r)) / rows for key in ("moment", "noise")}
    return {**moments, "loss": loss / free, "free": float(free)}

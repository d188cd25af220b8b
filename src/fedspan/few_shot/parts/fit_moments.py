"""How well a representation fits, how large the tasks' coefficients are in it, and how many directions they use.

In r directions the coefficients ``b_k`` that the sites find have a second moment M. Noise alone would give them ``C =
sigma^2 (T_k' T_k)^-1`` on average, which a site knows. What is left, M - C, is that of the true ones. One round, 2 r^2
+ 3 numbers up per site.

To choose the rank, M and C are measured in R directions, more than needed; by sums, where tasks have rows at several
sites, from the normal equations of all q tasks. Directions in which M is several times C are kept. Only tasks with
twice as many rows as directions count: in smaller ones noise is amplified without bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedspan.aggregation import GeometricMedian
from fedspan.aggregation.safe_arithmetic import lower_median
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Count, Index, Indices, Matrix, Real, Stack, Vector, Whole
from fedspan.few_shot.parts.task_coefs import centred, common_centre, inverses, local_normal_equations
from fedspan.few_shot.parts.task_rows import TaskRows, fitted, least_rows, rows_of_descent
from fedspan.few_shot.parts.tasks import Tasks, reported_array, warn
from fedspan.linalg import orthonormalize
from fedspan.wire import Message

#: Entries beyond this many times those of a typical site are cut: no honest site needs more.
_BEYOND = 1e12
#: The rank counts directions in which the coefficients vary by this many times more than noise would by chance.
BEYOND_CHANCE = 1.25


@dataclass(frozen=True)
class FitMoments:
    """How a federation's tasks fit a representation.

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
        `moment` and `noise` as each site reports them, where they are medians.
    """

    moment: Matrix
    noise: Matrix
    loss: float
    free: float
    by_site: tuple[Stack, Stack] | None = None

    @property
    def true_moment(self) -> Matrix:
        """Second moment (r, r) of the true ``b_k``: what noise does not explain."""
        difference = self.moment - self.noise
        sizes, axes = np.linalg.eigh((difference + difference.T) / 2)
        return np.asarray((axes * np.maximum(sizes, 0.0)) @ axes.T)


@step("few_shot.fit_moments", reveals="sums", fewest=rows_of_descent)
@np.errstate(over="ignore", invalid="ignore")  # of numbers so large that the policy refuses the reply
def local_moments(site: Site, U: Matrix, intercept: bool, parts: Count, least: Index) -> dict[str, Any]:
    """Leaves the site: second moments of its ``b_k`` and of their noise (r, r), squared residuals, rows, freedom.

    Of tasks with at least `least` rows. The last number counts the degrees of freedom.
    """
    r = U.shape[1]
    moment, spread, loss, rows, free = np.zeros((r, r)), np.zeros((r, r)), 0.0, 0, 0
    for block in TaskRows.of(site).blocks(max(least, least_rows(r + intercept, parts))):
        T, y = block.X[:, ::parts] @ U, block.y[:, ::parts]
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
    """Return how the tasks with at least `least` rows fit U: by sums, or by medians over the sites."""
    payload: dict[str, Any] = {"U": U, "intercept": intercept, "parts": parts, "least": least}
    if not resilient:
        total = federation.sum(local_moments, **payload)
        rows, free = max(1, total["rows"]), max(1, total["free"])
        return FitMoments(total["moment"] / rows, total["noise"] / rows, float(total["loss"]) / free, free)
    shape = (U.shape[1], U.shape[1])
    replies = federation.ask(local_moments, **payload)
    replies = federation.accept(replies, lambda reply: per_row(reply, {"moment": shape, "noise": shape}))
    moments, noises = (bounded(replies.stack(key)) for key in ("moment", "noise"))
    loss, free = (float(np.median(replies.stack(key))) for key in ("loss", "free"))
    moment, noise = (GeometricMedian()(values).value for values in (moments, noises))
    return FitMoments(moment, noise, loss, free * len(replies), (moments, noises))


def per_row(reply: Message, shapes: dict[str, tuple[int, int]]) -> Message:
    """Return a reply with its sums per row (the paper's 1 / m~ and q at once) and its loss per degree of freedom."""
    rows, free = (Whole(1).check(key, reply.get(key)) for key in ("rows", "free"))
    loss = max(0.0, Real().check("loss", reply.get("loss")))
    sums = {key: reported_array(reply, key, shape) / rows for key, shape in shapes.items()}
    return {**sums, "loss": loss / free, "rows": rows, "free": float(free)}


def bounded(matrices: Stack) -> Stack:
    """Return the sites' matrices (L, r, r) with entries cut that would overflow in sums of them.

    Examples
    --------
    >>> bounded(np.array([[[1.0]], [[2.0]], [[1e308]]])).ravel()
    array([1.e+00, 2.e+00, 2.e+12])
    """
    bound = _BEYOND * lower_median(np.abs(matrices).max(axis=(1, 2)))
    return np.clip(matrices, -bound, bound)


def largest_rank(
    tasks: Tasks, max_rank: int, n_columns: int, intercept: bool, parts: int, *, resilient: bool = False
) -> int:
    """Return the largest rank to look for: half of the rows are in tasks of at least twice as many rows.

    `resilient`: half of the rows of a typical site.
    """
    size = _usual_size(tasks.pooled)
    if resilient:
        size = lower_median(np.array([_usual_size(rows) for _, rows in tasks.held.values()]))
    return max(1, min(max_rank, n_columns // 2, len(tasks.labels), (int(size / parts) - intercept) // 2))


def _usual_size(rows: Indices) -> float:
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
        used = len(set().union(*(at[rows >= least].tolist() for at, rows in tasks.held.values())))
        found = fit_moments(federation, U, intercept, resilient=resilient, parts=parts, least=least)
    else:
        used = int(np.sum(tasks.pooled >= least))
        found = pooled_moments(federation, U, tasks, intercept, parts)
    values, directions, across = beyond_noise(found.moment, found.noise)
    if found.by_site is not None:
        values = np.minimum(values, _typical_ratios(*found.by_site, across))
        order = np.argsort(-values, kind="stable")
        values, directions = values[order], directions[:, order]
    rank = max(1, int(np.sum(values > BEYOND_CHANCE * (1.0 + np.sqrt(R / max(1, used))) ** 2)))
    if rank == R < min(max_rank, len(U), len(tasks.labels)) or rank == R == max_rank > 1:
        warn(
            f"all {R} directions that were tried are in use; max_rank, or the rows and tasks of a typical site (by "
            "sums: of all), allow no more: where you expect more, give the rank"
        )
    if not resilient:  # otherwise a typical site has enough rows for all directions that were looked for
        cells = np.concatenate([rows for _, rows in tasks.held.values()])
        most = max(1, int(_usual_size(cells) / parts) - intercept - 1)  # half of the rows, as they are split, count
        if rank > most:
            warn(
                f"the tasks use {rank} directions, and {most} are learned: the sites have so few rows of most tasks "
                "that they would fit more exactly. Join sites, or give the rank"
            )
        rank = min(rank, most)
    return orthonormalize(U @ directions[:, :rank], complete=True)


def pooled_moments(federation: Federation, U: Matrix, tasks: Tasks, intercept: bool, parts: int) -> FitMoments:
    """Return how the pooled rows of tasks fit U (n, R), however they are split: sums of q (R^2 + 2 R + 3) numbers."""
    centre = common_centre(federation, U, intercept)
    total = federation.sum(local_normal_equations, U=U, tasks=tasks.labels, centre=centre, parts=parts)
    R = U.shape[1]
    gram, cross, squares, _, rows = centred(total, total["rows"] >= 2 * R + intercept, intercept)
    inverse = inverses(gram)
    b = (inverse @ cross[:, :, None])[:, :, 0]
    free = max(1, int(np.sum(rows - R - intercept)))
    loss = max(0.0, float(np.sum(squares - np.einsum("kr,kr->k", b, cross)))) / free
    share = rows / max(1, int(rows.sum()))
    noise = loss * np.einsum("k,krs->rs", share, inverse)
    return FitMoments((b * share[:, None]).T @ b, noise, loss, free)


def _typical_ratios(moments: Stack, noises: Stack, across: Matrix) -> Vector:
    """Return by how much the second moments (L, R, R) exceed the noise's along each of R axes, at the median site.

    Where sites differ, malicious sites can move a median of matrices in any direction. This median they can't move
    along a direction that honest sites do not use.
    """
    across = across / np.abs(across).max(axis=0)
    along, chance = (np.einsum("ir,lij,jr->lr", across, values, across) for values in (moments, noises))
    floor = 1e-14 * np.abs(np.trace(moments, axis1=1, axis2=2))  # in place of no noise at all
    chance = np.maximum(chance, np.maximum(floor, np.finfo(float).tiny)[:, None])
    return np.asarray(np.median(along / chance, axis=0))


def beyond_noise(moment: Matrix, noise: Matrix) -> tuple[Vector, Matrix, Matrix]:
    """Return the generalised eigenvalues of `moment` against `noise`, largest first, and directions that span it.

    Also the axes along which the eigenvalues are measured: ``v' moment v`` where ``v' noise v = 1``.

    Examples
    --------
    >>> beyond_noise(np.diag([1.0, 50.0]), np.diag([1.0, 10.0]))[0]
    array([5., 1.])
    """
    sizes, axes = np.linalg.eigh((noise + noise.T) / 2)
    largest = float(np.abs(np.linalg.eigvalsh((moment + moment.T) / 2)).max(initial=0.0))
    floor = max(float(sizes[-1]), largest, np.finfo(float).tiny) * 1e-14  # in place of no noise at all
    sizes = np.maximum(sizes, floor)
    root, inverse = (axes * np.sqrt(sizes)) @ axes.T, (axes / np.sqrt(sizes)) @ axes.T
    relative = inverse @ moment @ inverse
    values, vectors = np.linalg.eigh((relative + relative.T) / 2)
    return values[::-1], root @ vectors[:, ::-1], inverse @ vectors[:, ::-1]

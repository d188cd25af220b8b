"""AltGDmin: the low-dimensional representation that many regressions share, by gradient descent on it alone.

Algorithm 1 of A. P. Singh and N. Vaswani, "Byzantine resilient and fast federated few-shot learning", ICML 2024; from
S. Nayer and N. Vaswani, "Fast and sample-efficient federated low rank matrix recovery", IEEE Trans. Inf. Theory 2023.
Model: ``y_k = X_k U b_k + noise`` for tasks k = 1 .. q with one U (n, r). Sites have rows of all tasks, or tasks of
their own, or anything between. Each minimises over the ``b_k`` of its own rows.

Only sums are needed, except for the list of the tasks. Up per site: (n + q) r numbers in each iteration of the start (n
r where no task is at two sites). Then n r + r^2 + 3 in each iteration, and 2 r^2 + 3 in the end. Sites do not send the
``b_k``, but some numbers are close to them. They are the (q, r) numbers of the start, as sums over the sites of the
task. They are also the second moment of a site with one task. One malicious site can spoil the result: see
`byz_altgdmin`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Count, Index, Matrix
from fedspan.few_shot.parts.fit_moments import FitMoments, chosen_directions, fit_moments, largest_rank
from fedspan.few_shot.parts.task_rows import TaskRows, fitted, least_rows, rows_of_descent
from fedspan.few_shot.parts.tasks import Tasks, agree_on_tasks, check_rank, eligible_sites, known_sites
from fedspan.few_shot.parts.truncated_start import StartPlan, summed_start
from fedspan.linalg import orthonormalize, subspace_distance, with_fixed_signs

Watch = Callable[[Matrix], None]

#: A loss of this many times the smallest so far halves the later steps.
_RISEN = 2.0
_PRODUCT_BYTES = 3 * 2**17  # what BLAS multiplies without copying it first


@dataclass(frozen=True)
class Representation:
    """The basis that many related regressions share: ``y_k = X_k U b_k``.

    Attributes
    ----------
    basis : array (n, r)
        U, orthonormal; the direction along which the tasks' coefficients are largest comes first.
    weights : dict of site name to float
        How much each site counted for the gradient, on average over the iterations.
    loss : float
        Mean squared residual per degree of freedom: the variance of the noise, where the model holds.
    iterations : int
        Number of iterations done.
    moved : float
        How far U moved in the last of them, ``SD_F / sqrt(r)``.
    moment : array (r, r)
        Second moment of the tasks' true ``b_k`` in this basis: without that of noise.
    free : float
        Degrees of freedom that all sites' rows leave to learn U from.
    resilience : structured array or None
        With an aggregator: how far malicious sites can have moved the last gradient.
    doubtful : tuple of str
        Sites that repeat a gradient; all, where the gradients form two groups: which one is honest is not known.
    """

    basis: Matrix
    weights: dict[str, float]
    loss: float
    iterations: int
    moved: float
    moment: Matrix
    free: float
    resilience: NDArray[np.void] | None = None
    doubtful: tuple[str, ...] = ()

    @classmethod
    def of(cls, U: Matrix, weights: dict[str, float], found: FitMoments, iterations: int, moved: float) -> Self:
        """Return the representation along the axes of the tasks' coefficients, where their moment is diagonal."""
        axes = np.linalg.eigh((found.moment + found.moment.T) / 2)[1][:, ::-1]
        basis = with_fixed_signs(orthonormalize(U @ axes))
        turn = U.T @ basis
        return cls(basis, weights, found.loss, iterations, moved, turn.T @ found.true_moment @ turn, found.free)


@step("few_shot.gradient", reveals="sums", fewest=rows_of_descent)
def local_gradient(
    site: Site, U: Matrix, intercept: bool = False, fit_part: Index = 0, descend_part: Index = 0, parts: Count = 1
) -> dict[str, Any]:
    """Leaves the site: the gradient (n, r), sums of ``b_k b_k'`` (r, r) and squared residuals, n, degrees of freedom.

    Every ``b_k`` is fitted on one part of the rows; the gradient ``sum_k X_k' (X_k U b_k - y_k) b_k'`` is that of
    another part. A task with no more rows than unknowns is fitted exactly, whatever U is: it is left out.
    """
    tasks, fit, descend = TaskRows.of(site), slice(fit_part, None, parts), slice(descend_part, None, parts)
    n, r = U.shape
    unknowns = r + intercept
    columns = np.asfortranarray(U)  # fastest for the product of a tall table and a narrow matrix
    gradient, loadings, sizes, loss = np.zeros((n, r)), np.zeros((len(tasks), r)), np.zeros(len(tasks)), 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers so large that the policy refuses the reply
        for block in tasks.blocks(least_rows(unknowns, parts)):
            T = _tall_product(block.X.reshape(-1, n), columns).reshape(len(block.X), -1, r)
            b, a = fitted(T[:, fit], block.y[:, fit], intercept)
            residual = (T[:, descend] @ b[:, :, None])[:, :, 0] - block.y[:, descend]
            if intercept:
                residual += a[:, None]
                if fit == descend:  # the mean is zero but for rounding, which features far from zero would magnify
                    residual -= residual.mean(axis=1, keepdims=True)
            slopes = (residual[:, None, :] @ block.X[:, descend])[:, 0]  # X_k' (X_k U b_k - y_k) as rows
            gradient += slopes.T @ b
            loss += float(np.vdot(residual, residual))
            loadings[block.tasks], sizes[block.tasks] = b, residual.shape[1]
        moment = (loadings * sizes[:, None]).T @ loadings
    rows, used = int(sizes.sum()), int(np.count_nonzero(sizes))
    free = rows - (used * unknowns if fit == descend else 0)
    return {"gradient": gradient, "moment": moment, "loss": loss, "rows": rows, "free": free}


def _tall_product(X: Matrix, U: Matrix) -> Matrix:
    """Return ``X @ U`` (N, r) for a long table X (N, n) and few columns U (n, r), a part of the rows at a time."""
    T = np.empty((len(X), U.shape[1]))
    rows = max(1, _PRODUCT_BYTES // (8 * max(1, X.shape[1])))
    for first in range(0, len(X), rows):
        part = slice(first, first + rows)
        np.matmul(X[part], U, out=T[part])
    return T


@dataclass(frozen=True)
class GradientRound:
    """One round's gradient (n, r) and second moment (r, r) per row, as the sites' replies are combined.

    `losses` are per degree of freedom, by site or by set of sites; `weights` those of the sites in the gradient;
    `bounds` those of sigma_1^2, where they are known from elsewhere than `moment`; `metrics` go to the record.
    """

    gradient: Matrix
    moment: Matrix
    losses: Mapping[Any, float]
    weights: Mapping[str, float]
    bounds: tuple[float, float] = (0.0, np.inf)
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Descent:
    """The coordinator's steps ``U <- QR(U - eta / sigma_1^2 gradient)``, with gradient and sigma_1 per row.

    Per row, the same step serves sites with rows of all tasks and sites with tasks of their own. ``sigma_1^2`` is the
    largest eigenvalue of ``sum_k m_k b_k b_k' / sum_k m_k``, times that of the features' second moment.

    Parameters
    ----------
    step_size : float
        eta: 0.5 in the theory; 1 is twice as fast, and safe.
    spread : float
        Largest second moment of the features, 1 in the paper.
    """

    step_size: float
    spread: float
    shorter: float = field(default=1.0, init=False)  # factor on the step above, after a loss that rose
    _best: dict[Any, float] = field(default_factory=dict, init=False)

    def run(
        self,
        federation: Federation,
        U: Matrix,
        combined: Callable[..., GradientRound],
        iterations: int,
        tol: float,
        sample_split: bool,
        watch: Watch,
    ) -> tuple[Matrix, dict[str, float], int, float]:
        """Descend from `U` (n, r): lines 11 to 20 of Algorithm 1, and lines 2 to 14 of Algorithm 3.

        ``combined(U=U, **parts)`` requests the gradients and combines them. Returns the last U, the sums of the sites'
        weights, the number of iterations, and how far the last one moved U.
        """
        weights: dict[str, float] = defaultdict(float)
        done, moved = 0, np.inf
        watch(U)
        for t in federation.rounds(iterations):
            # Of the 2 T + 1 parts of a sample split, the start has part 0 and each half of an iteration its own.
            parts = {"fit_part": 0, "descend_part": 0, "parts": 1}
            if sample_split:
                parts = {"fit_part": 1 + t, "descend_part": 1 + iterations + t, "parts": 2 * iterations + 1}
            found = combined(U=U, **parts)
            self.shorten(found.losses)
            U, moved = self.moved(U, found.gradient, found.moment, found.bounds)
            done = t + 1
            for site, weight in found.weights.items():
                weights[site] += weight
            federation.log(loss=float(np.median(list(found.losses.values()))), moved=moved, **found.metrics)
            watch(U)
            if moved <= tol:
                federation.stop(f"converged: the subspace moved by {moved:.1e}, at most {tol:g}", converged=True)
        return U, weights, done, moved

    def moved(
        self, U: Matrix, gradient: Matrix, moment: Matrix, bounds: tuple[float, float] = (0.0, np.inf)
    ) -> tuple[Matrix, float]:
        """Return the next U, and how far it is from this one: ``SD_F / sqrt(r)`` of a step of full length."""
        sigma = float(np.linalg.eigvalsh((moment + moment.T) / 2).max())
        curvature = self.spread * float(np.clip(sigma, *bounds))
        if curvature == 0.0 and not gradient.any():
            return U, 0.0  # targets that are all zero fit any representation
        if not curvature > 0.0:
            raise InputError(
                "the second moment of the tasks' coefficients is not positive: rows or targets are all zero, or a site "
                "sends false values, which takes an aggregator"
            )
        following = orthonormalize(U - self.shorter * self.step_size / curvature * gradient, complete=True)
        return following, subspace_distance(U, following) / np.sqrt(U.shape[1]) / self.shorter

    def shorten(self, losses: Mapping[Any, float]) -> None:
        """Halve the steps if most losses, by site or by set of sites, have risen twofold above their smallest.

        The full step is safe for features that are alike in all tasks. Where they are not it may be too long.
        """
        times = [loss / self._best[who] for who, loss in losses.items() if self._best.get(who, 0.0) > 0.0]
        if times and np.median(times) > _RISEN:
            self.shorter, self._best = self.shorter / 2, dict(losses)
        for who, loss in losses.items():
            self._best[who] = min(loss, self._best.get(who, loss))


def altgdmin(
    fed: Federation,
    *,
    rank: int | None,
    n_columns: int,
    step_size: float = 1.0,
    iterations: int = 100,
    tol: float = 1e-8,
    truncation: float = 9.0,
    power_iterations: int = 10,
    max_rank: int = 16,
    intercept: bool = False,
    sample_split: bool = False,
    tasks: Tasks | None = None,
    watch: Watch = lambda U: None,
) -> Representation:
    """Learn the representation of all sites' tasks. Parameters not listed are those of `FedFewShotRegressor`.

    Parameters
    ----------
    rank : int or None
        r. ``None``: as many of `max_rank` directions as the tasks use by more than noise explains.
    n_columns : int
        n.
    truncation : float
        The paper's ``9 kappa^2 mu^2`` is unknown, and 9 is better.
    sample_split : bool
        Use fresh rows for the start and for both halves of each iteration, as the proofs do. All rows each time is
        far better.
    tasks : Tasks, optional
        The result of `agree_on_tasks`, where it is known already.
    watch : callable, optional
        Receives U after the start and after every iteration.
    """
    # Line 3: the rows are cut into 2 T + 1 parts, or all of them are used each time.
    tasks = tasks or agree_on_tasks(fed, intercept=intercept)
    fed, parts = known_sites(fed, tasks), 2 * iterations + 1 if sample_split else 1
    columns = largest_rank(tasks, max_rank, n_columns, intercept, parts) if rank is None else rank
    check_rank(tasks, 1 if rank is None else rank, n_columns, intercept, parts)
    # Lines 5 to 9: the truncation threshold, and the leading left singular vectors of Theta_0.
    counts = np.array([rows.sum() for _, rows in tasks.held.values()], dtype=np.float64)
    power, spread = (float(np.average(list(of.values()), weights=counts)) for of in (tasks.power, tasks.spread))
    payload = {"alpha": truncation * power, "intercept": intercept, "parts": parts}
    U = summed_start(fed, StartPlan(columns, n_columns, tasks, power_iterations, payload))
    if rank is None:
        U = chosen_directions(fed, U, tasks, intercept, parts, max_rank, resilient=False)
    fed.log(start="the power method on all rows", rank=U.shape[1])
    # Lines 11 to 20. Each site minimises over its b_k and sends its part of the gradient.
    workers = eligible_sites(fed, tasks, U.shape[1], intercept, parts)

    def summed(**payload: Any) -> GradientRound:
        total = workers.sum(local_gradient, intercept=intercept, **payload)
        rows, loss = max(1, total["rows"]), float(total["loss"]) / max(1, total["free"])
        weights = dict.fromkeys(total.sites, 1.0)
        return GradientRound(total["gradient"] / rows, total["moment"] / rows, {total.sites: loss}, weights)

    descent = Descent(step_size, spread)
    U, answered, done, moved = descent.run(fed, U, summed, iterations, tol, sample_split, watch)
    share = max(1.0, sum(answered.values()))
    weights = {site: count / share for site, count in answered.items()}
    return Representation.of(U, weights, fit_moments(workers, U, intercept, resilient=False), done, moved)

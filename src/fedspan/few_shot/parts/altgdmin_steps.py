"""What AltGDmin and Byz-AltGDmin share: the site's side of an iteration, and the step that the coordinator takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Site, step
from fedspan.few_shot.parts.disclosure_counts import of_descent
from fedspan.few_shot.parts.fit_moments import FitMoments
from fedspan.few_shot.parts.task_rows import Part, TaskRows, descent_sums
from fedspan.linalg import orthonormalize, subspace_distance, with_fixed_signs

Matrix = NDArray[np.float64]

#: A loss that is this many times the smallest so far makes the steps from there on half as long.
_RISEN = 2.0


@dataclass(frozen=True)
class Representation:
    """What many related regressions share: ``y_k = X_k U b_k``.

    Attributes
    ----------
    basis : array (n, r)
        U, orthonormal; the direction along which the tasks' coefficients are largest comes first.
    weights : dict of site name to float
        How much each site counted for the gradient, on average over the iterations.
    loss : float
        Mean squared residual per degree of freedom: the variance of the noise, where the model holds.
    iterations : int
        How many were done.
    moved : float
        How far U moved in the last of them, ``SD_F / sqrt(r)``.
    moment : array (r, r)
        Second moment of the tasks' true ``b_k`` in this basis: noise is taken off.
    free : float
        Degrees of freedom that all sites' rows leave to learn U from.
    """

    basis: Matrix
    weights: dict[str, float]
    loss: float
    iterations: int
    moved: float
    moment: Matrix
    free: float

    @classmethod
    def of(cls, U: Matrix, weights: dict[str, float], found: FitMoments, iterations: int, moved: float) -> Self:
        """Return what was learned, along the axes of the tasks' coefficients."""
        basis = by_importance(U, found.moment)
        turn = U.T @ basis
        return cls(basis, weights, found.loss, iterations, moved, turn.T @ found.true_moment @ turn, found.free)


@step("few_shot.gradient", reveals="sums", fewest=of_descent)
def local_gradient(
    site: Site, U: Matrix, intercept: bool = False, fit_part: int = 0, descend_part: int = 0, parts: int = 1
) -> dict[str, Any]:
    """Leaves the site: gradient (n, r), second moment of its ``b_k`` (r, r), squared residuals, rows, freedom.

    All are sums over its rows; the last number counts the degrees of freedom.
    """
    found = descent_sums(TaskRows.of(site), U, intercept, Part(fit_part, parts), Part(descend_part, parts))
    return {
        "gradient": found.gradient,
        "moment": found.moment,
        "loss": found.loss,
        "rows": found.rows,
        "free": found.free,
    }


@dataclass
class Descent:
    """The coordinator's step ``U <- QR(U - eta / sigma_1^2 gradient)``, with gradient and sigma_1 per row.

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
    shorter: float = field(default=1.0, init=False)  # than the step above, after a loss that rose
    _best: dict[Any, float] = field(default_factory=dict, init=False)

    def moved(
        self, U: Matrix, gradient: Matrix, moment: Matrix, bounds: tuple[float, float] = (0.0, np.inf)
    ) -> tuple[Matrix, float]:
        """Return the next U, and how far it is from this one: ``SD_F / sqrt(r)`` of a step of full length.

        `bounds` are those of sigma_1^2, where they are known from elsewhere than `moment`.
        """
        sigma = float(np.linalg.eigvalsh((moment + moment.T) / 2).max())
        curvature = self.spread * float(np.clip(sigma, *bounds))
        if curvature == 0.0 and not gradient.any():
            return U, 0.0  # targets that are all zero fit any representation
        if not curvature > 0.0:
            raise InputError(
                "the second moment of the tasks' coefficients is not positive: rows or targets are all zero, or a site "
                "sends nonsense, which takes an aggregator"
            )
        following = orthonormalize(U - self.shorter * self.step_size / curvature * gradient, complete=True)
        return following, subspace_distance(U, following) / np.sqrt(U.shape[1]) / self.shorter

    def watch(self, losses: Mapping[Any, float]) -> None:
        """Take note of the losses, by whoever has them, and shorten the steps where most of them have risen twofold.

        The full step is safe for features that are alike in all tasks. Where they are not it may be too long.
        """
        times = [loss / self._best[who] for who, loss in losses.items() if self._best.get(who, 0.0) > 0.0]
        if times and np.median(times) > _RISEN:
            self.shorter, self._best = self.shorter / 2, dict(losses)
        for who, loss in losses.items():
            self._best[who] = min(loss, self._best.get(who, loss))


def by_importance(U: Matrix, moment: Matrix) -> Matrix:
    """Return the basis (n, r) of the same span along which the second moment (r, r) of the ``b_k`` is diagonal."""
    axes = np.linalg.eigh((moment + moment.T) / 2)[1][:, ::-1]
    return with_fixed_signs(orthonormalize(U @ axes))


def split_payload(t: int, iterations: int, sample_split: bool) -> dict[str, int]:
    """Return which parts of the rows iteration `t` (from 0) uses: of 2 T + 1, part 0 for the start, one each after."""
    if not sample_split:
        return {"fit_part": 0, "descend_part": 0, "parts": 1}
    return {"fit_part": 1 + t, "descend_part": 1 + iterations + t, "parts": 2 * iterations + 1}

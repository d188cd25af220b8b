"""Rows from sums over all rows: FedDL's totals are equations for the rows, and more than enough for few rows.

In every round the coordinator learns ``sum_i k(x_i, y_j) (x_i - y_j)`` for each landmark, m numbers of each. Before the
first round it learns the moments and sums of cosines and sines. A secure sum hides the parts of the sites, and not
these totals. The attack fits all rows together to them by least squares (L-BFGS), from a random start or from the rows
of trilateration. Rows come out in any order, because a sum has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize

from fedspan.arrays import Array, Matrix
from fedspan.landmarks.parts.principal_view import PrincipalView
from fedspan.linalg.kernels.gaussian_kernel import squared_distances

#: Weights of the other equations beside those of the pulls: moments, cosines and sines (of their mean), distances.
_MOMENTS, _WAVES, _DISTANCES = 100.0, 5.0, 30.0
#: Squared misfit, relative to the pulls, below which rows have the sums to rounding.
_EXACT = 1e-20
#: The most multiplications of one attack.
WORK = 1e11
#: The most numbers (rows times columns) for which an audit tries the attack.
MOST_UNKNOWNS = 20_000
#: Pulls that are fitted for each row: more of them add nothing.
_PULLS = 30


@dataclass(frozen=True)
class Sums:
    """What FedDL's coordinator knows of all rows together; rows are reduced to ``(x - centre) / scale``.

    Attributes
    ----------
    n, gamma : int, float
        The number of rows, and the parameter of the kernel of reduced rows.
    centre, scale, variance : array (m,), float, array (m,)
        The moments; the variances are of reduced rows.
    landmarks, pulls : array (M, m)
        Reduced landmarks of all rounds, and the rows' pull at each.
    directions, waves : array (F, m), array (2, F)
        Random directions w, and the sums of cos w'x and sin w'x.
    view : PrincipalView, optional
        The sums are of rows as this shows them: m axes instead of columns.
    """

    n: int
    centre: Matrix
    scale: float
    variance: Matrix
    gamma: float
    landmarks: Matrix = field(repr=False)
    pulls: Matrix = field(repr=False)
    directions: Matrix = field(repr=False)
    waves: Matrix = field(repr=False)
    view: PrincipalView | None = field(default=None, repr=False)

    def seen(self, rows: Array | None) -> Array | None:
        """Return rows or landmarks in the coordinates that the sums are about."""
        return rows if rows is None or self.view is None else (rows - self.view.mean) @ self.view.axes.T

    @property
    def unknowns(self) -> int:
        """Numbers that the rows have."""
        return self.n * len(self.centre)

    @property
    def equations(self) -> int:
        """Numbers that were received."""
        return self.pulls.size + self.waves.size + 2 * len(self.centre)


@dataclass(frozen=True)
class Fitted:
    """Rows (n, m) that fit the sums, in any order, and the share of the pulls that they do not explain."""

    rows: Matrix
    misfit: float
    evaluations: int


def small_enough(sums: Sums) -> bool:
    """Return whether an audit attacks these sums."""
    return sums.unknowns <= MOST_UNKNOWNS and sums.equations > sums.unknowns


def rows_from_sums(
    sums: Sums,
    *,
    start: Array | None = None,
    distances: Array | None = None,
    landmarks: Array | None = None,
    work: float = WORK,
    seed: int = 0,
) -> Fitted:
    """Return rows that have the sums which were received.

    Parameters
    ----------
    sums : Sums
    start : array (n, m), optional
        Approximate rows. Default: normal draws with the moments.
    distances, landmarks : array (n, n_y), array (n_y, m), optional
        Of rows to landmarks, where these were posted, too.
    work : float
        Multiplications after which the search ends. Default: those of about a minute.
    seed : int, default=0
        Of the start, and of which pulls are fitted.
    """
    rng = np.random.default_rng(seed)
    start, landmarks = sums.seen(start), sums.seen(landmarks)
    reduced = None if start is None else (np.asarray(start, dtype=np.float64) - sums.centre) / sums.scale
    Z = rng.standard_normal((sums.n, len(sums.centre))) * np.sqrt(sums.variance) if reduced is None else reduced
    loss = _Loss(sums, rng, distances, landmarks)
    evaluations = max(1, int(work / loss.cost))

    def flat(z: Matrix) -> tuple[float, Matrix]:
        value, gradient = loss(z.reshape(Z.shape))
        return value, gradient.ravel()

    exact = _EXACT * float(np.sum(loss.A**2))

    def stop_if_exact(intermediate_result: Any) -> None:
        if intermediate_result.fun < exact:
            raise StopIteration

    value, left = np.inf, evaluations
    while left > 0:  # a restart forgets misleading curvature
        options = {"maxcor": 50, "maxiter": 5000, "maxfun": left, "ftol": 0.0, "gtol": 0.0}
        found = minimize(flat, Z.ravel(), jac=True, method="L-BFGS-B", options=options, callback=stop_if_exact)
        Z, left, before, value = found.x.reshape(Z.shape), left - found.nfev, value, float(found.fun)
        if value < exact or not value < 0.99 * before:
            break
    rows = sums.centre + sums.scale * Z
    return Fitted(rows if sums.view is None else sums.view.lifted(rows), loss.misfit(Z), evaluations - max(0, left))


class _Loss:
    """The squared differences between the sums of rows Z and those received, and their gradient."""

    def __init__(self, sums: Sums, rng: np.random.Generator, distances: Array | None, landmarks: Array | None) -> None:
        some = rng.permutation(len(sums.pulls))[: _PULLS * max(sums.n, 20)]
        self.sums, self.Y, self.A = sums, sums.landmarks[some], sums.pulls[some]
        self.B2 = self.marks = None
        if distances is not None and landmarks is not None:
            self.marks = (np.asarray(landmarks, dtype=np.float64) - sums.centre) / sums.scale
            self.B2 = (np.asarray(distances, dtype=np.float64) / sums.scale) ** 2

    @property
    def cost(self) -> float:
        """Multiplications of one evaluation."""
        marks = 0 if self.marks is None else len(self.marks)
        return float(self.sums.unknowns * (4 * len(self.Y) + 2 * len(self.sums.directions) + 2 * marks))

    def __call__(self, Z: Matrix) -> tuple[float, Matrix]:
        parts = [self._pulls(Z), self._moments(Z)]
        parts += [self._waves(Z)] if len(self.sums.directions) else []
        parts += [self._distances(Z)] if self.B2 is not None else []
        return sum(value for value, _ in parts), np.sum([gradient for _, gradient in parts], axis=0)

    def misfit(self, Z: Matrix) -> float:
        return float(np.sqrt(self._pulls(Z)[0] / max(np.sum(self.A**2), np.finfo(float).tiny)))

    def _pulls(self, Z: Matrix) -> tuple[float, Matrix]:
        Y, gamma = self.Y, self.sums.gamma
        K = np.exp(-gamma * squared_distances(Z, Y))
        R = K.T @ Z - K.sum(axis=0)[:, None] * Y - self.A
        S = K * (Z @ R.T - np.vecdot(Y, R))
        gradient = K @ R - 2 * gamma * (S.sum(axis=1)[:, None] * Z - S @ Y)
        return float(np.sum(R**2)), 2 * gradient

    def _moments(self, Z: Matrix) -> tuple[float, Matrix]:
        mean, spread = Z.mean(axis=0), np.mean(Z**2, axis=0) - self.sums.variance
        gradient = 2 * mean + 4 * spread * Z
        return _MOMENTS * float(mean @ mean + spread @ spread), _MOMENTS * gradient / len(Z)

    def _waves(self, Z: Matrix) -> tuple[float, Matrix]:
        V = Z @ self.sums.directions.T
        cos, sin = np.cos(V), np.sin(V)
        apart = np.stack([cos.sum(axis=0), sin.sum(axis=0)]) - self.sums.waves
        weight = _WAVES / apart.shape[1]
        gradient = (apart[1] * cos - apart[0] * sin) @ self.sums.directions
        return weight * float(np.sum(apart**2)), 2 * weight * gradient

    def _distances(self, Z: Matrix) -> tuple[float, Matrix]:
        assert self.marks is not None
        apart = squared_distances(Z, self.marks) - self.B2
        gradient = apart.sum(axis=1)[:, None] * Z - apart @ self.marks
        return _DISTANCES * float(np.sum(apart**2)), 4 * _DISTANCES * gradient

"""Trilateration: rows from their distances to known landmarks, by linear least squares.

With ``d_ij = ||x_i - y_j||`` and ``ybar`` the mean of the landmarks

    t_ij = -(d_ij^2 - ||y_j - ybar||^2 - q_i) / 2 = (x_i - ybar)'(y_j - ybar),   q_i = ||x_i - ybar||^2

are linear equations for x, and q_i is the mean of the first two terms over j. With ``Y - ybar = U S V'`` the solution
of least norm is ``x = ybar + V S^-1 U' t``. It is the row itself where the landmarks span all columns, and its
projection on their affine span otherwise.

Rounded or noisy distances contain noise alone in directions in which landmarks hardly extend, so that the plain
solution fails and rows seem protected. These directions are damped by ``w = s^4 / (s^4 + cut^4)`` with s = S / S_1.
This is the best linear filter if rows extend where landmarks do, as they should. `cut` is found without the rows: parts
of the landmarks are left out, and the distances to them predicted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedspan.arrays import Array, Matrix
from fedspan.checks import real_number
from fedspan.errors import InputError

#: Directions in which landmarks extend less than this part of the widest one are noise, even in double precision.
THINNEST = 1e-10
CUTS = (0.0, *np.geomspace(1e-8, 1.0, 57).tolist())
_FOLDS = 5
#: The most rows by which the cut is found.
_TRIED_ROWS = 400
_BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Rebuilt:
    """Rows that trilateration found, and what is known of them without the truth.

    Attributes
    ----------
    rows : array (n, m)
    n_landmarks, n_columns, directions : int
        The landmarks extend in at most n_landmarks - 1 directions, and in at most n_columns.
    cut, effective : float
        Directions narrower than `cut` times the widest are damped; `effective` is the sum of their weights.
    outside : float
        Root of the share of the rows' squared distance to the landmarks' mean that the rebuilt rows do not have. The
        attacker knows it from the distances; of exact distances it is close to the relative error.
    misfit : float
        Relative difference between the equations' two sides: 0 where there are no more equations than unknowns.
    coordinates, axes, noise : array (n, directions), array (directions, m), array (directions,)
        Coordinates of the rows along the axes, not damped, and the variance of their errors that `cut` implies.
    centre : array (m,)
        Mean of the landmarks.
    """

    rows: Matrix
    n_landmarks: int
    n_columns: int
    directions: int
    cut: float
    effective: float
    outside: float
    misfit: float
    coordinates: Matrix = field(repr=False)
    axes: Matrix = field(repr=False)
    noise: Matrix = field(repr=False)
    centre: Matrix = field(repr=False)

    @property
    def determined(self) -> bool:
        """Whether the landmarks extend in as many directions as there are columns, so that distances fix the row."""
        return self.directions >= self.n_columns


def trilaterate(B: Array, Y: Array, *, cut: float | str = "auto") -> Rebuilt:
    """Rebuild rows from their distances B (n, n_y) to landmarks Y (n_y, m).

    Parameters
    ----------
    B : array (n, n_y)
        Exact, rounded or noisy.
    Y : array (n_y, m)
    cut : "auto" or float, default="auto"
        Directions below this part of the widest one are damped; 0 is plain inversion, and ``"auto"`` the value that
        predicts the distances to left-out landmarks best.

    Returns
    -------
    Rebuilt
        Memory: a few times n (n_y + m) numbers.

    Examples
    --------
    >>> Y = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> X = np.array([[3.0, 4.0], [0.5, -2.0]])
    >>> B = np.linalg.norm(X[:, None] - Y, axis=2)
    >>> trilaterate(B, Y).rows.round(9)
    array([[ 3. ,  4. ], [ 0.5, -2. ]])
    """
    B, Y = np.asarray(B), np.asarray(Y, dtype=np.float64)
    _check(B, Y)
    if cut == "auto":
        cut = _best_cut(B, Y)
    cut = real_number("cut", cut, least=0, most=1, why=", or 'auto'")
    known = _Landmarks(Y)
    weights = known.weights(cut)
    n, (axes, m) = len(B), known.V.shape
    coordinates, rows, totals = np.empty((n, axes)), np.empty((n, m)), np.zeros(4)
    for start in range(0, n, _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        T, q = known.equations(B[part])
        TU = T @ known.U
        coordinates[part] = TU / known.S
        rows[part] = known.centre + (coordinates[part] * weights) @ known.V
        inside = np.vecdot(coordinates[part], coordinates[part] * weights**2)
        totals += np.maximum(q - inside, 0).sum(), q.sum(), ((T - (TU * weights) @ known.U.T) ** 2).sum(), (T**2).sum()
    outside, spread, missed, size = np.maximum(totals, 0)
    return Rebuilt(
        rows,
        n_landmarks=len(Y),
        n_columns=m,
        directions=axes,
        cut=cut,
        effective=float(weights.sum()),
        outside=float(np.sqrt(outside / spread)) if spread else 0.0,
        misfit=float(np.sqrt(missed / size)) if size else 0.0,
        coordinates=coordinates,
        axes=known.V,
        noise=known.S**2 / len(Y) * (cut / known.relative) ** 4,
        centre=known.centre,
    )


class _Landmarks:
    """Landmarks as equations: their centre, and the decomposition of the landmarks about it."""

    def __init__(self, Y: Matrix) -> None:
        self.centre = Y.mean(axis=0)
        D = Y - self.centre
        self.squares = np.vecdot(D, D)
        U, S, V = np.linalg.svd(D, full_matrices=False)
        kept = max(THINNEST * S[0], np.finfo(float).tiny) < S
        self.U, self.S, self.V = U[:, kept], S[kept], V[kept]
        self.relative = self.S / S[0] if kept.any() else self.S

    def equations(self, B: Array) -> tuple[Matrix, Matrix]:
        """Return ``t`` (n, n_y) and ``q`` (n,)."""
        B2 = np.square(B, dtype=np.float64) - self.squares
        q = B2.mean(axis=1)
        return -0.5 * (B2 - q[:, None]), q

    def weights(self, cut: float) -> Matrix:
        fourth = self.relative**4
        return np.asarray(fourth / (fourth + cut**4))


def _best_cut(B: Array, Y: Matrix) -> float:
    """Return the cut by which rows rebuilt from some landmarks predict the distances to the others best."""
    if len(Y) < 2 * _FOLDS:
        return 0.0  # too few to leave any out
    B = B[np.linspace(0, len(B) - 1, min(len(B), _TRIED_ROWS)).astype(int)]
    order = np.random.default_rng(0).permutation(len(Y))
    errors = np.zeros(len(CUTS))
    for fold in range(_FOLDS):
        out, kept = order[fold::_FOLDS], np.delete(order, slice(fold, None, _FOLDS))
        known = _Landmarks(Y[kept])
        T, q = known.equations(B[:, kept])
        D = Y[out] - known.centre
        wanted = -0.5 * (np.square(B[:, out], dtype=np.float64) - np.vecdot(D, D) - q[:, None])
        C, G = T @ known.U / known.S, known.V @ D.T
        errors += [float(((wanted - (C * known.weights(cut)) @ G) ** 2).sum()) for cut in CUTS]
    return float(CUTS[int(np.argmin(errors))])


def _check(B: Array, Y: Matrix) -> None:
    if Y.ndim != 2 or len(Y) < 2:
        raise InputError(f"Y has the shape {Y.shape}, and must have at least two landmarks as rows")
    if B.ndim != 2 or B.shape[1] != len(Y) or B.dtype.kind not in "fiu":
        raise InputError(
            f"B has the shape {B.shape} and the type {B.dtype}, and must have one number for each of the {len(Y)} "
            "landmarks in every row"
        )
    if not (np.isfinite(B).all() and np.isfinite(Y).all()):
        raise InputError("distances and landmarks must be finite numbers")

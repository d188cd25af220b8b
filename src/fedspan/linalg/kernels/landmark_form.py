"""Distances between rows of which only the distances to landmarks are known, as low-rank forms.

Every method gives ``d_ij = offset_i + offset_j + sum_l signs_l f_il f_jl`` for i != j, with few columns l. That is
enough for a neighbour search, and never an n x n array. B (n, n_y) holds the distances of rows to landmarks Y:

- ``"coordinates"``: B determines a row's projection c on the landmarks' affine span and its squared distance h to that
  span, so ``d^2 = ||c_i - c_j||^2 + h_i + h_j``: exact where the rows lie in the span, and on average where the parts
  outside of it point in random directions.
- ``"squared"``: ``B2 W2^+ B2'`` with squared distances B2, W2 between rows and landmarks and among landmarks.
- ``"paper"``: ``B W^+ B'`` with distances themselves, Algorithm 2 of "Federated t-SNE and UMAP for distributed data
  visualization". W is indefinite, and the form loses many nearest neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedspan.arrays import Array, Matrix
from fedspan.checks import one_of
from fedspan.linalg.array_backend import namespace, to_device, to_numpy
from fedspan.linalg.kernels.gaussian_kernel import squared_distances

METHODS = ("coordinates", "squared", "paper")
#: With fewer landmarks h depends more on the landmarks than on the rows, and plain coordinates are better.
FEWEST_FOR_RESIDUALS = 25
#: Directions in which the landmarks extend less than this share of the widest one are left out: distances in single
#: precision do not determine them. The rows' extent there is in h.
THIN = 1e-4
#: No row that counts in the rows' spread has a larger distance, in units of that spread: n rows are within sqrt(n) of
#: their mean.
FARTHEST = 1e6
#: The least ratio of nearest distances to their rounding errors: below it, neighbours are confused.
FINE_ENOUGH = 300.0
_BLOCK_ROWS = 2048
#: The same on a graphics card.
_CARD_BLOCK_ROWS = 65536


@dataclass(frozen=True)
class LowRankDistances:
    """Distances ``d_ij = offset_i + offset_j + sum_l signs_l f_il f_jl``, or their squares.

    `factor` is (n, r), `signs` (r,), `offset` (n,), all in single or all in double precision; `squared` is whether d is
    a square.
    """

    factor: Array
    signs: Array
    offset: Array
    squared: bool

    def __len__(self) -> int:
        return len(self.factor)

    def rows(self, part: Any) -> LowRankDistances:
        """Return the form of some rows."""
        return LowRankDistances(self.factor[part], self.signs, self.offset[part], self.squared)

    def fineness(self, part: Any, nearest: Array) -> float:
        """Return the median ratio of the values of the `nearest` (p, k) of a `part` to their rounding errors.

        The rounding error of a sum of large terms is their size times the precision of the numbers.
        """
        own, other = self.factor[part][:, None], self.factor[nearest]
        offsets = self.offset[part][:, None] + self.offset[nearest]
        values = offsets + np.vecdot(own * self.signs, other)
        lengths = [np.linalg.norm(factor, axis=2) for factor in (own, other)]
        sizes = offsets + np.abs(self.signs).max(initial=0) * lengths[0] * lengths[1]
        rounding = np.finfo(self.factor.dtype).eps * sizes
        return float(np.median(values / np.maximum(rounding, np.finfo(np.float32).tiny)))

    def as_distances(self, values: Array) -> Array:
        """Return distances for values of the form; values that rounding made negative become 0."""
        values = np.maximum(values, 0)
        return np.asarray(np.sqrt(values) if self.squared else values)


@dataclass(frozen=True)
class LandmarkForm:
    """The map from distances to landmarks to a low-rank form; it depends on the landmarks alone.

    `squares` (n_y,) are ``||y_j - ybar||^2``, `residuals` is whether h counts (``"coordinates"`` only).
    """

    method: str
    matrix: Matrix
    signs: Matrix
    squares: Matrix
    residuals: bool

    def of(self, B: Array, kind: Any = np.float32, device: str | None = None) -> LowRankDistances:
        """Return the form of rows with distances B (n, n_y), computed in double precision, as numbers of `kind`.

        `device` is the torch name of the device to compute on (default: numpy).
        """
        factor = np.empty((len(B), len(self.signs)), dtype=kind)
        offset = np.zeros(len(B), dtype=kind)
        matrix, squares = to_device(self.matrix, device), to_device(self.squares, device)
        xp = namespace(matrix)
        size = _BLOCK_ROWS if device is None else _CARD_BLOCK_ROWS
        for start in range(0, len(B), size):
            part = slice(start, start + size)
            there = xp.asarray(to_device(B[part], device), dtype=xp.float64)
            found, far = self._block(there, matrix, squares)
            sent = xp.float32 if kind == np.float32 else xp.float64
            factor[part] = to_numpy(xp.asarray(found, dtype=sent))
            if far is not None:
                offset[part] = to_numpy(far)
        return self.form_of(factor, offset)

    def form_of(self, factor: Array, offset: Array) -> LowRankDistances:
        """Return the form of rows whose factor and offset are known."""
        return LowRankDistances(factor, self.signs.astype(factor.dtype), offset, self.method != "paper")

    def _block(self, B: Any, matrix: Any, squares: Any) -> tuple[Any, Any]:
        """Return factor and offset (None: 0) of some rows, on the device of all arguments."""
        xp = namespace(B)
        if self.method == "paper":
            return B @ matrix, None
        B2 = B**2
        if self.method == "squared":
            return B2 @ matrix, None
        T = -0.5 * (B2 - squares)  # (x - ybar)'(y_j - ybar), up to a constant of each row
        C = (T - xp.mean(T, axis=1, keepdims=True)) @ matrix
        inside = xp.vecdot(C, C)
        if not self.residuals:
            return C, inside
        return C, xp.maximum(xp.mean(B2, axis=1) - xp.mean(squares), inside)  # ||x - ybar||^2 = ||c||^2 + h


def landmark_form(Y: Array, method: str = "coordinates", residuals: bool | None = None) -> LandmarkForm:
    """Return the form that `method` makes of distances to the landmarks Y (n_y, m), about any reference.

    `residuals` is whether ``"coordinates"`` adds h. Default: with 25 landmarks or more.
    """
    one_of("method", method, METHODS)
    D = np.asarray(Y, dtype=np.float64) - np.mean(Y, axis=0, dtype=np.float64)
    squares = np.asarray(np.vecdot(D, D))
    if method == "coordinates":
        U, S, _ = np.linalg.svd(D, full_matrices=False)
        kept = THIN * max(S[0], np.finfo(float).tiny) < S
        signs = np.full(int(kept.sum()), -2.0)
        if residuals is None:
            residuals = len(D) >= FEWEST_FOR_RESIDUALS
        return LandmarkForm(method, U[:, kept] / S[kept], signs, squares, residuals)
    W = squared_distances(D, D)
    np.fill_diagonal(W, 0.0)
    values, vectors = np.linalg.eigh(np.sqrt(W) if method == "paper" else W)
    thinnest = THIN**2 if method == "squared" else 1e-6
    kept = np.abs(values) > thinnest * max(np.abs(values).max(), np.finfo(float).tiny)
    return LandmarkForm(method, vectors[:, kept] / np.sqrt(np.abs(values[kept])), np.sign(values[kept]), squares, False)

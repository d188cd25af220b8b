"""Number, mean and centred products of rows, and how those of several sets of rows become those of all.

A set of rows is summarised by its number of rows n, their weight w, their mean m, and the products S about that mean.
Of several such sets, with d_i = m_i - m,

    w = sum_i w_i,    m = sum_i w_i m_i / w,    S = sum_i (S_i + w_i d_i d_i')

(T. F. Chan, G. H. Golub and R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
1979). It is as accurate as two passes over all rows, in whatever order sets are merged, because nothing large cancels.
A mean is kept as the sum of two numbers, `centre` and `shift`, so that means many times the deviations lose no digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyr, dsyrk

from fedspan.arrays import Matrix
from fedspan.federation.site.parameters import Vector

Block = tuple[NDArray[Any], Vector | None]

#: Blocks of rows that have one centre, and the bytes of a block. None has more than this many times the first one's
#: weight.
_AT_ONCE, _HEAVIER = 16, 4.0
_CACHED_BYTES = 3 * 2**18
#: Tables of at most this number of columns get their products by a plain matrix product.
_FEW_COLUMNS = 128
_LARGEST_SINGLE = float(np.finfo(np.float32).max)


class RowMoments(NamedTuple):
    """The moments of a set of rows.

    Attributes
    ----------
    n : int
        The number of rows.
    weight : float
        The sum of their weights: n, where every row counts once.
    centre, shift : array (d,)
        Their sum is the mean.
    scatter : array (d (d + 1) / 2,) or (d,)
        The upper triangle of the products about the mean (`gram`), or the squares of the columns alone.

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [3.0, 4.0], [8.0, 0.0]])
    >>> whole = RowMoments.merged([RowMoments.of_rows(X[:1]), RowMoments.of_rows(X[1:])])
    >>> whole.n, whole.mean, whole.gram()
    (3, array([4., 2.]), array([[ 26., -10.],
           [-10.,   8.]]))
    >>> whole.scaled(0.5).weight
    1.5
    """

    n: int
    weight: float
    centre: Vector
    shift: Vector
    scatter: Vector

    @classmethod
    def of_rows(cls, X: NDArray[Any], weights: Vector | None = None, *, products: bool = True) -> RowMoments:
        """Return the moments of rows X (n, d): all products, or the squares of each column."""
        return cls.of_blocks([(X, weights)], X.shape[1], products=products)

    @classmethod
    def of_no_rows(cls, d: int, *, products: bool = True, n: int = 0) -> RowMoments:
        """Return the moments of nothing; `n` rows may have no weight."""
        return cls(n, 0.0, np.zeros(d), np.zeros(d), np.zeros(d * (d + 1) // 2 if products else d))

    @classmethod
    def of_blocks(cls, blocks: Iterable[Block], d: int, *, products: bool = True) -> RowMoments:
        """Return the moments of all rows of some blocks, each with the weights of its rows, if they have some.

        Beside a block, memory is that of the products.
        """
        found, group = None, _Group(d, products)
        rows = max(1, _CACHED_BYTES // (8 * max(1, d)))
        for X, weights in blocks:
            for start in range(0, len(X), rows):
                part = X[start : start + rows]
                times = None if weights is None else weights[start : start + rows]
                weight = float(len(part)) if times is None else float(times.sum())
                if group.parts == _AT_ONCE or weight > _HEAVIER * group.first:
                    found = group.moments() if found is None else cls.merged([found, group.moments()])
                    group = _Group(d, products)
                group.add(part, times, weight)
        return group.moments() if found is None else cls.merged([found, group.moments()])

    @classmethod
    def merged(cls, parts: Sequence[RowMoments]) -> RowMoments:
        """Return the moments of all rows from those of several sets of rows, at least one."""
        if len(parts) == 1:
            return parts[0]
        n, weights = sum(part.n for part in parts), np.array([part.weight for part in parts])
        weight = float(weights.sum())
        if not weight > 0.0:
            return parts[0]._replace(n=n)
        centre = parts[int(weights.argmax())].centre
        D = (np.array([part.centre for part in parts]) - centre) + np.array([part.shift for part in parts])
        D[weights == 0.0] = 0.0
        shift = (weights @ D) / weight
        D -= shift
        D *= np.sqrt(weights)[:, None]
        scatter = packed(D.T @ D) if len(parts[0].scatter) > len(centre) else np.einsum("ij,ij->j", D, D)
        for part in parts:
            scatter += part.scatter
        return cls(n, weight, *_split(centre, shift), scatter)

    def scaled(self, factor: float) -> RowMoments:
        """Return these moments with `factor` times the weight, as if every row counted that much."""
        return self._replace(weight=factor * self.weight, scatter=factor * self.scatter)

    @property
    def mean(self) -> Vector:
        """The mean (d,); 0 where no row has weight."""
        return self.centre + self.shift

    @property
    def squares(self) -> Vector:
        """The sums of squares (d,) of the columns about their means."""
        d = len(self.centre)
        return self.scatter if len(self.scatter) == d else self.scatter[_diagonal(d)]

    @property
    def variance(self) -> Vector:
        """The (population) variance (d,) of the columns."""
        return np.maximum(self.squares / self.weight, 0.0)

    @property
    def has_products(self) -> bool:
        """Whether the products of different columns are known."""
        d = len(self.centre)
        return len(self.scatter) == d * (d + 1) // 2

    def gram(self) -> Matrix:
        """Return the matrix (d, d) of the products about the mean."""
        return unpacked(self.scatter)

    def message(self) -> dict[str, Any]:
        """Return the moments as a step sends them."""
        return self._asdict()


class _Group:
    """Sums and products of some blocks of rows about one centre, the mean of the first block.

    That mean is off by at most the deviation of the rows times the root of their weight in that of the first block. So
    few blocks, none much heavier than the first, cost no digits. Blocks fit a processor's cache.
    """

    def __init__(self, d: int, products: bool) -> None:
        self.parts = self.n = 0
        self.weight, self.first = 0.0, np.inf
        self._columns = d
        self._products = products
        self._centre: Vector | None = None
        self._sum: Vector | None = None
        self._scatter: Matrix | None = None
        self._buffer: Matrix | None = None

    def add(self, X: NDArray[Any], weights: Vector | None, weight: float) -> None:
        """Add a block of rows, of this weight in all."""
        n = len(X)
        self.n += n
        if not weight > 0.0:
            return
        times = _ones(n) if weights is None else weights
        D = self._buffer
        if D is None or len(D) != n:  # columns of frames and files stay in one piece
            D = self._buffer = np.empty_like(X, dtype=np.float64)
        if X.dtype != np.float64:  # read once
            np.copyto(D, X)
            X = D
        if self._centre is None:
            self.first = weight
            self._centre = times.dot(X) / weight  # of few rows, ``dot`` takes half the time of ``@``
        np.subtract(X, self._centre, out=D)
        total = times.dot(D)
        self._sum = total if self._sum is None else self._sum + total
        self.weight += weight
        self.parts += 1
        if weights is not None:
            D *= np.sqrt(weights)[:, None]
        if not self._products:
            squares = np.einsum("ij,ij->j", D, D)
            self._scatter = squares if self._scatter is None else self._scatter + squares
            return
        self._scatter = _with_products(D, self._scatter)

    def moments(self) -> RowMoments:
        """Return the moments of the rows."""
        if self._centre is None or self._sum is None or self._scatter is None:
            return RowMoments.of_no_rows(self._columns, products=self._products, n=self.n)
        shift = self._sum / self.weight
        if self._products:
            scatter = packed(dsyr(-self.weight, shift, lower=1, a=self._scatter, overwrite_a=1).T)
        else:
            scatter = self._scatter - self.weight * shift**2
        return RowMoments(self.n, self.weight, *_split(self._centre, shift), scatter)


def _with_products(D: Matrix, before: Matrix | None) -> Matrix:
    """Return the products of the columns of D, added to those `before`: the lower triangle, in Fortran's order.

    That is the upper one of its transpose. Of few columns the whole matrix is faster than a triangle alone.
    """
    if D.shape[1] > _FEW_COLUMNS:
        by_columns = D.flags.f_contiguous
        more = {} if before is None else {"beta": 1.0, "c": before, "overwrite_c": 1}
        found: Matrix = dsyrk(1.0, D if by_columns else D.T, trans=by_columns, **more, lower=1)
        return found
    products = (D.T @ D).T
    return products if before is None else np.add(before, products, out=before)


@lru_cache(maxsize=8)
def _ones(n: int) -> Vector:
    """Return the weights of rows that count once each."""
    ones = np.ones(n)
    ones.flags.writeable = False
    return ones


def packed(S: Matrix) -> Vector:
    """Return the upper triangle of a symmetric matrix (d, d) as a vector: half the bytes."""
    return S.ravel().take(_triangle(len(S)))


def unpacked(triangle: Vector) -> Matrix:
    """Return the symmetric matrix with this upper triangle."""
    d = side(len(triangle))
    S = np.zeros((d, d))
    S.ravel()[_triangle(d)] = triangle
    return S + np.triu(S, 1).T


def side(entries: int) -> int:
    """Return d of a triangle of d (d + 1) / 2 entries."""
    return int((np.sqrt(8 * entries + 1) - 1) / 2)


@lru_cache(maxsize=8)
def _triangle(d: int) -> NDArray[np.intp]:
    """Return where the upper triangle is in a matrix (d, d) that is read row by row."""
    return np.flatnonzero(np.triu(np.ones((d, d), dtype=np.bool_)))


@lru_cache(maxsize=8)
def _diagonal(d: int) -> NDArray[np.intp]:
    """Return where the diagonal is in the triangle."""
    return np.cumsum(np.concatenate([[0], np.arange(d, 1, -1)]))


def _split(centre: Vector, shift: Vector) -> tuple[Vector, Vector]:
    """Return two vectors with the same sum, the first in single precision: the second has digits of its own.

    They depend on the sum alone, not on the rows that made `centre` and `shift`.
    """
    total = centre + shift
    # What single precision can't hold keeps all digits.
    leading = total.astype(np.float32).astype(np.float64) if np.vdot(total, total) < _LARGEST_SINGLE**2 else total
    return leading, (centre - leading) + shift

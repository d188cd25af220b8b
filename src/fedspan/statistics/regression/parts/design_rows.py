"""The rows of a regression at a site: intercept, features and site effects, seen through a triangular factor.

Columns of different size or nearly in line would cost half of all digits in sums of their products. So the coordinator
first has the sum of products about the columns' means, and factors it, ``R'R``. From then on sites work with
``Z = A R^-1``, whose products are nearly the identity (as in CholeskyQR2, Yamamoto et al. 2015). The result has the
accuracy of a QR decomposition of the pooled rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from fedspan.arrays import Array
from fedspan.checks import first_of
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import MOST, Flags, Labels, Matrix, Vector, Whole
from fedspan.sums.plausible_totals import CountedRows, refuse_absurd
from fedspan.sums.row_blocks import n_columns

#: The number of a column, or -1 for none.
Column = Annotated[int, Whole(-1, MOST)]
_BLOCK_BYTES = 2**22
#: A site keeps its rows in this form between calls up to this size; larger ones are made again, block by block.
_KEPT_BYTES = 2**28
#: What is left of a column without those before it, as a share of its squares, at which it counts as none.
_IN_LINE = 1e-14
#: Squares of a column of Z, which are about 1, below which it was rounding.
NO_COLUMN = 1e-10
_EPS = float(np.finfo(np.float64).eps)


class DesignForm(TypedDict):
    """The parameters of a step on the rows of a `Design`, which describes them."""

    intercept: bool
    offset: Column
    effects: Labels
    drop: bool
    centre: Vector
    factor: Matrix
    kept: Flags


class DesignRows(NamedTuple):
    """Rows of a design: Z (n, k), target (n, ...), weights (n,) and offsets (n,)."""

    Z: Matrix
    y: Array
    weights: Vector
    offset: Vector


@dataclass(frozen=True)
class Design:
    """The columns of a regression, and the form in which sites see them.

    Attributes
    ----------
    features : int
        Columns of X, the offset included.
    intercept : bool
    offset : int
        The column of X whose values are added to the linear predictor; -1 for none.
    effects : tuple of str
        Sites that have a column of their own: 1 in their rows, 0 in others.
    drop : bool
        Whether rows with missing values are left out.
    centre : array (d,)
        What is subtracted from the features.
    factor, kept : array (k, k), array (q,)
        The triangular factor R of the columns that are kept.
    """

    features: int
    intercept: bool = True
    offset: int = -1
    effects: tuple[str, ...] = ()
    drop: bool = False
    centre: Vector = field(default_factory=lambda: np.zeros(0))
    factor: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    kept: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @property
    def slopes(self) -> int:
        """The number of coefficients of features."""
        return self.features - (self.offset >= 0)

    @property
    def width(self) -> int:
        """The number of columns: intercept, features, effects."""
        return self.intercept + self.slopes + len(self.effects)

    def payload(self) -> DesignForm:
        """Return the design as parameters of steps."""
        return {
            "intercept": self.intercept,
            "offset": self.offset,
            "effects": np.array(self.effects, dtype=str),
            "drop": self.drop,
            "centre": self.centre,
            "factor": self.factor,
            "kept": self.kept,
        }

    def unmapped(self) -> Matrix:
        """Return the map (q, k) of coefficients of Z to those of the columns in their own units; 0 where not kept."""
        found = np.zeros((self.width, len(self.factor)))
        found[self.kept] = solve_triangular(self.factor, np.eye(len(self.factor)))
        if self.intercept:
            found[0] -= self.centre @ found[1 : 1 + self.slopes]
        return found

    def to_columns(self, b: Matrix) -> Matrix:
        """Return coefficients of the columns (q, ...), in their own units, from those of Z (k, ...)."""
        found = np.zeros((self.width, *b.shape[1:]))
        found[self.kept] = solve_triangular(self.factor, b)
        if self.intercept:
            found[0] -= self.centre @ found[1 : 1 + self.slopes]
        return found

    def covariance(self, inner: Matrix) -> Matrix:
        """Return the covariance of the columns' coefficients from that of Z's (r k, r k), for r targets.

        NaN where a column is not kept.
        """
        targets = len(inner) // max(1, len(self.factor))
        M = np.kron(np.eye(targets), self.unmapped())
        found = M @ inner @ M.T
        lost = np.tile(~self.kept, targets)
        found[lost] = found[:, lost] = np.nan
        return np.asarray((found + found.T) / 2)

    def factored(self, G: Matrix, n: int) -> Design:
        """Return the design with the factor of the sum of products `G` (q, q) of n rows."""
        G = np.where(np.logical_or.outer(constant := constant_columns(G, n, self), constant), 0.0, G)
        factor, kept = triangular_factor(G)
        return replace(self, factor=factor, kept=kept)

    def without(self, lost: NDArray[np.bool_], G: Matrix) -> Design:
        """Return the design without the columns `lost` (k,) of Z, which were rounding."""
        kept = self.kept.copy()
        kept[np.flatnonzero(kept)[lost]] = False
        return replace(self, factor=triangular_factor(G[np.ix_(kept, kept)])[0], kept=kept)

    def plain(self) -> Design:
        """Return the design whose columns are seen as they are, about the centre."""
        return replace(self, factor=np.eye(self.width), kept=np.ones(self.width, dtype=np.bool_))


def with_site_effects(payload: Mapping[str, Any]) -> bool:
    """Return whether a design has a column for each of some sites: sums of such a column are about one site."""
    return len(payload["effects"]) > 0


def design_rows(site: Site, **form: Unpack[DesignForm]) -> Iterator[DesignRows]:
    """Yield the rows of a site in blocks. Those of a small site are kept until the next form."""
    offset, centre, factor, kept = form["offset"], form["centre"], form["factor"], form["kept"]
    slopes = n_columns(site) - (offset >= 0)
    width = form["intercept"] + slopes + len(form["effects"])
    if offset >= n_columns(site) or len(centre) != slopes or len(kept) != width or len(factor) != kept.sum():
        raise InputError(f"the design has {len(centre)} features, and site {site.name!r} has {slopes}")
    made = _made(site, **form)
    if 8 * len(site) * max(1, len(factor)) > _KEPT_BYTES:
        yield from made
    else:
        arrays = (centre, factor, kept, form["effects"])
        key = (form["intercept"], offset, form["drop"], *(array.tobytes() for array in arrays))
        yield from site.last_of("regression rows", key, lambda: list(made))


def _made(site: Site, **form: Unpack[DesignForm]) -> Iterator[DesignRows]:
    offset, kept = form["offset"], form["kept"]
    own = (form["effects"] == site.name).astype(np.float64)
    for X, y, weights in plain_rows(site, form["drop"], columns=len(kept)):
        shift = X[:, offset] if offset >= 0 else np.zeros(len(X))
        features = np.delete(X, offset, axis=1) if offset >= 0 else X
        parts = [np.ones((len(X), 1))] if form["intercept"] else []
        A = np.hstack([*parts, features - form["centre"], np.broadcast_to(own, (len(X), len(own)))])
        Z = solve_triangular(form["factor"], A[:, kept].T, trans="T", check_finite=False).T
        yield DesignRows(np.ascontiguousarray(Z), y, weights, shift)


def plain_rows(site: Site, drop: bool, columns: int = 1) -> Iterator[tuple[Matrix, Array, Vector]]:
    """Yield features, target and weights in blocks, without incomplete rows if `drop`."""
    y = site.y
    if y is None:
        raise InputError("the site has no y: a regression needs the target of each row, as in federate(X, y)")
    weights = site.sample_weight
    at = 0
    for batch in site.batches(max(1, _BLOCK_BYTES // (8 * max(1, n_columns(site), columns)))):
        X = np.asarray(batch.X, dtype=np.float64)
        part = slice(at, at + len(X))
        at += len(X)
        own, w = y[part], np.ones(len(X)) if weights is None else np.asarray(weights[part], dtype=np.float64)
        if drop:
            whole = np.isfinite(X).all(axis=1) & ~missing(own)
            X, own, w = X[whole], own[whole], w[whole]
        yield X, own, w


def missing(y: Array) -> NDArray[np.bool_]:
    """Return which targets are missing: no finite number, or no text."""
    if y.dtype.kind in "fc":
        found = ~np.isfinite(y)
    elif y.dtype.kind == "O":
        found = np.array(
            [value is None or value == "" or (isinstance(value, float) and math.isnan(value)) for value in y.ravel()]
        ).reshape(y.shape)
    else:
        found = np.zeros(y.shape, dtype=np.bool_)
    return np.asarray(found.any(axis=1) if found.ndim > 1 else found)


def fewest_complete(site: Site, drop: bool, **_: Any) -> int:
    """Return the number of rows without gaps, or of those with some, if they are left out and fewer.

    The sums over all rows less those over the complete ones are about the others.
    """
    if not drop:
        return len(site)
    complete = sum(len(X) for X, _, _ in plain_rows(site, drop))
    return min((size for size in (complete, len(site) - complete) if size), default=0)


#: Settings of steps that leave incomplete rows out if their parameter `drop` says so.
COUNTED: dict[str, Any] = {"fewest": fewest_complete, "fewest_in_sums": False, "leaves_out": "drop"}


@step("regression.column_sums", reveals="sums", weighted=True, moments=True, counts=["n"], **COUNTED)
def local_column_sums(site: Site, drop: bool, numeric: bool) -> dict[str, Any]:
    """Leaves the site: its number of rows, sums of weights, columns and targets, and numbers of values not finite."""
    d = n_columns(site)
    found: dict[str, Any] = {"n": 0, "weight": 0.0, "sum": np.zeros(d), "bad": np.zeros(d, dtype=np.int64)}
    found |= {"target": 0.0, "bad_target": 0}
    for X, y, weights in plain_rows(site, drop):
        finite = np.isfinite(X)
        found["n"] += len(X)
        found["weight"] += float(weights.sum())
        found["sum"] += np.where(finite, X, 0.0).sum(axis=0)
        found["bad"] += len(X) - finite.sum(axis=0)
        gaps = missing(y)
        found["bad_target"] += int(gaps.sum())
        if numeric:
            values = numeric_target(y)
            found["target"] += float(weights @ np.where(gaps, 0.0, values))
    return found


def numeric_target(y: Array) -> Vector:
    """Return targets as numbers, or refuse them."""
    if y.dtype.kind == "O":
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError("y holds text, and a regression needs numbers") from None
    if y.ndim != 1 or y.dtype.kind not in "buif":
        raise InputError(f"y must be a vector of numbers, not {y.dtype} of shape {y.shape}")
    return np.asarray(y, dtype=np.float64)


@dataclass(frozen=True)
class ColumnSums:
    """Number of rows and sum of weights, means of the columns (d,) and the weighted mean of the target."""

    n: int
    weight: float
    mean: Vector
    level: float
    sites: tuple[str, ...]

    def counted(self) -> CountedRows:
        """Return the comparison of later numbers of rows with these."""
        return CountedRows(self.n, self.sites)


def column_sums(
    names: tuple[str, ...] | None, fed: Federation, *, drop: bool = False, numeric: bool = True
) -> ColumnSums:
    """Return means of the columns and of the target; refuse values that are not finite, by feature and site."""
    total = fed.sum(local_column_sums, drop=drop, numeric=numeric)
    if np.any(total["bad"]) or total["bad_target"]:
        _refuse_gaps(fed, total, names, drop, numeric)
    CountedRows().compare(total)
    if total["n"] == 0:
        complete = " without missing values" if drop else ""
        raise InputError(f"the sites have no rows{complete}: there is nothing to learn from")
    if not total["weight"] > 0:
        raise InputError("the sum of all sample weights is zero: there is nothing to learn from")
    refuse_absurd(total["sum"], total["weight"], total["target"])
    return ColumnSums(
        total["n"],
        float(total["weight"]),
        total["sum"] / total["n"],
        float(total["target"] / total["weight"]),
        tuple(total.sites),
    )


def _refuse_gaps(
    fed: Federation, total: Mapping[str, Any], names: tuple[str, ...] | None, drop: bool, numeric: bool
) -> None:
    by_site = {} if fed.policy.secure_sum else fed.ask(local_column_sums, drop=drop, numeric=numeric).ok
    found = []
    for column in np.flatnonzero(total["bad"]):
        feature = names[column] if names else f"number {column}"
        where = [f"site {site!r} ({one['bad'][column]} values)" for site, one in by_site.items() if one["bad"][column]]
        found += [f"feature {feature} at {one}" for one in where or [f"some site ({total['bad'][column]} values)"]]
    if not found:
        where = [f"site {site!r} ({one['bad_target']} values)" for site, one in by_site.items() if one["bad_target"]]
        found = where or [f"some site ({total['bad_target']} values)"]
    what = "X" if np.any(total["bad"]) else "y"
    raise InputError(
        f"{what} contains NaN or infinity: {first_of(found, 5)}; fill them, or leave such rows out (missing='drop')"
    )


def triangular_factor(G: Matrix) -> tuple[Matrix, NDArray[np.bool_]]:
    """Return R of the columns that are kept, ``R'R = G``, and which these are.

    A column in line with those before it is not kept.

    Examples
    --------
    >>> R, kept = triangular_factor(np.array([[4.0, 8.0, 0.0], [8.0, 16.0, 0.0], [0.0, 0.0, 9.0]]))
    >>> R, kept
    (array([[2., 0.],
           [0., 3.]]), array([ True, False,  True]))
    """
    scale = np.sqrt(np.maximum(np.diag(G), 0.0))
    some = scale > 0
    unit = np.where(some, scale, 1.0)
    C = G / unit[:, None] / unit
    kept = np.flatnonzero(some)
    try:
        L = np.linalg.cholesky(C[np.ix_(kept, kept)])
        clear = not len(kept) or float(np.diag(L).min()) ** 2 > 100 * _IN_LINE
    except np.linalg.LinAlgError:
        clear = False
    if not clear:
        kept, L = _pivots(C, kept)
    found = np.zeros(len(G), dtype=np.bool_)
    found[kept] = True
    return np.ascontiguousarray(L.T * scale[kept]), found


def _pivots(C: Matrix, columns: NDArray[np.int64]) -> tuple[NDArray[np.int64], Matrix]:
    """Return the columns of a matrix with a diagonal of ones that are in line with none before them, and the factor."""
    kept: list[int] = []
    L = np.zeros((len(columns), len(columns)))
    least = _IN_LINE * max(1.0, len(columns) / 10)
    for j in columns.tolist():
        k = len(kept)
        row = solve_triangular(L[:k, :k], C[kept, j], lower=True) if k else np.zeros(0)
        rest = 1.0 - float(row @ row)
        if rest > least:
            L[k, :k], L[k, k] = row, np.sqrt(rest)
            kept.append(j)
    return np.array(kept, dtype=np.int64), L[: len(kept), : len(kept)]


def constant_columns(G: Matrix, n: int, design: Design) -> NDArray[np.bool_]:
    """Return which columns are constant up to rounding, so that the intercept stands for them."""
    found = np.zeros(design.width, dtype=np.bool_)
    if design.intercept:
        part = slice(1, 1 + design.slopes)
        found[part] = np.diag(G)[part] <= n * (n * design.centre * _EPS) ** 2
    return found

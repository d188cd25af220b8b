"""Covariances and correlations of all pairs of columns, each over the rows in which both have a value, as in pandas.

Pearson's correlation needs one sum. Spearman's is that of ranks among all rows, for which sites need the distribution
of each column. Either all sites send all distinct values ("exact"), or counts in bins are added up ("bins").

Up per site: 4 d^2 numbers; for ranks the values, or 8 rounds of a search for quartiles, then counts and d^2 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import needs_pandas, one_of, whole_number
from fedspan.errors import InputError
from fedspan.federation import Federation, RunRecord, Site, step
from fedspan.federation.site.parameters import Flags, Matrix, Vector
from fedspan.pca.noisy_covariance import noisy_covariance
from fedspan.privacy.mechanisms import GaussianMoments, check_moments
from fedspan.statistics.describe.parts.exact_quantiles import group_quantiles
from fedspan.statistics.describe.parts.group_counts import Edges
from fedspan.statistics.describe.parts.grouped_rows import Grouping, Numbers, numbers_of
from fedspan.statistics.describe.parts.shown_frame import ShownFrame
from fedspan.statistics.describe.parts.table_columns import TableColumns, federation_of, named_columns, read_columns
from fedspan.statistics.describe.parts.value_bins import distinct_values, rank_edges
from fedspan.sums.plausible_totals import whole

if TYPE_CHECKING:
    import pandas as pd


def _fewest_pairs(site: Site, columns: Numbers, **payload: Any) -> int:
    """Return the smallest number of rows in which two columns have values, or one of them alone, of those with any.

    The sum of a column less that over the rows with another one is about the rows in which the other one is missing.
    """
    known = (~np.isnan(numbers_of(site, columns))).astype(np.float64)
    counts = np.concatenate([known.T @ known, known.T @ (1.0 - known)])
    return int(counts[counts > 0].min(initial=len(site)))


@step("describe.pair_sums", reveals="sums", fewest=_fewest_pairs, fewest_in_sums=False)
def local_pair_sums(site: Site, columns: Numbers, centre: Vector) -> dict[str, Any]:
    """Leaves the site: of each pair of columns, over rows with both, their number and sums about `centre`.

    The sums are of the first one, of its squares, and of products.
    """
    D = numbers_of(site, columns) - centre
    known = (~np.isnan(D)).astype(np.float64)
    D[known == 0] = 0.0
    counts = (known.T @ known).astype(np.int64)
    return {"n": counts, "sums": D.T @ known, "squares": (D * D).T @ known, "products": D.T @ D}


@step("describe.pair_bin_counts", reveals="sums")
def local_pair_bin_counts(
    site: Site, columns: Numbers, edges: Edges, sizes: Numbers, beside: Numbers
) -> dict[str, Any]:
    """Leaves the site: of each column the number of values in each bin, of all rows and where `beside` has a value."""
    values, places = numbers_of(site, columns), _places(site, columns, edges, sizes)
    known = ~np.isnan(values)
    starts = np.cumsum(sizes + 1) - sizes - 1
    counts = np.zeros((1 + len(beside), int(np.sum(sizes + 1))), dtype=np.int64)
    for j, start in enumerate(starts.tolist()):
        end = start + int(sizes[j]) + 1
        for k, other in enumerate([None, *beside.tolist()]):
            rows = known[:, j] if other is None else known[:, j] & known[:, other]
            counts[k, start:end] = np.bincount(places[rows, j], minlength=end - start)
    return {"counts": counts}


@step("describe.rank_products", reveals="sums")
def local_rank_products(
    site: Site, columns: Numbers, edges: Edges, sizes: Numbers, ranks: Matrix, variant: Numbers
) -> dict[str, Any]:
    """Leaves the site: of each pair of columns the sum of products of ranks, over rows with both.

    ``ranks[v]`` are those of all bins, one column after another, among the rows of variant v. ``variant[j]`` is that of
    the rows in which column j has a value.
    """
    places = _places(site, columns, edges, sizes)
    known = ~np.isnan(numbers_of(site, columns))
    starts = np.cumsum(sizes + 1) - sizes - 1
    at = np.where(known, places, 0) + starts
    d = len(columns)
    products = np.zeros((d, d))
    if not np.any(variant):
        R = np.where(known, ranks[0][at], 0.0)
        return {"products": R.T @ R}
    by_variant = [np.where(known, own[at], 0.0) for own in ranks]
    for i in range(d):
        mine = np.stack([by_variant[int(v)][:, i] for v in variant], axis=1)  # rank of column i, beside each other one
        theirs = by_variant[int(variant[i])]
        both = known[:, [i]] & known
        products[i] = np.einsum("ij,ij->j", np.where(both, mine, 0.0), np.where(both, theirs, 0.0))
    return {"products": products}


@dataclass(frozen=True, repr=False)
class PairTable(ShownFrame):
    """A number for each pair of columns (d, d), and the number of rows in which both have a value.

    Both are NaN, or 0, where these are fewer than `least_set`.
    """

    columns: tuple[str, ...]
    method: str
    values: Matrix
    n: Matrix

    run_ = RunRecord("correlation", {}, number=0, seed=0, sites=())

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as ``pandas.DataFrame.corr`` and ``cov`` do."""
        needs_pandas()
        import pandas as pd

        return pd.DataFrame(self.values, index=list(self.columns), columns=list(self.columns))

    def suppressed(self, columns: Flags) -> PairTable:
        """Return the table without the pairs of some columns (d,)."""
        hidden = np.logical_or.outer(columns, columns)
        return replace(self, values=np.where(hidden, np.nan, self.values), n=np.where(hidden, 0.0, self.n))

    def p_values(self) -> Matrix:
        """Return the p value (d, d) of each correlation, by Student's t; NaN for covariances."""
        from scipy import stats

        if self.method == "covariance":
            return np.full(self.values.shape, np.nan)
        freedom = np.maximum(self.n - 2, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = self.values * np.sqrt(freedom / (1 - self.values**2))
        return np.where(self.n > 2, 2 * stats.t.sf(np.abs(t), freedom), np.nan)


def correlation(
    fed: Federation,
    *,
    method: str = "pearson",
    ranks: str = "auto",
    least_set: int = 5,
    privacy: GaussianMoments | None = None,
) -> PairTable:
    """Return the correlations of all pairs of columns of numbers, each over the rows in which both have a value.

    Parameters
    ----------
    fed : Federation
    method : {"pearson", "spearman"}, default="pearson"
    ranks : {"auto", "exact", "bins"}, default="auto"
        For Spearman's correlation: exact ranks, for which all sites send all distinct values of all columns; or ranks
        of 256 bins, by sums. ``"auto"``: exact, but under secure sums bins.
    least_set : int, default=5
        Pairs of fewer rows are suppressed.
    privacy : GaussianMoments, optional
        Differential privacy: Pearson's correlations, of tables of numbers without gaps, from one sum with noise.

    Examples
    --------
    >>> import fedspan as fs
    >>> rows = np.array([[1.0, 1], [2, 4], [3, 9], [4, 16], [5, 25], [6, 36]])
    >>> fed = fs.federate(rows, sites=[0, 0, 0, 1, 1, 1])
    >>> correlation(fed).values.round(4)[0], correlation(fed, method="spearman").values[0]
    (array([1.    , 0.9789]), array([1., 1.]))
    """
    one_of("method", method, ("pearson", "spearman"))
    one_of("ranks", ranks, ("auto", "exact", "bins"))
    check_moments(privacy)
    if privacy is not None:
        return _noisy_correlation(fed, method, privacy)
    return _pair_table(fed, method, ranks, least_set)


def covariance(fed: Federation, *, least_set: int = 5) -> PairTable:
    """Return the covariances (ddof 1) of all pairs of columns of numbers, each over the rows with both.

    Examples
    --------
    >>> import fedspan as fs
    >>> rows = np.array([[1.0, 1], [2, 4], [3, 9], [4, 16], [5, 25], [6, 36]])
    >>> covariance(fs.federate(rows, sites=[0, 0, 0, 1, 1, 1])).values[0]
    array([ 3.5, 24.5])
    """
    return _pair_table(fed, "covariance", "bins", least_set)


def _noisy_correlation(begun: Federation, method: str, privacy: GaussianMoments) -> PairTable:
    """Return correlations from the covariance with noise; NaN where the noise hides a column's variance."""
    if method != "pearson":
        raise InputError(f"method={method!r} has no sums with noise: under privacy use method='pearson'")
    with federation_of(begun, "correlation").begin(method, {"method": method, "privacy": privacy}) as run:
        names, seen = named_columns(run)
        found = noisy_covariance(seen, privacy=privacy, n_columns=len(names))
        variance = np.diag(found.covariance)
        clear = variance > 2 * found.noise**2
        spread = np.sqrt(np.outer(np.where(clear, variance, 1.0), np.where(clear, variance, 1.0)))
        values = np.clip(found.covariance / spread, -1.0, 1.0)
        values[~np.outer(clear, clear)] = np.nan
        return PairTable(names, method, values, np.full(values.shape, float(found.n))).of(run)


def _pair_table(begun: Federation, method: str, ranks: str, least: int) -> PairTable:
    whole_number("least_set", least, 1)
    with federation_of(begun, "correlation").begin(
        method, {"method": method, "ranks": ranks, "least_set": least}
    ) as run:
        names, seen = named_columns(run)
        known, seen = read_columns(seen, names, categories=None, list_names=False)
        return pair_table(seen, known, method, ranks, least).of(run)


def pair_table(seen: Federation, columns: TableColumns, method: str, ranks: str, least: int) -> PairTable:
    """Return the covariances, or correlations, of the columns of numbers."""
    numbers = columns.numbers
    if not len(numbers):
        raise InputError("no column holds numbers: there is nothing to correlate")
    d = len(numbers)
    total = seen.sum(local_pair_sums, columns=numbers, centre=columns.mean[numbers])
    whole(total, n=(d, d), sums=(d, d), squares=(d, d), products=(d, d))
    n = np.maximum(total["n"], 0).astype(np.float64)
    if method == "spearman":
        exact = ranks == "exact" or (ranks == "auto" and not seen.policy.secure_sum)
        values = _rank_correlation(seen, numbers, n, exact)
    else:
        some = np.maximum(n, 1)
        sums = total["sums"]
        products = total["products"] - sums * sums.T / some
        if method == "covariance":
            values = products / np.maximum(n - 1, 1)
        else:
            squares = np.maximum(total["squares"] - sums**2 / some, 0.0)
            values = _ratio(products, squares)
    few = n < max(least, 2)
    return PairTable(
        tuple(columns.names[j] for j in numbers), method, np.where(few, np.nan, values), np.where(few, 0.0, n)
    )


def _rank_correlation(seen: Federation, numbers: NDArray[np.int64], n: Matrix, exact: bool) -> Matrix:
    """Return the correlations (d, d) of midranks."""
    edges = distinct_values(seen, numbers) if exact else _binned(seen, numbers)
    own = np.diag(n)
    beside = np.flatnonzero((n < own[:, None]).any(axis=0))  # columns that are missing where another one is not
    sizes = np.array([len(one) for one in edges], dtype=np.int64)
    bins = {"columns": numbers, "edges": np.concatenate(edges), "sizes": sizes}
    size = int(np.sum(sizes + 1))
    total = seen.sum(local_pair_bin_counts, beside=beside, **bins)
    counts = np.maximum(whole(total, counts=(1 + len(beside), size))["counts"], 0).astype(np.float64)
    ends = np.cumsum(sizes + 1)
    ranks = np.zeros(counts.shape)
    squares = np.zeros((len(counts), len(numbers)))
    for j, (start, end) in enumerate(zip(ends - sizes - 1, ends, strict=True)):
        part = counts[:, start:end]
        centred = np.cumsum(part, axis=1) - part / 2 - part.sum(axis=1, keepdims=True) / 2
        ranks[:, start:end] = centred
        squares[:, j] = np.sum(part * centred**2, axis=1)
    variant = np.zeros(len(numbers), dtype=np.int64)
    variant[beside] = np.arange(1, len(beside) + 1)
    shape = (len(numbers), len(numbers))
    total = seen.sum(local_rank_products, ranks=ranks, variant=variant, **bins)
    return _ratio(whole(total, products=shape)["products"], squares[variant].T)


def _binned(seen: Federation, numbers: NDArray[np.int64]) -> list[Vector]:
    low, high = group_quantiles(seen, columns=numbers, levels=(0.25, 0.75), grouping=Grouping())[:, 0]
    middle = (low + high) / 2
    return [rank_edges(*map(float, one)) for one in zip(low, high, middle, np.abs(middle) + 1.0, strict=True)]


def _ratio(products: Matrix, squares: Matrix) -> Matrix:
    """Return correlations from sums of products (d, d), and of squares: of column i, beside column j."""
    spread = np.sqrt(squares) * np.sqrt(squares.T)
    found = np.full(products.shape, np.nan)
    np.divide(products, spread, out=found, where=spread > 0)
    return np.asarray(np.clip(found, -1.0, 1.0))


def _places(site: Site, columns: Numbers, edges: Edges, sizes: Numbers) -> NDArray[np.intp]:
    """Return the number of the bin of each value (n, d); any for missing ones."""

    def make() -> NDArray[np.intp]:
        values = numbers_of(site, columns)
        places = np.zeros(values.shape, dtype=np.intp)
        for j, own in enumerate(np.split(edges, np.cumsum(sizes)[:-1])):
            places[:, j] = np.minimum(np.searchsorted(own, values[:, j], side="right"), len(own))
        return places

    return site.last_of("places in bins", (columns.tobytes(), edges.tobytes(), sizes.tobytes()), make)

"""Ways to deal the rows of one table to sites.

Each returns one site label a row, ready for ``fedspan.federate(X, sites=labels)``. Labels read ``site-00``,
``site-01``, ...: zero-padded, so that their order as text is their order as numbers. Every site gets at least
one row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedspan.checks import real_number, whole_number
from fedspan.datasets.dataset_checks import column, generator

Labels = NDArray[np.str_]


def site_names(n_sites: int) -> Labels:
    """Return ``site-00``, ``site-01``, ... for ``n_sites`` sites.

    Examples
    --------
    >>> site_names(3).tolist()
    ['site-00', 'site-01', 'site-02']
    """
    width = max(2, len(str(n_sites - 1)))
    return np.array([f"site-{number:0{width}d}" for number in range(n_sites)])


def split_iid(n_rows: int, n_sites: int, *, seed: int) -> Labels:
    """Deal the rows at random, so that every site looks like the whole.

    Parameters
    ----------
    n_rows, n_sites : int
        At least one row a site. Sizes differ by at most one; the first sites have the additional rows.
    seed : int
        Decides which site gets which row.

    Returns
    -------
    array of str, shape (n_rows,)

    Examples
    --------
    >>> labels = split_iid(5, 2, seed=0)
    >>> np.unique(labels, return_counts=True)[1].tolist()
    [3, 2]
    """
    n_rows, n_sites = _sizes(n_rows, n_sites)
    rng = generator(seed)
    return _named(rng.permutation(np.arange(n_rows) % n_sites), n_sites)


def split_by_label(y: ArrayLike, n_sites: int | None = None) -> Labels:
    """Give every site rows of as few classes as possible: the extreme of unlike sites.

    Parameters
    ----------
    y : array of shape (n,)
        The classes; they are numbered in sorted order.
    n_sites : int, optional
        By default one site a class: site ``j`` holds class ``j``.

        With fewer sites than classes, whole classes are dealt in turn: class ``j`` goes to site
        ``j % n_sites``.

        With more sites than classes, every site still holds one class. Each class first has one site. Each
        further site goes to the class that has most rows a site (the first of them on a tie). The sites of
        one class are neighbours, in class order. Its rows are dealt to them in turn, so that their sizes
        differ by at most one.

    Returns
    -------
    array of str, shape (n,)

    Examples
    --------
    >>> split_by_label(["a", "b", "b", "b", "a", "b"], 3).tolist()
    ['site-00', 'site-01', 'site-02', 'site-01', 'site-00', 'site-02']
    >>> split_by_label([10, 20, 30], 2).tolist()
    ['site-00', 'site-01', 'site-00']
    """
    sizes, classes = _classes(y)
    _, n_sites = _sizes(len(classes), len(sizes) if n_sites is None else n_sites)
    if n_sites <= len(sizes):
        return _named(classes % n_sites, n_sites)
    sites_of = np.ones(len(sizes), dtype=np.intp)
    for _ in range(n_sites - len(sizes)):
        sites_of[np.argmax(sizes / sites_of)] += 1
    first = np.cumsum(sites_of) - sites_of
    return _named(first[classes] + _rank_within(classes, sizes) % sites_of[classes], n_sites)


def split_dirichlet(y: ArrayLike, n_sites: int, alpha: float, *, min_rows: int = 1, seed: int) -> Labels:
    """Spread every class over the sites in random proportions: the usual dial from alike to unlike.

    For each class the shares of the sites are one draw of a symmetric Dirichlet(alpha). Its shuffled rows
    are cut in these shares (rounded to whole rows). Small ``alpha`` gives a class to few sites, large
    ``alpha`` spreads it evenly. After that, while a site has fewer than ``min_rows`` rows, the site that has
    most gives it a random one. This disturbs the shares no more than it must.

    Parameters
    ----------
    y : array of shape (n,)
        The classes.
    n_sites : int
        Number of sites.
    alpha : float
        Concentration, above 0.
    min_rows : int, default=1
        Every site gets at least this number of rows; ``n_sites * min_rows`` may not exceed the number of rows.
    seed : int
        Decides the shares, and which site gets which row.

    Returns
    -------
    array of str, shape (n,)

    Examples
    --------
    >>> labels = split_dirichlet([0, 1] * 50, 4, alpha=0.5, min_rows=10, seed=0)
    >>> bool(np.unique(labels, return_counts=True)[1].min() >= 10)
    True
    """
    sizes, classes = _classes(y)
    n_rows, n_sites = _sizes(len(classes), n_sites)
    alpha = real_number("alpha", alpha, above=0)
    real_number("alpha * n_sites", alpha * n_sites, least=0)  # beyond, the draw itself overflows
    min_rows = _min_rows(min_rows, n_rows, n_sites)
    rng = generator(seed)
    site = np.empty(n_rows, dtype=np.intp)
    for rows in np.split(np.argsort(classes, kind="stable"), np.cumsum(sizes)[:-1]):
        shares = rng.dirichlet(np.full(n_sites, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows))
        site[rng.permutation(rows)] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
    return _named(_top_up(site, n_sites, min_rows, rng), n_sites)


def split_blocks(values: ArrayLike, n_sites: int) -> Labels:
    """Sort the rows by one column and cut them into equal blocks, as the FedPCA papers do.

    Parameters
    ----------
    values : array of shape (n,)
        The column to sort by. Rows with the same value keep their order, and may fall into two blocks.
    n_sites : int
        Number of blocks. Sizes differ by at most one; the first sites have the additional rows.

    Returns
    -------
    array of str, shape (n,)
        The first site holds the smallest values.

    Examples
    --------
    >>> split_blocks([30, 10, 20, 40, 50], 2).tolist()
    ['site-00', 'site-00', 'site-00', 'site-01', 'site-01']
    """
    key = column("values", values)
    n_rows, n_sites = _sizes(len(key), n_sites)
    site = np.empty(n_rows, dtype=np.intp)
    site[np.argsort(key, kind="stable")] = np.sort(np.arange(n_rows) % n_sites)
    return _named(site, n_sites)


def split_heavy_tailed(n_rows: int, n_sites: int, *, exponent: float = 1.0, min_rows: int = 1, seed: int) -> Labels:
    """Deal the rows at random to a few large and many small sites, with sizes that follow Zipf's law.

    Every site gets ``min_rows`` rows; the others are shared in proportion to ``rank ** -exponent`` (rounded
    by largest remainder), where ``site-00`` has rank 1 and is the largest.

    Parameters
    ----------
    n_rows, n_sites : int
        Number of rows and sites.
    exponent : float, default=1.0
        0 gives equal sizes; the larger, the fewer sites have most of the rows.
    min_rows : int, default=1
        Every site gets at least this number of rows; ``n_sites * min_rows`` may not exceed ``n_rows``.
    seed : int
        Decides which site gets which row; the sizes do not depend on it.

    Returns
    -------
    array of str, shape (n_rows,)

    Examples
    --------
    >>> labels = split_heavy_tailed(25, 3, seed=0)
    >>> np.unique(labels, return_counts=True)[1].tolist()
    [13, 7, 5]
    """
    n_rows, n_sites = _sizes(n_rows, n_sites)
    exponent = real_number("exponent", exponent, least=0)
    min_rows = _min_rows(min_rows, n_rows, n_sites)
    rng = generator(seed)
    weights = np.arange(1, n_sites + 1, dtype=np.float64) ** -exponent
    exact = (n_rows - n_sites * min_rows) * weights / weights.sum()
    sizes = min_rows + np.floor(exact).astype(np.intp)
    largest_remainders = np.argsort(np.floor(exact) - exact, kind="stable")
    sizes[largest_remainders[: n_rows - sizes.sum()]] += 1
    return _named(rng.permutation(np.repeat(np.arange(n_sites), sizes)), n_sites)


def _named(site: NDArray[np.intp], n_sites: int) -> Labels:
    return site_names(n_sites)[site]


def _sizes(n_rows: Any, n_sites: Any) -> tuple[int, int]:
    rows = whole_number("n_rows", n_rows, 1)
    return rows, whole_number("n_sites", n_sites, 1, rows, why=", since every site needs a row")


def _min_rows(min_rows: Any, n_rows: int, n_sites: int) -> int:
    why = f", since {n_sites} sites share {n_rows} rows"
    return whole_number("min_rows", min_rows, 1, n_rows // n_sites, why=why)


def _classes(y: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the size of each class, and each row's class number in sorted order."""
    _, classes, sizes = np.unique(column("y", y), return_inverse=True, return_counts=True)
    return sizes, classes


def _rank_within(classes: NDArray[np.intp], sizes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return for each row how many earlier rows have its class."""
    rank = np.empty_like(classes)
    starts = np.cumsum(sizes) - sizes
    rank[np.argsort(classes, kind="stable")] = np.arange(len(classes)) - np.repeat(starts, sizes)
    return rank


def _top_up(site: NDArray[np.intp], n_sites: int, min_rows: int, rng: np.random.Generator) -> NDArray[np.intp]:
    counts = np.bincount(site, minlength=n_sites)
    rows_of: dict[int, list[int]] = {}  # in random order, made only for sites that give
    for needy in np.flatnonzero(counts < min_rows):
        while counts[needy] < min_rows:
            giver = int(np.argmax(counts))
            if giver not in rows_of:
                rows_of[giver] = rng.permutation(np.flatnonzero(site == giver)).tolist()
            site[rows_of[giver].pop()] = needy
            counts[giver] -= 1
            counts[needy] += 1
    return site

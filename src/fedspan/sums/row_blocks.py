"""Read a site's rows in blocks that fit a processor's cache, so that steps work on data of any size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Site

_BLOCK_BYTES = 2**22


def blocks(site: Site) -> Iterator[NDArray[np.float64]]:
    """Yield the site's rows as float64 blocks of about 4 MiB; memory beyond the data is one block."""
    for batch in site.batches(max(1, _BLOCK_BYTES // (8 * max(1, n_columns(site))))):
        yield np.asarray(batch.X, dtype=np.float64)


def sampled_rows(n: int, every: int) -> NDArray[np.int64]:
    """Return the numbers of the rows of a sample, rising: one of each stretch of `every`, always the same ones."""
    starts = np.arange(0, n, every)
    if every == 1:
        return starts
    places = np.random.default_rng(every).random(len(starts))
    return np.asarray(starts + (places * np.minimum(every, n - starts)).astype(np.int64))


def sampled_blocks(site: Site, every: int) -> Iterator[NDArray[np.float64]]:
    """Yield the rows of a sample as `blocks` does: one of each stretch of `every`."""
    if every == 1:
        yield from blocks(site)
        return
    chosen, at = sampled_rows(len(site), every), 0
    for X in blocks(site):
        yield X[chosen[slice(*np.searchsorted(chosen, [at, at + len(X)]))] - at]
        at += len(X)


def weighted_blocks(site: Site) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64] | None]]:
    """Yield the site's rows as `blocks` does, each with the weights of its rows, if they have some."""
    for X, weights in stored_blocks(site, n_columns(site)):
        yield np.asarray(X, dtype=np.float64), weights


def stored_blocks(site: Site, columns: int) -> Iterator[tuple[NDArray[Any], NDArray[np.float64] | None]]:
    """Yield the site's rows in blocks of the numbers that it has, not copied, with the weights of the rows."""
    for batch in site.batches(max(1, _BLOCK_BYTES // (8 * max(1, columns)))):
        yield batch.X, batch.sample_weight


def dense_parts(X: Any) -> Iterator[NDArray[Any]]:
    """Yield a table in dense parts: a sparse matrix in parts of about 4 MiB, a dense one as it is."""
    if not hasattr(X, "tocsr"):
        yield X
        return
    rows = max(1, _BLOCK_BYTES // (8 * max(1, X.shape[1])))
    for start in range(0, max(1, X.shape[0]), rows):
        yield X[start : start + rows].toarray()


def site_weight(site: Site) -> float:
    """Return the sum of the weights of the site's rows: their number, where every row counts once."""
    weights = site.sample_weight
    return float(len(site)) if weights is None else float(weights.sum())


def bad_values(site: Site) -> NDArray[np.int64]:
    """Return the number of values of each column that are not finite."""
    bad = np.zeros(n_columns(site), dtype=np.int64)
    for X in blocks(site):
        bad += len(X) - np.isfinite(X).sum(axis=0)
    return bad


def n_columns(site: Site) -> int:
    """Return the number of columns of a site whose data must be a table of numbers; no row is read."""
    shape, dtype = _shape(site)
    if dtype.kind not in "buif":
        raise InputError(
            f"X has the dtype {dtype}, and must hold numbers: encode text first (regressions have categorical=[...])"
        )
    return shape[1]


def width(site: Site) -> int:
    """Return the number of columns of a site's table, also of text; no row is read."""
    names = site.feature_names
    return _shape(site)[0][1] if names is None else len(names)


def _shape(site: Site) -> tuple[tuple[int, ...], np.dtype[Any]]:
    X = site.no_rows()
    if X.ndim != 2:
        raise InputError(f"X has {X.ndim} dimensions, and must be a table of rows and columns")
    return X.shape, X.dtype

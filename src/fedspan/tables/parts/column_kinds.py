"""The kinds of columns of mixed tables: text, numbers, and numbers with heavy tails.

A column is text where at least as many of its cells are names as are numbers, over all sites. At a site that disagrees
the cells that do not read as numbers count as missing. Up per site: 6 d numbers, of which only the sum is needed.

A column of numbers has a heavy tail where its kurtosis is above 6, that of a Laplace distribution, and a signed
logarithm at least halves it. So columns of two values, which a logarithm only shifts and scales, stay as they are. The
tails of a column without variance are unknown, and the logarithm is the safe choice: a first large value is then not
1e9 away from the rest, but 20. Up per site: 9 d numbers, of which only the sum is needed.

With `votes`, where some sites may be malicious, every site has one vote instead of as many as it has cells, and medians
of the sites' means and kurtoses replace those of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Flags, Vector
from fedspan.sums.row_blocks import width
from fedspan.tables.parts.cells import LARGEST, declared_categories, number_blocks, signed_log

Counts = NDArray[np.int64]

#: What may be known of a column beforehand.
NUMBERS, TEXT, UNKNOWN = 0, 1, -1

_HEAVY = 6.0
_TAMED = 0.5


@dataclass(frozen=True)
class ColumnKinds:
    """Which columns (d,) are text and which have missing cells; means of the numbers and of their signed logs.

    The means of text columns are 0.
    """

    text: Flags
    missing: Flags
    mean: Vector
    log_mean: Vector


@step("tables.cell_counts", reveals="sums")
def local_cells(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of rows and, of each column, counts of cells by kind and two sums of its numbers.

    The kinds are numbers, other names (all, in a categorical column of pandas) and missing cells; the sums are those
    of the numbers and of their signed logs.
    """
    d = width(site)
    numbers, missing = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=np.int64)
    total, log_total = np.zeros(d), np.zeros(d)
    for block in number_blocks(site):
        is_number = ~np.isnan(block.values)
        values = np.where(is_number, block.values, 0.0)
        numbers += is_number.sum(axis=0)
        missing += block.missing
        total += values.sum(axis=0)
        log_total += signed_log(values).sum(axis=0)
    filled = len(site) - missing
    names = np.where(declared_categories(site), filled, filled - numbers)
    counts = {"rows": len(site), "numbers": numbers, "names": names, "missing": missing}
    return {**counts, "sum": total, "log_sum": log_total}


@step("tables.power_sums", reveals="sums")
def local_powers(site: Site, wanted: Flags, centre: Vector, log_centre: Vector) -> dict[str, Any]:
    """Leaves the site: of each wanted column, the count of numbers, sums of four powers of them and of their logs.

    The powers are about `centre`, in units of its size; those of the signed logs about `log_centre`.
    """
    unit = _unit(centre)
    n = np.zeros(len(wanted), dtype=np.int64)
    powers, log_powers = np.zeros((4, len(wanted))), np.zeros((4, len(wanted)))
    for block in number_blocks(site):
        is_number = wanted & ~np.isnan(block.values)
        n += is_number.sum(axis=0)
        powers += _powers(np.where(is_number, (block.values - centre) / unit, 0.0))
        log_powers += _powers(np.where(is_number, signed_log(block.values) - log_centre, 0.0))
    return {"n": n, "powers": powers, "log_powers": log_powers}


def column_kinds(fed: Federation, *, known: NDArray[np.int8], votes: bool = False) -> ColumnKinds:
    """Return the kinds of the columns; `known` (d,) states for each whether it is `NUMBERS`, `TEXT` or `UNKNOWN`."""
    return _by_votes(fed, known) if votes else _by_sums(fed, known)


def _by_sums(fed: Federation, known: NDArray[np.int8]) -> ColumnKinds:
    total = fed.sum(local_cells)
    if total["rows"] <= 0:
        raise InputError("the sites have no rows: there is nothing to learn from")
    text = _settled(known, total["numbers"], total["names"])
    missing = np.where(text, total["missing"] > 0, total["numbers"] < total["rows"])
    n = np.maximum(total["numbers"], 1)
    means = [np.where(text, 0.0, total[key] / n) for key in ("sum", "log_sum")]
    for mean in means:  # before sites square their distance from it
        if np.any(np.abs(mean) > LARGEST):
            column = int(np.argmax(np.abs(mean)))
            raise InputError(
                f"the sums of column number {column} give a mean of {mean[column]:g}, and no site counts numbers "
                f"beyond {LARGEST:g}: some site sends wrong sums; an aggregator bounds its effect"
            )
    return ColumnKinds(text, missing, *means)


def _by_votes(fed: Federation, known: NDArray[np.int8]) -> ColumnKinds:
    replies = fed.ask(local_cells)
    numbers, names, missing = (replies.stack(key) for key in ("numbers", "names", "missing"))
    is_text = (names > 0) & (names >= numbers)
    text = _settled(known, np.sum(~is_text & (numbers > 0), axis=0), np.sum(is_text, axis=0))
    lacking = np.where(text, missing > 0, numbers < replies.stack("rows")[:, None])
    means = []
    for key in ("sum", "log_sum"):
        # Clipped to what cells can hold, because only malicious sites may have numbers in a column.
        mean = np.clip(replies.stack(key) / np.maximum(numbers, 1), -LARGEST, LARGEST)
        median = _median(np.where(numbers > 0, mean, np.nan))
        means.append(np.where(text | np.isnan(median), 0.0, median))
    # One site is enough here: a false report costs a column that holds no information, but if honest gaps were
    # outvoted, all rows that have them would stand out as unexpected.
    return ColumnKinds(text, np.asarray(lacking.any(axis=0)), *means)


def _settled(known: NDArray[np.int8], numbers: Counts, names: Counts) -> Flags:
    return np.where(known == UNKNOWN, (names > 0) & (names >= numbers), known == TEXT)


def heavy_tails(fed: Federation, *, wanted: Flags, centre: Vector, log_centre: Vector, votes: bool = False) -> Flags:
    """Return the `wanted` columns (d,) that should become logarithms.

    `centre` and `log_centre` (d,) are about the means of the numbers and of their signed logs.
    """
    payload = {"wanted": wanted, "centre": centre, "log_centre": log_centre}
    centres = {"powers": centre / _unit(centre), "log_powers": log_centre}
    if votes:
        replies = fed.ask(local_powers, **payload)
        n = replies.stack("n")
        stacks = {key: np.moveaxis(replies.stack(key), 0, 1) for key in centres}
        plain, logged = (_median(kurtosis(n, stacks[key], centres[key])) for key in centres)
    else:
        total = fed.sum(local_powers, **payload)
        plain, logged = (kurtosis(total["n"], total[key], centres[key]) for key in centres)
    heavy = (plain > _HEAVY) & (logged <= _TAMED * plain)
    return wanted & (heavy | np.isnan(plain))


def kurtosis(n: Counts, powers: Vector, centre: Vector) -> Vector:
    """Return the kurtosis from `powers` (4, ..., d), sums of powers about `centre`; NaN where there is no variance.

    Examples
    --------
    >>> kurtosis(np.array([2]), np.array([[0.0], [2.0], [0.0], [2.0]]), np.zeros(1))  # of -1 and 1
    array([1.])
    """
    eps = np.finfo(np.float64).eps
    with np.errstate(all="ignore"):  # finite sums of a malicious site may overflow: then the kurtosis is unknown
        m1, m2, m3, m4 = powers / np.maximum(n, 1)
        variance = m2 - m1**2
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        found = np.where(variance > eps * np.maximum(m2, eps * (n * centre) ** 2), fourth / variance / variance, np.nan)
    return np.where(np.isfinite(found), found, np.nan)


def _unit(centre: Vector) -> Vector:
    """Return powers of two of the size of `centre`, at least 1.

    They change no bit of a kurtosis, and keep fourth powers of large numbers within the range of a secure sum.
    """
    return np.ldexp(1.0, np.maximum(np.frexp(centre)[1], 0))


def _powers(distances: Vector) -> Vector:
    """Return the sums of the first four powers of each column of `distances` (n, d)."""
    squares = distances * distances
    products = [np.einsum("ij,ij->j", squares, factor) for factor in (distances, squares)]
    return np.array([distances.sum(axis=0), squares.sum(axis=0), *products])


def _median(values: Vector) -> Vector:
    """Return the median (d,) over the sites (L, d) whose value is not NaN; NaN where no site has one."""
    some = ~np.isnan(values).all(axis=0)
    median = np.full(values.shape[1], np.nan)
    median[some] = np.nanmedian(values[:, some], axis=0)
    return median

"""The kinds of columns of mixed tables: text, numbers, and numbers with heavy tails.

A column is text where at least as many of its cells are names as are numbers, over all sites. At a site that disagrees
the cells that do not read as numbers count as missing. Up per site: 6 d numbers, of which only the sum is needed.

A column of numbers has a heavy tail where its kurtosis is above 6, that of a Laplace distribution. A signed logarithm
must at least halve it. So columns of two values, which a logarithm only shifts and scales, stay as they are. A column
without variance becomes logarithms, too: a first large value is then not 1e9 away from the rest, but 20. Up per site: 9
d numbers, of which only the sum is needed.

With `votes`, where some sites may be malicious, every site has one vote instead of as many as it has cells. Medians of
the sites' means and kurtoses replace those of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.arrays import Counts
from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.calling import StepLike
from fedspan.federation.site.parameters import Flags, Vector
from fedspan.gateway.cell_text import LARGEST
from fedspan.sums.row_blocks import width
from fedspan.tables.parts.cells import declared_categories, number_blocks, signed_log

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

    The kinds are numbers, other names (all, in a categorical column of pandas) and missing cells. The sums are those
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
    found = by_site_or_sum(votes, fed, local_cells)
    numbers, names, rows = found["numbers"], found["names"], found["rows"]
    if not votes and rows[0] <= 0:
        raise InputError("the sites have no rows: there is nothing to learn from")
    is_text = (names > 0) & (names >= numbers)
    against, in_favour = np.sum(~is_text & (numbers > 0), axis=0), np.sum(is_text, axis=0)
    text = np.where(known == UNKNOWN, (in_favour > 0) & (in_favour >= against), known == TEXT)
    means = []
    for key in ("sum", "log_sum"):
        each = found[key] / np.maximum(numbers, 1)
        if votes:  # only malicious sites may have numbers in a column
            each = np.clip(each, -LARGEST, LARGEST)
        mean = _median(np.where(numbers > 0, each, np.nan))
        mean = np.where(text | np.isnan(mean), 0.0, mean)
        if np.any(np.abs(mean) > LARGEST):  # refuse it before sites square their distance from it
            column = int(np.argmax(np.abs(mean)))
            raise InputError(
                f"the sums of column number {column} give a mean of {mean[column]:g}, and no site counts numbers "
                f"beyond {LARGEST:g}: some site sends wrong sums; an aggregator bounds its effect"
            )
        means.append(mean)
    # A vote of one site is enough here: a false one costs a column that holds no information. If honest gaps were
    # outvoted, all rows that have them would stand out as unexpected.
    missing = np.where(text, found["missing"] > 0, numbers < rows[:, None]).any(axis=0)
    return ColumnKinds(text, np.asarray(missing), *means)


def heavy_tails(fed: Federation, *, wanted: Flags, centre: Vector, log_centre: Vector, votes: bool = False) -> Flags:
    """Return the `wanted` columns (d,) that should become logarithms.

    `centre` and `log_centre` (d,) are about the means of the numbers and of their signed logs.
    """
    found = by_site_or_sum(votes, fed, local_powers, wanted=wanted, centre=centre, log_centre=log_centre)
    centres = {"powers": centre / _unit(centre), "log_powers": log_centre}
    plain, logged = (
        _median(kurtosis(found["n"], np.moveaxis(found[key], 0, 1), about)) for key, about in centres.items()
    )
    heavy = (plain > _HEAVY) & (logged <= _TAMED * plain)
    return wanted & (heavy | np.isnan(plain))


def by_site_or_sum(votes: bool, fed: Federation, step: StepLike, **payload: object) -> dict[str, NDArray[Any]]:
    """Return the values of each key of a step, stacked by site (L, ...); without `votes` their sum (1, ...)."""
    if votes:
        replies = fed.ask(step, **payload)
        return {key: replies.stack(key) for key in replies[next(iter(replies))]}
    return {key: np.asarray(value)[None] for key, value in fed.sum(step, **payload).items()}


def kurtosis(n: Counts, powers: Vector, centre: Vector) -> Vector:
    """Return the kurtosis from `powers` (4, ..., d), sums of powers about `centre`; NaN where there is no variance."""
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

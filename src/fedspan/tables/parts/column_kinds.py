"""Which columns of mixed tables are numbers and which are text, where cells are missing, and the means of the numbers.

A column is text where at least as many of its cells are names as are numbers, over all sites. At a site that disagrees
the cells that do not read as numbers count as missing. Up per site: 6 d numbers, of which only the sum is needed.

With `votes`, for where some sites may lie, every site has one vote instead of as many as it has cells, and means are
medians of the sites' means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.sums.row_blocks import width
from fedspan.tables.parts.cell_text import LARGEST
from fedspan.tables.parts.cells import declared_categories, number_blocks, signed_log

Mask = NDArray[np.bool_]
Vector = NDArray[np.float64]
Counts = NDArray[np.int64]

#: What may be known of a column beforehand.
NUMBERS, TEXT, UNKNOWN = 0, 1, -1


@dataclass(frozen=True)
class ColumnKinds:
    """Which columns (d,) are text and which have missing cells; means of the numbers and of their signed logs.

    The means of text columns are 0.
    """

    text: Mask
    missing: Mask
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


def column_kinds(fed: Federation, *, known: NDArray[np.int8], votes: bool = False) -> ColumnKinds:
    """Return the kinds of the columns; `known` (d,) says of each whether it is `NUMBERS`, `TEXT` or `UNKNOWN`."""
    return _by_votes(fed, known) if votes else _by_sums(fed, known)


def _by_sums(fed: Federation, known: NDArray[np.int8]) -> ColumnKinds:
    total = fed.sum(local_cells)
    if total["rows"] <= 0:
        raise InputError("the sites have no rows: there is nothing to learn from")
    text = _settled(known, total["numbers"], total["names"])
    missing = np.where(text, total["missing"] > 0, total["numbers"] < total["rows"])
    n = np.maximum(total["numbers"], 1)
    means = [np.where(text, 0.0, total[key] / n) for key in ("sum", "log_sum")]
    for mean in means:
        _refuse_incredible(mean)
    return ColumnKinds(text, missing, *means)


def _by_votes(fed: Federation, known: NDArray[np.int8]) -> ColumnKinds:
    replies = fed.ask(local_cells)
    numbers, names, missing = (replies.stack(key) for key in ("numbers", "names", "missing"))
    is_text = (names > 0) & (names >= numbers)
    text = _settled(known, np.sum(~is_text & (numbers > 0), axis=0), np.sum(is_text, axis=0))
    lacking = np.where(text, missing > 0, numbers < replies.stack("rows")[:, None])
    means = [np.where(text, 0.0, _median(replies.stack(key), numbers)) for key in ("sum", "log_sum")]
    # One site is enough here: a lie costs a column that tells nothing, but if honest gaps were outvoted, all rows that
    # have them would stand out as unexpected.
    return ColumnKinds(text, np.asarray(lacking.any(axis=0)), *means)


def _settled(known: NDArray[np.int8], numbers: Counts, names: Counts) -> Mask:
    return np.where(known == UNKNOWN, (names > 0) & (names >= numbers), known == TEXT)


def _median(sums: Vector, counts: Counts) -> Vector:
    """Return the median of the sites' means of each column (d,), over the sites that have any numbers there.

    Where only liars have any it is theirs, so that it is cut to what cells can hold.
    """
    means = np.where(counts > 0, np.clip(sums / np.maximum(counts, 1), -LARGEST, LARGEST), np.nan)
    some = ~np.isnan(means).all(axis=0)
    median = np.zeros(means.shape[1])
    median[some] = np.nanmedian(means[:, some], axis=0)
    return median


def _refuse_incredible(means: Vector) -> None:
    """Refuse means that no honest sums can have, before sites square their distance from them."""
    if np.any(np.abs(means) > LARGEST):
        column = int(np.argmax(np.abs(means)))
        raise InputError(
            f"the sums of column number {column} give a mean of {means[column]:g}, and no site counts numbers beyond "
            f"{LARGEST:g}: some site sends wrong sums; an aggregator bounds what it can do"
        )

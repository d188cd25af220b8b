"""What a description knows of a table before it counts: names and kinds of columns, names of categories, groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.errors import InputError
from fedspan.federation import Federation, Site, step
from fedspan.federation.site.parameters import Flags, Vector
from fedspan.gateway.cell_text import LARGEST
from fedspan.statistics.describe.parts.grouped_rows import SITES, Grouping
from fedspan.sums.columns import agree_on_columns, column_number
from fedspan.sums.plausible_totals import whole
from fedspan.sums.row_blocks import width
from fedspan.tables.parts import encoder_parameters as parameters
from fedspan.tables.parts.category_union import category_union
from fedspan.tables.parts.cells import declared_categories, number_blocks
from fedspan.tables.parts.column_kinds import TEXT, UNKNOWN

#: The word for sites as groups.
SITE = "site"
#: No site sends more names of a column than this, so that shorter lists are complete.
_LONGEST_LIST = 256
MOST_GROUPS = 256


@step("describe.cell_kinds", reveals="sums")
def local_cell_kinds(site: Site) -> dict[str, Any]:
    """Leaves the site: its number of rows and, of each column, the numbers and other names in it, and a sum.

    In a categorical column of pandas all cells are names. The sum is that of the numbers.
    """
    d = width(site)
    numbers, missing, total = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=np.int64), np.zeros(d)
    for block in number_blocks(site):
        sums = block.values.sum(axis=0)
        gaps = np.isnan(sums)  # most columns have none
        numbers += len(block.values)
        if gaps.any():
            known = ~np.isnan(block.values[:, gaps])
            sums[gaps] = np.where(known, block.values[:, gaps], 0.0).sum(axis=0)
            numbers[gaps] += known.sum(axis=0) - len(known)
        missing += block.missing
        total += sums
    filled = len(site) - missing
    names = np.where(declared_categories(site), filled, filled - numbers)
    return {"rows": len(site), "numbers": numbers, "names": names, "sum": total}


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table: names, which are text (d,), about the means of the others, and names of categories.

    `categories` are by column number; a column of text without an entry has names that no site may send.
    """

    names: tuple[str, ...]
    text: Flags
    mean: Vector
    categories: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers of the columns that hold numbers."""
        return np.flatnonzero(~self.text).astype(np.int64)

    def complete(self, column: int) -> bool:
        """Whether the names of a column of text are all of its names."""
        return column in self.categories and len(self.categories[column]) < _LONGEST_LIST


def federation_of(given: Any, what: str) -> Federation:
    """Return a federation as it is, and refuse a table, with the way out."""
    if not isinstance(given, Federation):
        raise InputError(
            f"{what} takes a federation, and this is a {type(given).__name__}: fedspan.federate(table, sites=...) "
            "makes one"
        )
    return given


def named_columns(seen: Federation) -> tuple[tuple[str, ...], Federation]:
    """Return the names of the columns, and the federation without sites that have others."""
    columns, seen = agree_on_columns(seen, text=True)
    names = columns.names or tuple(f"x{i}" for i in range(columns.count))
    parameters.refuse_doubles(names)
    return names, seen


def position(column: Any, names: Sequence[str], parameter: str) -> int:
    """Return the number of a column that a parameter names, or numbers."""
    return column_number(parameter, column, names, len(names))


def text_columns(by: str | int | None, names: Sequence[str]) -> list[int]:
    """Return the number of the column of groups, which is text, if `by` names one; else none."""
    return [position(by, names, "by")] if isinstance(by, int) or by in names else []


def read_columns(
    seen: Federation,
    names: tuple[str, ...],
    *,
    categorical: Any = "auto",
    categories: Mapping[Any, Sequence[Any]] | None = None,
    as_text: Sequence[int] = (),
    min_count: int = 1,
    list_names: bool = True,
) -> tuple[TableColumns, Federation]:
    """Return kinds and categories of the columns; the columns `as_text` are text whatever they hold.

    Without `list_names` no site sends names.
    """
    if not (parameters.is_auto(categorical) or isinstance(categorical, Sequence)):
        raise InputError(f"categorical={categorical!r} must be 'auto' or a list of columns")
    fixed = parameters.fixed_names(categories, names)
    known = parameters.known_kinds(categorical, fixed, names)
    known[list(as_text)] = TEXT
    text, mean = _kinds(seen, known)
    wanted = np.array([j for j in np.flatnonzero(text).tolist() if j not in fixed], dtype=np.int64)
    found = {j: tuple(text for text in texts if text) for j, texts in fixed.items()}
    if len(wanted) and list_names and not seen.policy.secure_sum:  # a secure sum hides names: they are not sums
        union, seen = category_union(seen, wanted=wanted, max_categories=_LONGEST_LIST // 8, min_count=min_count)
        found |= dict(zip(wanted.tolist(), map(in_order, union), strict=True))
    return TableColumns(names, text, mean, found), seen


def _kinds(seen: Federation, known: NDArray[np.int8]) -> tuple[Flags, Vector]:
    """Return which columns (d,) are text, by the rule of `column_kinds`, and the mean of the numbers in the others."""
    d = len(known)
    total = whole(seen.sum(local_cell_kinds), rows=(), numbers=(d,), names=(d,), sum=(d,))
    if total["rows"] <= 0:
        raise InputError("the sites have no rows: there is nothing to describe")
    names, numbers = total["names"], total["numbers"]
    text = np.where(known == UNKNOWN, (names > 0) & (names >= numbers), known == TEXT)
    mean = np.where(text, 0.0, total["sum"] / np.maximum(numbers, 1))
    return text, np.clip(mean, -LARGEST, LARGEST)


def public_columns(names: tuple[str, ...], categories: Mapping[Any, Sequence[Any]] | None) -> TableColumns:
    """Return the columns as the caller describes them, without a request: those with `categories` are text."""
    fixed = parameters.fixed_names(categories, names)
    text = parameters.known_kinds([], fixed, names) == TEXT
    found = {j: tuple(name for name in texts if name) for j, texts in fixed.items()}
    return TableColumns(names, text, np.zeros(len(names)), found)


def grouping_of(by: Any, columns: TableColumns, seen: Federation) -> Grouping:
    """Return the groups that a column holds, or the sites."""
    if by is None:
        return Grouping()
    if by == SITE and SITE not in columns.names:
        seen.need_single_replies(f"by={SITE!r}")
        return Grouping(SITES, seen.sites)
    j = position(by, columns.names, "by")
    if j not in columns.categories:
        raise InputError(
            f"by={by!r} has groups whose names no site may send under secure sums: list them, "
            f"categories={{{columns.names[j]!r}: [...]}}"
        )
    groups = columns.categories[j]
    if len(groups) > MOST_GROUPS:
        raise InputError(f"by={by!r} has {len(groups)} names, and a description has at most {MOST_GROUPS} groups")
    return Grouping(j, groups)


def in_order(names: Sequence[str]) -> tuple[str, ...]:
    """Return names in the order of numbers where all are numbers, else in that of text.

    >>> in_order(["10", "9"]), in_order(["10", "9", "a"])
    (('9', '10'), ('10', '9', 'a'))
    """
    try:
        return tuple(sorted(names, key=lambda text: (float(text), text)))
    except ValueError:
        return tuple(sorted(names))

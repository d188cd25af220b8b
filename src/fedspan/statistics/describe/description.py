"""The result of `describe`: numbers by column and group, as data frames and as a "Table 1"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.checks import needs_pandas
from fedspan.federation import RunRecord
from fedspan.federation.site.parameters import Matrix, Stack, Vector
from fedspan.statistics.describe.parts.group_tests import GroupTest
from fedspan.statistics.describe.parts.shown_frame import ShownFrame

if TYPE_CHECKING:
    import pandas as pd

ALL = "(all)"
OTHER, MISSING = "(other)", "(missing)"


@dataclass(frozen=True)
class CategoryCounts:
    """The names of a column of text, then ``(other)`` and ``(missing)``, with their counts (1 + G, names + 2)."""

    names: tuple[str, ...]
    counts: Matrix


@dataclass(frozen=True)
class GroupDifference:
    """How the groups differ in a column: tests, and the largest standardised difference between two groups."""

    column: str
    tests: tuple[GroupTest, ...]
    apart: float


@dataclass(frozen=True, repr=False)
class Description(ShownFrame):
    """What `describe` found. The first entry of every array is about the rows of all groups, the others about each.

    Attributes
    ----------
    columns, kinds : tuple of str
        The columns, and whether each holds a ``"number"`` or ``"text"``.
    by : str
        The column of the groups, ``"site"``, or empty.
    groups : tuple of str
        Their names.
    levels : tuple of float
        Of the quantiles.
    rows : array (1 + G,)
        Numbers of rows. NaN, here and below: suppressed, or there is no such number.
    count, missing, mean, std, min, max : array (1 + G, d)
    quantiles : array (levels, 1 + G, d)
    unique : array (d,)
        Numbers of distinct names of columns of text.
    categories : dict of str to CategoryCounts
    differences : tuple of GroupDifference
        Tests between the groups of which nothing is suppressed.
    least_set : int
        Cells of fewer rows are suppressed.
    sites : tuple of str
    run_ : RunRecord
    """

    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    by: str
    groups: tuple[str, ...]
    levels: tuple[float, ...]
    rows: Vector
    count: Matrix
    missing: Matrix
    mean: Matrix
    std: Matrix
    min: Matrix
    max: Matrix
    quantiles: Stack
    unique: Vector
    categories: dict[str, CategoryCounts]
    differences: tuple[GroupDifference, ...]
    least_set: int
    sites: tuple[str, ...]

    run_ = RunRecord("describe", {}, number=0, seed=0, sites=())

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each column of the data, with groups for each column and group.

        The columns are those of ``pandas.DataFrame.describe(include="all")``, and the number of missing cells.
        """
        needs_pandas()
        import pandas as pd

        G = 1 + len(self.groups)
        top = [self._top(column, g) for column in self.columns for g in range(G)]
        text = np.array([kind == "text" for kind in self.kinds])
        found: dict[str, Any] = {"count": self.count.T.ravel(), "missing": self.missing.T.ravel()}
        if text.any():
            found |= {"unique": np.repeat(self.unique, G), "top": [name for name, _ in top]}
            found |= {"freq": [count for _, count in top]}
        found |= {"mean": self.mean.T.ravel(), "std": self.std.T.ravel(), "min": self.min.T.ravel()}
        for level, values in zip(self.levels, self.quantiles, strict=True):
            found[f"{100 * level:g}%"] = values.T.ravel()
        found["max"] = self.max.T.ravel()
        if not self.by:
            return pd.DataFrame(found, index=pd.Index(self.columns))
        index = pd.MultiIndex.from_product([self.columns, [ALL, *self.groups]], names=["column", self.by])
        return pd.DataFrame(found, index=index)

    def categories_frame(self) -> pd.DataFrame:
        """Return the number of rows of each name of each column of text: a column for all rows, one for each group."""
        needs_pandas()
        import pandas as pd

        index = [(column, name) for column, found in self.categories.items() for name in (*found.names, OTHER, MISSING)]
        counts = [found.counts.T for found in self.categories.values()]
        shape = (0, 1 + len(self.groups))
        return pd.DataFrame(
            np.concatenate([np.zeros(shape), *counts]),
            index=pd.MultiIndex.from_tuples(index, names=["column", "name"]),
            columns=[ALL, *self.groups],
        )

    def table_one(self) -> pd.DataFrame:
        """Return a "Table 1": as text, for each column and name its mean and deviation, or count and share, by group.

        With groups there are p values of the tests, and the largest standardised difference ("SMD"). Where a group has
        the name of such a column, the column is in brackets. Suppressed cells are empty.
        """
        needs_pandas()
        import pandas as pd

        index: list[tuple[str, str]] = [("n", "")]
        lines: list[list[str]] = [[_whole(value) for value in self.rows]]
        tests = {found.column: found for found in self.differences}
        empty = ["", "", ""]
        ends: list[list[str]] = [empty]
        for j, column in enumerate(self.columns):
            if column == self.by:
                continue
            end = _ends(tests.get(column))
            if self.kinds[j] == "number":
                index.append((column, "mean (deviation)"))
                lines.append([_pair(*pair) for pair in zip(self.mean[:, j], self.std[:, j], strict=True)])
            elif column in self.categories:
                found = self.categories[column]
                known = np.nansum(found.counts[:, :-1], axis=1)
                hidden = np.isnan(found.counts[:, :-1]).any(axis=1)
                for name, counts in zip((*found.names, OTHER), found.counts.T, strict=False):
                    if name == OTHER and counts[0] == 0:
                        continue
                    index.append((column, name))
                    total = np.where(hidden, self.count[:, j], known)
                    lines.append([_share(*pair) for pair in zip(counts, total, strict=True)])
                    ends.append(end)
                    end = empty
                continue
            else:
                index.append((column, "count"))
                lines.append([_whole(value) for value in self.count[:, j]])
            ends.append(end)
        frame = pd.DataFrame(
            lines, index=pd.MultiIndex.from_tuples(index, names=["column", "of"]), columns=[ALL, *self.groups]
        )
        if self.by:
            frame[apart_from(("test", "p", "SMD"), self.groups)] = ends
        return frame

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html())

    def _top(self, column: str, g: int) -> tuple[str | None, float]:
        """Return the most frequent name of a column in a group, and its count."""
        found = self.categories.get(column)
        if found is None or not found.names or not np.any(found.counts[g, :-2] > 0):
            return None, math.nan
        best = int(np.nanargmax(found.counts[g, :-2]))
        return found.names[best], float(found.counts[g, best])


def apart_from(names: Sequence[str], groups: Sequence[str]) -> list[str]:
    """Return names of columns, in brackets where a group has the same name.

    >>> apart_from(("test", "p"), ("control", "test"))
    ['(test)', 'p']
    """
    return [f"({name})" if name in groups else name for name in names]


def _ends(found: GroupDifference | None) -> list[str]:
    if found is None or all(math.isnan(test.p) for test in found.tests):
        return ["", "", ""]
    p = " / ".join("" if math.isnan(test.p) else f"{test.p:.3g}" for test in found.tests)
    return [" / ".join(test.name for test in found.tests), p, "" if math.isnan(found.apart) else f"{found.apart:.3f}"]


def _whole(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.0f}"


def _pair(mean: float, std: float) -> str:
    """Return a mean and a deviation, with as many decimals as show three digits of the deviation."""
    if math.isnan(mean):
        return ""
    if not 1e-4 < std < 1e6:
        return f"{mean:.4g} ({std:.4g})"
    decimals = max(0, 2 - math.floor(math.log10(std)))
    return f"{mean:.{decimals}f} ({std:.{decimals}f})"


def _share(count: float, total: float) -> str:
    if math.isnan(count):
        return ""
    return f"{count:.0f}" + (f" ({100 * count / total:.1f}%)" if total > 0 else "")

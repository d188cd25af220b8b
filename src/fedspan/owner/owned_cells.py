"""The cells of a site in an ``.h5ad`` file: features are genes; target and task are columns of ``obs``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.datasets.sources.cell_source import CellSource
from fedspan.datasets.sources.cell_table import CellTable
from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.federation.site.noise_query import SiteLedger
from fedspan.owner.site_file import RowsPlan


@dataclass(frozen=True)
class CellRows:
    """The cells of a site, whose counts stay in the file."""

    plan: RowsPlan
    table: CellTable

    def __len__(self) -> int:
        return len(self.table)

    @property
    def features(self) -> list[str]:
        """Names of the genes."""
        return self.table.columns

    def kinds(self) -> dict[str, str]:
        """Return the kind of each gene's counts."""
        return dict.fromkeys(self.features, "number")

    def site(self, name: str, ledger: SiteLedger | None) -> Site:
        """Make the site."""
        found = [self._values(column) for column in self.plan.target]
        target = np.column_stack(found) if len(found) > 1 else next(iter(found), None)
        task = None if self.plan.task is None else self._values(self.plan.task)
        return Site(name, self.table, target, task, ledger=ledger)

    def problems(self, level: str, schema: bool) -> list[str]:
        """Return why the cells can't be used, one sentence each."""
        found = []
        if level == "aggregate":
            found.append(
                "cells can't be used at level = 'aggregate', which keeps moments of all columns: choose another level"
            )
        if schema:
            found.append("a schema is for tables, and the genes of a file of cells have no kinds: leave it out")
        return found

    def _values(self, name: str) -> NDArray[Any]:
        values = self.table.obs(name)
        if values.dtype.kind in "buif":
            return values
        missing = sum(value is None or isinstance(value, float) for value in values.tolist())
        if missing:
            raise InputError(f"column {name!r} of obs is missing in {missing} cells: fill it in, or leave it out")
        return values.astype(str)


def read_cells(plan: RowsPlan, source: CellSource) -> CellRows:
    """Open a file of cells; only the genes that the site's file keeps are ever read."""
    if plan.where is not None:
        raise InputError(f"{source.label}: where = '...' is for tables: leave out cells in the file itself")
    table = source.cells()
    lacks = [name for name in (*(plan.columns or ()), *plan.drop) if name not in set(table.columns)]
    if lacks:
        raise InputError(f"{source.label} has no gene {lacks[0]!r}")
    dropped = set(plan.drop)
    kept = plan.columns or [name for name in table.columns if name not in dropped]
    if list(kept) != table.columns:
        table = CellTable(table.data, layer=source.layer, genes=list(kept))
    return CellRows(plan, table)

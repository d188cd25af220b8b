"""A site's rows as its owner describes them: columns, label, task and filter, of one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fedspan.datasets.sources import RowFilter, TableSource
from fedspan.datasets.sources.iso_times import with_times
from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.federation.site.noise_query import SiteLedger

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RowsPlan:
    """Where the rows are and which of them, and of their columns, the federation may learn from."""

    source: TableSource
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    label: str | None = None
    task: str | None = None
    where: RowFilter | None = None

    @property
    def apart(self) -> tuple[str, ...]:
        """The columns that are not part of X."""
        return tuple(dict.fromkeys(name for name in (self.label, self.task) if name is not None))

    def read(self, times: tuple[str, ...] = ()) -> Rows:
        """Read the table; only what the plan keeps is ever held. Text in the columns `times` is made times."""
        features: list[str] = []

        def choose(names: Sequence[str]) -> Sequence[str]:
            for name in (*(self.columns or ()), *self.drop, *self.apart):
                if name not in names:
                    raise InputError(f"{self.source.label} has no column {name!r}; it has {_some(names)}")
            out = {*self.drop, *self.apart}
            features[:] = self.columns or [name for name in names if name not in out]
            if not features:
                raise InputError(f"{self.source.label} has no columns left: drop, label and task take all of them")
            return list(dict.fromkeys([*features, *self.apart]))

        frame = self.source.read(choose, self.where)
        return Rows(self, with_times(frame, times), features)


@dataclass(frozen=True)
class Rows:
    """What was read: `frame` has the `features` first, then label and task."""

    plan: RowsPlan
    frame: pd.DataFrame
    features: list[str]

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def X(self) -> pd.DataFrame:
        """The features, without a copy."""
        return self.frame.iloc[:, : len(self.features)]

    def site(self, name: str, ledger: SiteLedger | None) -> Site:
        """Return the site."""
        return Site(name, self.X, self._values(self.plan.label), self._values(self.plan.task), ledger=ledger)

    def _values(self, name: str | None) -> NDArray[Any] | None:
        """Return the label or the task of each row. Missing numbers stay NaN; missing text is refused."""
        if name is None:
            return None
        column = self.frame[name]
        if getattr(column.dtype, "kind", "O") in "buif" and (name == self.plan.label or not column.isna().any()):
            return column.to_numpy()
        if column.isna().any():
            raise InputError(
                f"column {name!r}, the {'label' if name == self.plan.label else 'task'}, is missing in "
                f"{int(column.isna().sum())} rows: leave them out with where = '\"{name}\" is not null'"
            )
        return column.astype(str).to_numpy(dtype=str)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20]))
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"

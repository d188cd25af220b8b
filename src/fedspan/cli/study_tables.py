"""A study's tables: one per site, or one with a site column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fedspan.cli.study_file import DataPlan
from fedspan.datasets.sources import read_table
from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.federation.site_labels import site_rows

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SiteTable:
    """One site's rows as a data frame, and their labels if the study names some."""

    name: str
    frame: pd.DataFrame
    labels: NDArray[Any] | None

    def site(self) -> Site:
        """Return the site."""
        return Site(self.name, self.frame)


def read_tables(plan: DataPlan, *, text: bool = False) -> list[SiteTable]:
    """Read and check all tables: the same columns everywhere, of numbers unless there may be `text`."""
    if plan.file is not None:
        parts = _split(read_table(plan.file), plan)
    else:
        parts = {name: (read_table(file), str(file)) for name, file in sorted(plan.files.items())}
    columns: list[str] | None = None
    tables = []
    for name, (frame, where) in parts.items():
        table = _site_table(name, frame, where, plan)
        if not text:
            _check_numbers(table, where)
        if columns is None:
            columns, first = list(table.frame.columns), name
        _check_columns(table, columns, first, where)
        tables.append(table)
    if not tables:
        raise InputError("the study has no sites")
    return tables


def _split(frame: pd.DataFrame, plan: DataPlan) -> dict[str, tuple[pd.DataFrame, str]]:
    if plan.site_column not in frame.columns:
        raise InputError(f"{plan.file} has no column {plan.site_column!r} to tell its sites by")
    labels = frame[plan.site_column]
    if labels.isna().any():
        raise InputError(f"{plan.file}: {int(labels.isna().sum())} rows have no value in {plan.site_column!r}")
    frame = frame.drop(columns=[plan.site_column])
    rows = site_rows(labels.to_numpy(), len(frame))
    return {name: (frame.iloc[index], str(plan.file)) for name, index in rows.items()}


def _site_table(name: str, frame: pd.DataFrame, where: str, plan: DataPlan) -> SiteTable:
    labels = None
    if plan.label is not None:
        if plan.label not in frame.columns:
            raise InputError(f"site {name!r} ({where}) has no column {plan.label!r} for the label")
        labels = frame[plan.label].astype(str).to_numpy()
        frame = frame.drop(columns=[plan.label])
    missing = [column for column in (*plan.drop, *(plan.features or ())) if column not in frame.columns]
    if missing:
        raise InputError(f"site {name!r} ({where}) has no column {missing[0]!r}")
    frame = frame.drop(columns=list(plan.drop))
    if plan.features is not None:
        frame = frame[list(plan.features)]
    if not len(frame):
        raise InputError(f"site {name!r} ({where}) has no rows")
    return SiteTable(name, frame, labels)


def _check_numbers(table: SiteTable, where: str) -> None:
    for column, dtype in table.frame.dtypes.items():
        if dtype.kind not in "buif":
            raise InputError(
                f"site {table.name!r} ({where}): column {str(column)!r} holds {dtype}, not numbers; leave it out with "
                "'drop', name the columns to use with 'features', or let FedTabularEncoder be the first step"
            )


def _check_columns(table: SiteTable, columns: list[str], first: str, where: str) -> None:
    own = list(table.frame.columns)
    if own == columns:
        return
    lacking, extra = [c for c in columns if c not in own], [c for c in own if c not in columns]
    if lacking or extra:
        what = f"lacks {lacking[0]!r}" if lacking else f"also has {extra[0]!r}"
        raise InputError(f"site {table.name!r} ({where}) has other columns than site {first!r}: it {what}")
    raise InputError(f"site {table.name!r} ({where}) has the columns of site {first!r} in another order")

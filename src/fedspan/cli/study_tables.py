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
    tables: list[SiteTable] = []
    for name, (frame, file) in parts.items():
        tables.append(_site_table(name, frame, f"site {name!r} ({file})", plan, text))
        _check_columns(tables[-1], tables[0], file)
    if not tables:
        raise InputError("the study has no sites")
    return tables


def _split(frame: pd.DataFrame, plan: DataPlan) -> dict[str, tuple[pd.DataFrame, str]]:
    if plan.site_column not in frame.columns:
        raise InputError(
            f"{plan.file} has no site column {plan.site_column!r}; it has {', '.join(map(repr, frame.columns))}"
        )
    labels = frame[plan.site_column]
    if labels.isna().any():
        raise InputError(f"{plan.file}: {int(labels.isna().sum())} rows have no value in {plan.site_column!r}")
    frame = frame.drop(columns=[plan.site_column])
    rows = site_rows(labels.to_numpy(), len(frame))
    return {name: (frame.iloc[index], str(plan.file)) for name, index in rows.items()}


def _site_table(name: str, frame: pd.DataFrame, where: str, plan: DataPlan, text: bool) -> SiteTable:
    labels = None
    if plan.label is not None:
        if plan.label not in frame.columns:
            raise InputError(f"{where} has no column {plan.label!r} for the label")
        labels = frame[plan.label].astype(str).to_numpy()
        frame = frame.drop(columns=[plan.label])
    for column in (*plan.drop, *(plan.features or ())):
        if column not in frame.columns:
            raise InputError(f"{where} has no column {column!r}")
    frame = frame.drop(columns=list(plan.drop)) if plan.features is None else frame[list(plan.features)]
    if not len(frame):
        raise InputError(f"{where} has no rows")
    for kept, dtype in frame.dtypes.items():
        if not text and dtype.kind not in "buif":
            raise InputError(
                f"{where}: column {str(kept)!r} holds {dtype}, not numbers; leave it out with 'drop', name the "
                "columns to use with 'features', or let FedTabularEncoder be the first step"
            )
    return SiteTable(name, frame, labels)


def _check_columns(table: SiteTable, first: SiteTable, file: str) -> None:
    own, columns = list(table.frame.columns), list(first.frame.columns)
    lacking, extra = [name for name in columns if name not in own], [name for name in own if name not in columns]
    if lacking or extra:
        what = f"lacks {lacking[0]!r}" if lacking else f"also has {extra[0]!r}"
        raise InputError(f"site {table.name!r} ({file}) has other columns than site {first.name!r}: it {what}")
    if own != columns:
        raise InputError(f"site {table.name!r} ({file}) has the columns of site {first.name!r} in another order")

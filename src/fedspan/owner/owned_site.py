"""A site as its owner has set it up: its rows, its rules, its log and its budget."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.checks import first_of
from fedspan.datasets.sources import FileSource
from fedspan.datasets.sources.cell_source import CellSource
from fedspan.datasets.sources.iso_times import with_times
from fedspan.datasets.sources.streamed_table import streamed_rows
from fedspan.datasets.sources.table_source import chosen
from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.federation.site.noise_query import SiteLedger
from fedspan.federation.site.row_stream import RowStream
from fedspan.owner.admission import Admission
from fedspan.owner.audit_log import AuditLog
from fedspan.owner.decisions import Decisions
from fedspan.owner.moment_rows import as_moments, problems
from fedspan.owner.owned_cells import CellRows, read_cells
from fedspan.owner.published_rows import FewRowsChangedError, PublishedRows
from fedspan.owner.schema import differences, kind_of, times_of
from fedspan.owner.site_file import RowsPlan, SiteFile, SiteFileError, read_site_file
from fedspan.owner.streamed_cells import some_cells
from fedspan.privacy import Ledger

if TYPE_CHECKING:
    import pandas as pd


class OwnedSite:
    """A site and its owner's rules.

    The rows are read once, here, and stay as they are until `refresh`, which is for the time between runs.

    Parameters
    ----------
    file : SiteFile
        What the owner has written.
    federation : dict, optional
        The federation's schema: the kind of each column, which the data must have besides the file's own schema.

    Attributes
    ----------
    site : Site
        The rows, with the site's ledger.
    admission : Admission
        Checks requests by the owner's rules.
    """

    def __init__(self, file: SiteFile, federation: dict[str, str] | None = None) -> None:
        self.file = file
        self._federation = federation
        self._stamp, rows = self._read()
        plan = file.privacy
        self.ledger = None if plan is None else Ledger(plan.ledger, plan.epsilon, plan.delta, strict=plan.strict)
        self._kinds, self.site = rows.kinds(), self._site(rows)
        log = AuditLog(file.log)
        if self.ledger is not None and log.last_budget is not None:
            self.ledger.must_have_spent(*log.last_budget)
        self.admission = Admission(self.site, file.rules, log, self.ledger, Decisions(file.decisions))

    def refresh(self) -> bool:
        """Read the data again if they may have changed, and return whether they were read.

        A file is read if it was written or replaced since the last time; a query always runs again. A run that began
        with other data can't continue.
        """
        stamp = self.file.data.source.stamp()
        if stamp is not None and stamp == self._stamp:
            return False
        stamp, rows = self._read()
        try:
            site = self._site(rows)
        except FewRowsChangedError:  # the moments of the earlier table stay, until more rows have changed
            return False
        self._kinds, self.site = rows.kinds(), site
        self._stamp = stamp  # not before: data that could not be used are read again
        self.admission.site = self.site
        return True

    def describe(self) -> dict[str, Any]:
        """Return what others may know of this site: names, kinds and counts, no values."""
        data, rules, ledger = self.file.data, self.file.rules, self.ledger
        left = self.admission.budget_left()
        return {
            "name": self.site.name,
            "rows": len(self.site),
            "columns": dict(self._kinds),
            "label": data.label,
            "target": list(data.target) if len(data.target) > 1 else next(iter(data.target), None),
            "task": data.task,
            "steps": list(rules.steps.installed()),
            "rules": rules.in_words(),
            "approval": rules.approval,
            "budget": None if ledger is None else {"epsilon": ledger.epsilon, "delta": ledger.delta, "left": left},
        }

    def _site(self, rows: OwnedRows | CellRows) -> Site:
        """Make the site of the rows, or at the level ``aggregate`` of their moments."""
        rules = self.file.rules
        if rules.level != "aggregate" or isinstance(rows, CellRows):
            return rows.site(self.file.name, self.ledger)
        published = PublishedRows(self.file.log.with_suffix(".rows"))
        published.publish(rows.numbers(), rules.least_set)
        return rows.of_moments(published.key).site(self.file.name, self.ledger)

    def _read(self) -> tuple[object, OwnedRows | CellRows]:
        stamp = self.file.data.source.stamp()  # before: what is written meanwhile is read next time
        rows = read_rows(self.file, self._federation)
        problems = data_problems(self.file, rows, self._federation)
        if problems:
            raise SiteFileError(problems)
        return stamp, rows


@dataclass(frozen=True)
class OwnedRows:
    """The rows of a site: `frame` has the `features` first, then label, target and task."""

    plan: RowsPlan
    frame: pd.DataFrame
    features: list[str]

    def __len__(self) -> int:
        return len(self.frame)

    def kinds(self) -> dict[str, str]:
        """Return the kind of each feature."""
        return {name: kind_of(self.frame[name]) for name in self.features}

    def missing(self) -> dict[str, int]:
        """Return the number of missing cells of each column."""
        return {str(name): int(count) for name, count in self.frame.isna().sum().items()}

    def numbers(self) -> pd.DataFrame:
        """Return the features, and the target where it is numbers: what moments are of."""
        kept = [name for name in self.plan.target if self.frame[name].dtype.kind in "buif"]
        return self.frame[[*self.features, *kept]]

    def of_moments(self, key: bytes) -> OwnedRows:
        """Return rows with the same moments; label, task and a target of text are left out."""
        drawn = as_moments(self.numbers(), key)
        target = self.plan.target if set(self.plan.target) <= set(drawn.columns) else ()
        return OwnedRows(replace(self.plan, label=None, target=target, task=None), drawn, self.features)

    def site(self, name: str, ledger: SiteLedger | None) -> Site:
        """Make the site."""
        X = self.frame.iloc[:, : len(self.features)]  # without a copy
        return Site(name, X, self.target(), self.task(), ledger=ledger)

    def task(self) -> NDArray[Any] | None:
        """Return the task of each row."""
        return self._values(self.plan.task)

    def target(self) -> NDArray[Any] | None:
        """Return the target of each row: one value, or several, such as time and event."""
        found = [values for values in map(self._values, self.plan.target) if values is not None]
        return np.column_stack(found) if len(found) > 1 else next(iter(found), None)

    def _values(self, name: str | None) -> NDArray[Any] | None:
        """Return the target or the task of each row. Missing numbers stay NaN; missing text is refused."""
        if name is None:
            return None
        column = self.frame[name]
        if getattr(column.dtype, "kind", "O") in "buif" and (name in self.plan.target or not column.isna().any()):
            return column.to_numpy()
        if column.isna().any():
            raise InputError(
                f"column {name!r}, the {'target' if name in self.plan.target else 'task'}, is missing in "
                f"{int(column.isna().sum())} rows: leave them out with where = '\"{name}\" is not null'"
            )
        return column.astype(str).to_numpy(dtype=str)


@dataclass(frozen=True)
class StreamedRows(OwnedRows):
    """Rows that stay in their files; `frame` has a few cells of each column, of every sort that it has.

    Only label, target and task are in memory, in `apart`.
    """

    stream: RowStream
    apart: OwnedRows
    absent: dict[str, int]

    def __len__(self) -> int:
        return self.stream.shape[0]

    def missing(self) -> dict[str, int]:
        """Return the number of missing cells of each column."""
        return self.absent

    def site(self, name: str, ledger: SiteLedger | None) -> Site:
        """Make the site."""
        return Site(name, self.stream, self.apart.target(), self.apart.task(), ledger=ledger)


def read_rows(file: SiteFile, federation: dict[str, str] | None = None) -> OwnedRows | CellRows:
    """Read a site's table; only the columns and rows that its file keeps are ever held. Open a file of cells."""
    plan, times = file.data, times_of(file.schema, federation)
    if isinstance(plan.source, CellSource):
        return read_cells(plan, plan.source)
    apart = tuple(dict.fromkeys(name for name in (plan.label, *plan.target, plan.task) if name is not None))
    features: list[str] = []

    def choose(names: Sequence[str]) -> Sequence[str]:
        for name in (*(plan.columns or ()), *plan.drop, *apart):
            if name not in names:
                raise InputError(f"{plan.source.label} has no column {name!r}; it has {first_of(map(repr, names), 20)}")
        features[:] = plan.columns or [name for name in names if name not in {*plan.drop, *apart}]
        order = list(federation or file.schema or {})  # columns are matched by name, whatever their order
        if set(features) <= set(order):
            features.sort(key=order.index)
        if not features:
            raise InputError(f"{plan.source.label} has no columns left: drop, label, target and task take all of them")
        return list(dict.fromkeys([*features, *apart]))

    if not plan.stream:
        return OwnedRows(plan, with_times(plan.source.read(choose, plan.where), times), features)
    assert isinstance(plan.source, FileSource)
    dataset = plan.source.dataset()
    names = chosen(dataset.schema.names, choose, plan.source.label)
    stream, read = streamed_rows(dataset, features, plan.where, "its file")
    frame, absent = some_cells(read(names, 2**14), names, plan.source.label)
    values = with_times(plan.source.read(lambda _: apart, plan.where), times) if apart else frame[[]]
    return StreamedRows(plan, with_times(frame, times), features, stream, OwnedRows(plan, values, []), absent)


def data_problems(file: SiteFile, rows: OwnedRows | CellRows, federation: dict[str, str] | None = None) -> list[str]:
    """Return what is wrong with the rows of a site, one sentence each."""
    label = file.data.source.label
    if not len(rows):
        kept = " that the row filter keeps" if file.data.where is not None else ""
        return [f"{label} has no rows{kept}"]
    if isinstance(rows, CellRows):
        schema = file.schema is not None or federation is not None
        return [f"{label}: {sentence}" for sentence in rows.problems(file.rules.level, schema)]
    untimely = [name for name, kind in rows.kinds().items() if file.data.stream and kind in ("time", "duration")]
    if untimely:
        return [f"{label}: column {untimely[0]!r} holds times, which can't be streamed: drop it, or leave stream out"]
    found = [] if file.schema is None else differences(file.schema, rows.frame, rows.features)
    if file.rules.level == "aggregate":
        found += [
            f"{sentence}: at level = 'aggregate' it can't be used; name columns in drop, or leave rows out by where"
            for sentence in problems(rows.numbers(), file.rules.least_set)
        ]
    if federation is not None:
        found += differences(federation, rows.frame, rows.features, "the federation's schema")
    return [f"{label}: {sentence}" for sentence in found]


def read_owned_site(path: str | os.PathLike[str], federation: dict[str, str] | None = None) -> OwnedSite:
    """Read a site's file and its data.

    Parameters
    ----------
    path : path
        A ``site.toml``; files that it names are relative to it.
    federation : dict, optional
        The federation's schema, as the site's kit has it.

    Raises
    ------
    InputError
        With a sentence for each problem. No data are read before the whole file is checked.
    """
    file = read_site_file(Path(path))
    try:
        return OwnedSite(file, federation)
    except SiteFileError:
        raise
    except InputError as error:
        raise InputError(f"{file.path}: {error}") from None

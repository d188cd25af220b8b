"""The new rows of a study's tables since the last accepted round: behind a watermark, or at the end of the table."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedspan.cli.study.study_file import Study
from fedspan.cli.study.study_tables import SiteTable, study_tables
from fedspan.datasets.sources import CSV_ENDINGS, FileSource
from fedspan.errors import InputError

#: Rows at the end of what was taken, by which a table that was replaced is noticed.
_CHECKED = 100


@dataclass(frozen=True)
class Mark:
    """How far a site's table was taken: its number of rows, the watermark of the last one, and a digest of its end.

    The watermark is a number or text; ``None`` where the table only grows at its end.
    """

    rows: int = 0
    watermark: Any = None
    digest: str = ""


def new_tables(study: Study, marks: Mapping[str, Mark]) -> tuple[list[SiteTable], dict[str, Mark], dict[str, str]]:
    """Return the tables of the sites that have new rows, the marks behind these, and why other sites have none.

    A site whose file is missing or can't be read takes part again when it can.
    """
    absent: dict[str, str] = {}
    with ExitStack() as files:
        data = study.data
        if data.file is None:
            readable = {}
            for name, source in data.files.items():
                try:
                    readable[name] = files.enter_context(_whole_lines(source))
                except InputError as error:
                    absent[name] = str(error)
            data = replace(data, files=readable)
        else:
            data = replace(data, file=files.enter_context(_whole_lines(data.file)))
        tables = study_tables(replace(study, data=data)) if data.file or data.files else []
    found: list[SiteTable] = []
    after: dict[str, Mark] = {}
    for table in tables:
        known = marks.get(table.name, Mark())
        try:
            rows, mark = _behind(table, known)
        except InputError as error:
            absent[table.name] = str(error)
            continue
        if rows.any():
            found.append(_only(table, rows))
            after[table.name] = mark
    return found, after, absent


def _behind(table: SiteTable, known: Mark) -> tuple[Any, Mark]:
    """Return which rows (n,) are new, and the mark behind them."""
    n = len(table.frame)
    if table.watermark is None:
        if n < known.rows or _digest(table, known.rows) != (known.digest or _digest(table, known.rows)):
            raise InputError(
                f"site {table.name!r}: the table no longer begins with the {known.rows} rows that were taken: it was "
                "replaced; give its stream a folder of its own with --out, or name a watermark column in [stream]"
            )
        return np.arange(n) >= known.rows, Mark(n, None, _digest(table, n))
    values = table.watermark
    gaps = int(values.isna().sum())
    if gaps:
        raise InputError(f"site {table.name!r}: the watermark is missing in {gaps} rows: fill it in, or remove them")
    kept = values.map(_plain) if getattr(values.dtype, "kind", "O") not in "buif" else values
    new = np.ones(n, dtype=bool) if known.watermark is None else (kept > known.watermark).to_numpy()
    last = kept.max()
    return new, Mark(known.rows + int(new.sum()), last.item() if hasattr(last, "item") else last)


def _plain(value: Any) -> str:
    """Return a watermark as text that has the order of time: ISO, if it is a time."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _digest(table: SiteTable, rows: int) -> str:
    from pandas.util import hash_pandas_object

    end = table.frame.iloc[max(0, rows - _CHECKED) : rows].astype(str)
    return f"{int(np.bitwise_xor.reduce(hash_pandas_object(end, index=False).to_numpy(), initial=np.uint64(0))):016x}"


def _only(table: SiteTable, rows: Any) -> SiteTable:
    """Return some of the rows of a table."""
    labels, target, task = (None if own is None else own[rows] for own in (table.labels, table.target, table.task))
    frame = table.frame.loc[rows].reset_index(drop=True)
    return SiteTable(table.name, frame, labels, target, task, table.words)


@contextmanager
def _whole_lines(source: FileSource) -> Iterator[FileSource]:
    """Give a table without a last line that is still being written; refuse a file that has no rows yet."""
    path = Path(source.file)
    if not path.exists():
        raise InputError(f"the file {path} does not exist")
    if source.ending not in CSV_ENDINGS or path.name.lower().endswith(".gz"):
        yield source
        return
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole.count(b"\n") < 2:
        raise InputError(f"the file {path} has no rows yet")
    if len(whole) == len(content):
        yield source
        return
    descriptor, name = tempfile.mkstemp(suffix=source.ending)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(whole)
        yield replace(source, file=Path(name))
    finally:
        Path(name).unlink(missing_ok=True)

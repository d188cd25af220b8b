"""``fedspan check``: what a study would do and what would leave each site, without running it on its rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedspan.cli.console import print_line, print_table
from fedspan.cli.study.run_command import embedded, fit_all
from fedspan.cli.study.run_folder import judged_rows
from fedspan.cli.study.study_file import Study, read_study
from fedspan.cli.study.study_tables import SiteTable, study_tables, words_in_words
from fedspan.errors import FedspanError, InputError
from fedspan.federation import RunRecord
from fedspan.owner.schema import kind_of
from fedspan.report.sections.privacy_section import leaves_and_reveals

if TYPE_CHECKING:
    import pandas as pd

#: Made-up rows of a site.
_ROWS = 500
#: Different names in a made-up column of text.
_NAMES = 100


def check_study(study: Path) -> int:
    """Print what a study would do. Nothing is written."""
    plan = read_study(study)
    models = (*plan.preprocess, plan.model)
    tables = study_tables(plan)
    judged_rows(plan.report, list(tables[0].frame.columns))
    rows, columns = sum(len(table.frame) for table in tables), tables[0].frame.shape[1]
    used = plan.output.exists() and (not plan.output.is_dir() or any(plan.output.iterdir()))
    folder = f"the folder {plan.output}{', which is used already: --out names another one' if used else ''}"
    print_line(f"{study}: {len(tables)} sites, {rows:,} rows, {columns} columns; 'fedspan run' writes {folder}")
    _print_sites(tables)
    _print_columns(plan, tables)
    for line in words_in_words(tables):
        print_line(line)
    print_line(f"models: {', then '.join(type(model).__name__ for model in models)}")
    _print_leaving(_rehearsed(plan, tables), tables, plan)
    return 0


def _print_sites(tables: Sequence[SiteTable]) -> None:
    lines = [[table.name, f"{len(table.frame):,}", f"{int(table.frame.isna().sum().sum()):,}"] for table in tables]
    print_table(("site", "rows", "missing cells"), lines, ("rows", "missing cells"))


def _print_columns(plan: Study, tables: Sequence[SiteTable]) -> None:
    lines = []
    for name in tables[0].frame.columns:
        parts = [table.frame[name] for table in tables]
        kinds = sorted({kind_of(part) for part in parts if not part.isna().all()})
        missing = sum(int(part.isna().sum()) for part in parts)
        lines.append([str(name), " or ".join(kinds) or "empty", f"{missing:,}"])
    print_table(("column", "kind", "missing cells"), lines, ("missing cells",))
    uses = [f"{use}: {column}" for column, use in plan.data.apart.items()]
    uses += [f"left out: {', '.join(plan.data.drop)}"] if plan.data.drop else []
    if uses:
        print_line("not among the features: " + "; ".join(uses))


def _rehearsed(plan: Study, tables: Sequence[SiteTable]) -> list[RunRecord]:
    """Return the records of the models, fitted to made-up rows."""
    rng = np.random.default_rng(0)
    made_up = [_made_up(table, rng) for table in tables]
    try:
        with warnings.catch_warnings(), embedded(plan, made_up) as fed:
            warnings.simplefilter("ignore")
            return [model.run_ for model in fit_all((*plan.preprocess, plan.model), fed)]
    except (FedspanError, ValueError, TypeError) as error:
        raise InputError(f"{plan.path}: with made-up rows of these shapes, {error}") from None


def _print_leaving(records: Sequence[RunRecord], tables: Sequence[SiteTable], plan: Study) -> None:
    """Print each step: how often it runs, what leaves a site, what that reveals, and the bytes of a site."""
    rows = {table.name: len(table.frame) for table in tables}
    lines, up, down = [], 0.0, 0.0
    for record in records:
        steps: dict[str, list[float]] = {}
        for call in record.calls:
            _, reveals = leaves_and_reveals(call.step)
            # A reply about rows grows with them.
            sizes = [
                n * (rows[site] / min(rows[site], _ROWS) if reveals == "rows" else 1.0)
                for site, n in call.bytes_up.items()
            ]
            steps.setdefault(call.step, []).append(float(np.mean(sizes)) if sizes else 0.0)
            down += sum(call.bytes_down.values()) / max(1, len(call.bytes_down))
        for step, sizes in steps.items():
            leaves, reveals = leaves_and_reveals(step)
            lines.append([step, str(len(sizes)), leaves, reveals, _size(sum(sizes))])
            up += sum(sizes)
    columns = ("step", "calls", "what leaves each site", "reveals", "bytes of a site")
    print_table(columns, lines, ("calls", "bytes of a site"))
    print_line(f"about {_size(up)} bytes leave each site, and {_size(down)} arrive, if it takes as many rounds as here")
    if plan.policy.secure_sum:
        print_line("secure sums: of steps whose sum is needed, the coordinator sees the sum over the sites only")


def _size(count: float) -> str:
    return f"{round(count):,}"


def _made_up(table: SiteTable, rng: np.random.Generator) -> SiteTable:
    """Return a table of the same columns, kinds and gaps, with made-up values and at most `_ROWS` rows."""
    import pandas as pd

    rows = min(len(table.frame), _ROWS)
    at = np.linspace(0, len(table.frame) - 1, rows).astype(int)
    frame = pd.DataFrame({name: _cells(table.frame[name], rows, rng) for name in table.frame.columns})
    target = table.target
    if target is not None:
        parts = [_values(part, rows, rng) for part in np.atleast_2d(target.T)]
        target = parts[0] if target.ndim == 1 else np.column_stack(parts)
    task = None if table.task is None else table.task[at]
    return replace(table, frame=frame, labels=None, target=target, task=task)


def _cells(column: pd.Series[Any], rows: int, rng: np.random.Generator) -> pd.Series[Any]:
    import pandas as pd

    gaps = column.isna().to_numpy()
    kind = getattr(column.dtype, "kind", "O")
    if kind in "buif":
        made = pd.Series(_values(column.to_numpy(), rows, rng))
    elif kind in "mM":
        made = pd.Series(rng.integers(0, 10**15, rows).astype(f"{kind}8[us]"))
    else:
        names = max(1, min(_NAMES, int(column.nunique())))
        made = pd.Series([f"name {i}" for i in rng.integers(0, names, rows)], dtype=column.dtype)
    if gaps.any():
        made = made.astype(float) if kind in "biu" else made
        made[rng.permutation(rows) < max(1, round(rows * gaps.mean()))] = np.nan
    return made


def _values(like: NDArray[Any], rows: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return made-up numbers of the same type: truth values, whole numbers or normal ones; or names."""
    if like.dtype.kind not in "buif":
        return np.array([f"name {i}" for i in rng.integers(0, max(1, len(np.unique(like))), rows)])
    known = like[~np.isnan(like)] if like.dtype.kind == "f" else like
    if like.dtype.kind == "b" or np.isin(known, (0, 1)).all():
        return rng.integers(0, 2, rows).astype(like.dtype)
    made = rng.normal(size=rows) * 10 + 50
    return made.astype(like.dtype)

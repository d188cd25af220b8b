"""``fedspan run``: fit a study's models, and leave models, records and a report in its output folder."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from sklearn.base import clone

from fedspan.base import FedEstimator
from fedspan.cli.report_plan import judged_rows, wanted
from fedspan.cli.study_file import Study
from fedspan.cli.study_tables import SiteTable, read_tables
from fedspan.engines.local.embedded import LocalFederation
from fedspan.errors import InputError
from fedspan.federation import Federation, RunRecord
from fedspan.federation.record import strict_json
from fedspan.progress import ProgressBar
from fedspan.report import Scatter, write_report
from fedspan.report.models.map_pictures import MOST_POINTS, map_of


def run_study(study: Study, *, resume: bool = False, connect: Callable[[Study], Federation] | None = None) -> Path:
    """Run `study` and return its report. Nothing is written before everything is read and checked.

    With `connect` it runs at the sites of the federation that this returns, on their data.
    """
    output = study.output
    used = output.exists() and (not output.is_dir() or any(output.iterdir()))
    if used and not (resume and output.is_dir()):
        raise InputError(f"{output} is used already: choose another folder with --out, or continue in it with --resume")
    models = (*study.preprocess, study.model)
    tables: list[SiteTable] = [] if connect else list(read_tables(study.data, text=models[0].takes_text))
    judged_rows(study.report, list(tables[0].frame.columns) if tables else None)  # better said before the run
    fed = connect(study) if connect else _embedded(study, tables)
    make_folder(output)
    if not used:
        _write(output / "study.toml", study.text)
    try:
        with fed:
            fitted = fit_all(models, fed)
    except (ValueError, TypeError) as error:
        # The user corrects the study and runs it again: leave no folder behind.
        if not used:
            for left in output.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            output.rmdir()
        raise error if isinstance(error, InputError) else InputError(f"{study.path}: {error}") from None
    _write(output / "study.toml", study.text)
    settings = {"study": str(study.path), "seed": str(study.seed)}
    more = wanted(study.report, fitted, settings)
    return finish(output, study.path.stem, fitted, tables, settings, study=study.text, **more)


def _embedded(study: Study, tables: Sequence[SiteTable]) -> Federation:
    return LocalFederation(
        [table.site() for table in tables],
        seed=study.seed,
        n_jobs=study.n_jobs,
        wire=study.wire,
        policy=study.policy,
        run_dir=study.output,
    )


def make_folder(folder: Path) -> None:
    """Make an output folder, or say in a sentence why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}") from None


def fit_all(models: Sequence[FedEstimator], fed: Federation) -> list[Any]:
    """Fit each model on the federation as the ones before it transform it."""
    fed.observe(ProgressBar())
    fitted: list[Any] = []
    for model in models:
        if fitted:
            fed = fitted[-1].transform(fed)
        fitted.append(clone(model).fit(fed))
    return fitted


def finish(
    output: Path, title: str, models: Sequence[Any], tables: Sequence[SiteTable], settings: dict[str, str], **more: Any
) -> Path:
    """Save the models, write summary and report, and print a table of what was done; `more` is for the report.

    Without `tables`, whose rows are at sites of others, the report has no map but one that a model itself has.
    """
    for number, model in enumerate(models[:-1]):
        model.save(output / f"preprocess-{number}-{type(model).__name__}.fedspan")
    models[-1].save(output / "model.fedspan")
    records = [model.run_ for model in models]
    _write(output / "summary.json", json.dumps([_summary(record) for record in records], indent=2))
    sites = {table.name: {"rows": len(table.frame), "columns": table.frame.shape[1]} for table in tables}
    report = write_report(
        output / "report.html",
        title=title,
        records=records,
        models=models,
        sites=sites or None,
        scatter=scatter_of(models, tables) if tables else None,
        settings=settings,
        **more,
    )
    _print_summary(title, records, report)
    return report


def scatter_of(models: Sequence[Any], tables: Sequence[SiteTable]) -> Scatter | None:
    """Return the map that the last model has, or the rows' first two coordinates where it gives any."""
    labelled = all(table.labels is not None for table in tables)
    if hasattr(models[-1], "row_sites_"):
        posted = np.bincount(models[-1].row_sites_, minlength=len(tables)) > 0  # the others are on no map
        labels = [_labels(table) for table, there in zip(tables, posted, strict=True) if there]
        return map_of(models[-1], np.concatenate(labels) if labelled else None)
    if not hasattr(models[-1], "transform"):
        return None
    total = sum(len(table.frame) for table in tables)
    step = -(-total // MOST_POINTS)
    points, names, rows, labels = [], [], [], []
    for table in tables:
        coordinates: Any = table.frame.iloc[::step]
        for model in models:
            coordinates = model.transform(coordinates)
        if coordinates.shape[1] < 2:
            return None
        points.append(coordinates[:, :2])
        names.append(np.full(len(coordinates), table.name))
        rows.append(np.arange(0, len(table.frame), step))
        labels.append(_labels(table)[::step])
    return Scatter(
        np.concatenate(points),
        np.concatenate(names),
        np.concatenate(rows),
        labels=np.concatenate(labels) if labelled else None,
        x_label="component 1",
        y_label="component 2",
    )


def _labels(table: SiteTable) -> NDArray[Any]:
    return table.labels if table.labels is not None else np.full(len(table.frame), "")


def _summary(record: RunRecord) -> dict[str, Any]:
    spent = {} if record.privacy is None else record.privacy.values()
    spent.pop("mechanism", None)  # a text; the settings have its values
    return {
        "what": record.what,
        "settings": record.settings,
        "seed": record.seed,
        "sites": list(record.sites),
        "calls": len(record.calls),
        "bytes_up": record.bytes_up,
        "bytes_down": record.bytes_down,
        "failed_replies": len(record.failures),
        "stopped": record.stopped.values(),
        "privacy": strict_json(spent) or None,
    }


def _print_summary(title: str, records: Sequence[RunRecord], report: Path) -> None:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    for column in ("run", "sites", "calls", "bytes up", "bytes down", "failed", "stopped"):
        table.add_column(column, justify="left" if column in ("run", "stopped") else "right", no_wrap=column == "run")
    for record in records:
        numbers = (len(record.sites), len(record.calls), record.bytes_up, record.bytes_down, len(record.failures))
        table.add_row(record.what, *(f"{number:,}" for number in numbers), record.stopped)
    console = Console(file=sys.stdout)
    console.print(table)
    console.print(f"report: {report}", soft_wrap=True, highlight=False)


def _write(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)

"""The folder of a run: its saved models, the rows of its study, and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedspan.cli.study.study_file import ReportPlan
from fedspan.cli.study.study_tables import SiteTable
from fedspan.errors import InputError
from fedspan.federation import RunRecord
from fedspan.persistence import load
from fedspan.report import Judged, Scatter, write_report
from fedspan.report.models.map_pictures import MOST_POINTS, map_of


def make_folder(folder: Path) -> None:
    """Make an output folder, or raise an `InputError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}; choose another folder with --out") from None


def saved_models(run: Path, model: Path | None = None) -> tuple[list[Any], Any | None]:
    """Return the fitted preprocessing steps of a run's folder and its model, if it has one; or the model of a file.

    `model` takes the place of the folder's own model.
    """
    if run.is_file():
        return [], load(run)
    if not run.is_dir():
        raise InputError(
            f"{run} is neither the folder of a run nor a saved model: name the output folder of 'fedspan run'"
        )
    path = model or run / "model.fedspan"
    preprocess = [load(file) for file in sorted(run.glob("preprocess-*.fedspan"))]
    return preprocess, load(path) if model or path.is_file() else None


def write_run_report(
    page: Path,
    title: str,
    records: Sequence[RunRecord],
    models: Sequence[Any],
    tables: Sequence[SiteTable],
    settings: Mapping[str, str],
    plan: ReportPlan,
    study: str | None,
) -> Path:
    """Write the report of a run and return it.

    Without `tables` (the rows are at the sites, or their files have moved) it has no map but one that a model has.
    Rows of the `plan` that cannot be read are named among the settings.
    """
    settings, judged = dict(settings), None
    try:
        judged = judged_rows(plan, getattr(models[0], "feature_names_in_", None)) if models else None
    except InputError as error:
        settings["rows to judge by"] = f"not read: {error}"
    return write_report(
        page,
        title=title,
        records=records,
        models=models,
        sites={table.name: {"rows": len(table.frame), "columns": table.frame.shape[1]} for table in tables} or None,
        scatter=_scatter(models, tables) if tables and models else None,
        settings=settings,
        judged=judged,
        image=plan.image,
        study=study,
    )


def check_image(plan: ReportPlan, tables: Sequence[SiteTable]) -> None:
    """Refuse an image that has another number of pixels than the tables have columns."""
    if plan.image is None or not tables:
        return
    (height, width), columns = plan.image, tables[0].frame.shape[1]
    if height * width != columns:
        raise InputError(
            f"[report] image = [{height}, {width}] has {height * width:,} pixels, and the rows have {columns:,} "
            "columns: correct it, or leave out other columns with 'drop'"
        )


def judged_rows(plan: ReportPlan, columns: Sequence[str] | None) -> Judged | None:
    """Return the labelled rows of a plan with the columns that models take; ``None``: with all but the label."""
    if plan.judge is None:
        return None
    frame = plan.judge.read()
    names = list(frame.columns.drop(plan.label, errors="ignore")) if columns is None else list(columns)
    for column in (plan.label, *names):
        if column not in frame.columns:
            raise InputError(f"{plan.judge.label} has no column {column!r}")
    return Judged(frame[names], (frame[plan.label].astype(str) != plan.normal).to_numpy())


def _scatter(models: Sequence[Any], tables: Sequence[SiteTable]) -> Scatter | None:
    """Return the map of the last model, or the first two coordinates of the rows if it computes coordinates."""
    labelled = all(table.labels is not None for table in tables)
    if hasattr(models[-1], "row_sites_"):
        posted = np.bincount(models[-1].row_sites_, minlength=len(tables)) > 0  # other sites are on no map
        labels = [_labels(table) for table, there in zip(tables, posted, strict=True) if there]
        return map_of(models[-1], np.concatenate(labels) if labelled else None)
    if not hasattr(models[-1], "transform"):
        return None
    step = -(-sum(len(table.frame) for table in tables) // MOST_POINTS)
    points, names, rows, labels = [], [], [], []
    for table in tables:
        coordinates: Any = table.frame.iloc[::step]
        for model in models:
            by_site = (
                {"sites": np.full(len(coordinates), table.name)}
                if "sites" in signature(model.transform).parameters
                else {}
            )
            coordinates = np.asarray(model.transform(coordinates, **by_site))
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
        np.concatenate(labels) if labelled else None,
        x_label="component 1",
        y_label="component 2",
    )


def _labels(table: SiteTable) -> NDArray[Any]:
    return table.labels if table.labels is not None else np.full(len(table.frame), "")

"""``fedspan report``: the page of a run that was done before, of one that stopped, or of a saved model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedspan.cli.report_plan import report_plan, wanted
from fedspan.cli.run_command import scatter_of
from fedspan.cli.study_file import read_data_plan
from fedspan.cli.study_tables import SiteTable, read_tables
from fedspan.datasets.toml_file import parsed
from fedspan.errors import InputError
from fedspan.federation.record import RunRecord
from fedspan.persistence import load
from fedspan.report import write_report


def run_report(run: Path, out: Path | None = None) -> Path:
    """Write the report of a run's folder or of a saved model, and return it."""
    if run.is_file():
        model = load(run)
        return write_report(
            out or run.with_suffix(".html"), title=run.stem, records=_runs_of([model]), models=[model], settings={}
        )
    if not run.is_dir():
        raise InputError(f"{run} is neither the folder of a run nor a saved model")
    models = [load(file) for file in [*sorted(run.glob("preprocess-*.fedspan")), *run.glob("model.fedspan")]]
    records = _records(run) or _runs_of(models)
    if not records:
        raise InputError(f"{run} is no folder of a run: it has neither a record.jsonl nor a model.fedspan")
    tables, settings = _tables(run, models)
    more = _more(run, models, settings)
    if not models:
        settings["models"] = "none in this folder: 'fedspan report MODEL' draws one that was saved (model.save)"
    return write_report(
        out or run / "report.html",
        title=run.resolve().name,
        records=records,
        models=models,
        sites={table.name: {"rows": len(table.frame), "columns": table.frame.shape[1]} for table in tables} or None,
        scatter=scatter_of(models, tables) if tables and models else None,
        settings=settings,
        **more,
    )


def _more(run: Path, models: Sequence[Any], settings: dict[str, str]) -> dict[str, Any]:
    """Return the study's text and what it wants in its report; what cannot be had is said in the settings."""
    copy = run / "study.toml"
    if not copy.is_file():
        return {}
    text, raw = parsed(copy)
    if not models:
        return {"study": text}
    try:
        plan = report_plan(raw, run.resolve().parent / copy.name)
    except InputError as error:
        settings["rows to judge by"] = f"not read: {error}"
        return {"study": text}
    return {"study": text, **wanted(plan, models, settings)}


def _records(run: Path) -> list[RunRecord]:
    """Return the records of a folder's runs in their order."""
    found = [run / "record.jsonl"] if (run / "record.jsonl").is_file() else sorted(run.glob("run-*/record.jsonl"))
    records = []
    for file in found:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):  # a kill has cut it short
            del lines[-1]
        try:
            records.append(RunRecord.from_lines(lines))
        except (StopIteration, KeyError, TypeError, AttributeError, json.JSONDecodeError):
            raise InputError(f"{file} is not the record of a run, or is damaged") from None
    return records


def _runs_of(models: Sequence[Any]) -> list[RunRecord]:
    return [model.run_ for model in models if hasattr(model, "run_")]


def _tables(run: Path, models: Sequence[Any]) -> tuple[list[SiteTable], dict[str, str]]:
    """Return the study's rows, where they are still to be had, for the map; and what to say of them."""
    copy = run / "study.toml"
    if not copy.is_file() or not models or "data" not in parsed(copy)[1]:  # the rows of others are at their sites
        return [], {}
    try:
        plan = read_data_plan(copy, run.resolve().parent)
        return list(read_tables(plan, text=models[0].takes_text)), {}
    except InputError as error:
        return [], {"rows": f"not read ({error}), so that there is no map of them"}

"""``fedspan report``: the page of an earlier run, of one that stopped, or of a saved model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedspan.cli.study.run_folder import saved_models, write_run_report
from fedspan.cli.study.study_file import ReportPlan, data_plan, read_copy, report_plan
from fedspan.cli.study.study_tables import SiteTable, read_tables
from fedspan.errors import InputError
from fedspan.federation.record import RunRecord


def report(run: Path, out: Path | None) -> int:
    """Write the report of a run's folder, or of a saved model."""
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {out} must end in .html")
    preprocess, model = saved_models(run)
    models = [*preprocess, *([] if model is None else [model])]
    folder = run.is_dir()
    records = _records(run) or [model.run_ for model in models if hasattr(model, "run_")]
    if folder and not records:
        raise InputError(
            f"{run} is not the folder of a run, with a record.jsonl or a model.fedspan: name the output folder of "
            "'fedspan run'"
        )
    settings: dict[str, str] = {}
    tables, plan, text = _study(run, models, settings)
    if not models:
        settings["models"] = "none in this folder: 'fedspan report MODEL' draws one that was saved (model.save)"
    page = out or (run / "report.html" if folder else run.with_suffix(".html"))
    title = run.resolve().name if folder else run.stem
    print(f"report: {write_run_report(page, title, records, models, tables, settings, plan, text)}")
    return 0


def _study(
    run: Path, models: Sequence[Any], settings: dict[str, str]
) -> tuple[list[SiteTable], ReportPlan, str | None]:
    """Return the study's rows, what it requests of its report, and its text; `settings` name what cannot be read."""
    tables: list[SiteTable] = []
    plan = ReportPlan()
    if not (run / "study.toml").is_file():
        return tables, plan, None
    text, file = read_copy(run)
    if models:
        try:
            if "data" in file:  # otherwise the rows are at the sites
                tables = read_tables(data_plan(file), text=models[0].takes_text)
        except InputError as error:
            settings["rows"] = f"not read ({error}), so that there is no map of them"
        try:
            plan = report_plan(file)
        except InputError as error:
            settings["rows to judge by"] = f"not read: {error}"
    return tables, plan, text


def _records(run: Path) -> list[RunRecord]:
    """Return the records of a folder's runs in their order."""
    found = [run / "record.jsonl"] if (run / "record.jsonl").is_file() else sorted(run.glob("run-*/record.jsonl"))
    records = []
    for file in found:
        try:
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            if lines and not lines[-1].endswith("\n"):  # a kill has cut it short
                del lines[-1]
            records.append(RunRecord.from_lines(lines))
        except (InputError, UnicodeDecodeError):
            raise InputError(f"{file} is not the record of a run, or is damaged") from None
    return records

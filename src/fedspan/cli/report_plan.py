"""What a study's ``[report]`` table asks for: rows to judge a detector by, and columns that are pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedspan.datasets.sources import read_table
from fedspan.datasets.toml_file import check_keys, existing, table, typed
from fedspan.errors import InputError
from fedspan.report import Judged

_JUDGE = ("judge", "label", "normal")


@dataclass(frozen=True)
class ReportPlan:
    """Rows to `judge` by, whose column `label` is `normal` for normal ones; height and width of an `image`."""

    judge: Path | None = None
    label: str = ""
    normal: str = ""
    image: tuple[int, int] | None = None


def report_plan(study: Mapping[str, Any], path: Path) -> ReportPlan:
    """Read the table from the study that `path` says, to which paths are relative."""
    raw = table(study, "report", path)
    check_keys(raw, {*_JUDGE, "image"}, path, "[report] ")
    image = raw.get("image")
    if image is not None and not (isinstance(image, list) and len(image) == 2 and all(type(n) is int for n in image)):
        raise InputError(f"{path}: [report] image = {image!r} must be a height and a width in pixels, such as [28, 28]")
    pixels = None if image is None else (image[0], image[1])
    if not any(key in raw for key in _JUDGE):
        return ReportPlan(image=pixels)
    if not all(key in raw for key in _JUDGE):
        raise InputError(
            f"{path}: in [report] judge (a table of rows that are kept back), label (its column that says what a row "
            "is) and normal (that column's value for normal rows) go together"
        )
    file = existing(path.parent / typed(raw, "judge", str, "", path, "[report] "), path)
    return ReportPlan(file, typed(raw, "label", str, "", path, "[report] "), str(raw["normal"]), pixels)


def judged_rows(plan: ReportPlan, columns: Sequence[str] | None) -> Judged | None:
    """Return the rows to judge by, with the columns that models were fitted on; ``None``: with all but the label."""
    if plan.judge is None:
        return None
    frame = read_table(plan.judge)
    names = list(frame.columns.drop(plan.label, errors="ignore")) if columns is None else list(columns)
    for column in (plan.label, *names):
        if column not in frame.columns:
            raise InputError(f"{plan.judge} has no column {column!r}")
    return Judged(frame[names], (frame[plan.label].astype(str) != plan.normal).to_numpy())


def wanted(plan: ReportPlan, models: Sequence[Any], settings: dict[str, str]) -> dict[str, Any]:
    """Return what the plan wants for ``write_report``; what cannot be had is said in the `settings`."""
    names = getattr(models[0], "feature_names_in_", None)
    try:
        return {"judged": judged_rows(plan, names), "image": plan.image}
    except InputError as error:
        settings["rows to judge by"] = f"not read: {error}"
        return {"image": plan.image}

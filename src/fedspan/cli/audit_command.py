"""``fedspan audit``: attack what the coordinator of a run received, print the leak card, and leave a page."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fedspan.audit import LeakCard, Received, audit, from_model, from_run
from fedspan.cli.run_command import make_folder
from fedspan.cli.study_file import read_data_plan, read_study
from fedspan.cli.study_tables import read_tables
from fedspan.datasets.sources import read_table
from fedspan.errors import InputError
from fedspan.persistence import load
from fedspan.report.leak_page import write_leak_page

if TYPE_CHECKING:
    import pandas as pd


#: Of what is written to a file or handed on: all measures of an attack fit beside its name.
_WIDTH = 120


@dataclass(frozen=True)
class AuditPlan:
    """What the command line asks for."""

    run: Path
    model: Path | None = None
    truth: Path | None = None
    public: Path | None = None
    image: str | None = None
    bounds: str | None = None
    out: Path | None = None
    compare: Path | None = None


def run_audit(plan: AuditPlan) -> Path:
    """Attack, print and write; return the page. Nothing is written before everything is read and checked."""
    image, bounds = _pair(plan.image, "x", "--image", "28x28", int), _pair(plan.bounds, ",", "--bounds", "0,1", float)
    if image is not None and min(image) < 1:
        raise InputError(f"--image {plan.image} must have at least one pixel each way")
    model, preprocess, received = _received(plan)
    names = _columns((*preprocess, *([] if model is None else [model])))
    truth, remarks = _truth(plan, received, names)
    public = None if plan.public is None else _chosen(read_table(plan.public), names, plan.public)
    card = audit(received, truth=truth, public=public, bounds=bounds, image_shape=image, preprocess=preprocess)
    card = replace(card, remarks=(*card.remarks, *remarks))
    if plan.compare is not None:
        card = replace(card, beside=(_other(plan, public, bounds, image),))
    out = plan.out or (plan.run / "audit" if plan.run.is_dir() else plan.run.with_name(f"{plan.run.stem}-audit"))
    make_folder(out)
    out.chmod(0o700)  # what is in it holds private rows
    card.save(out / "leaks.json")
    shown = _as_rebuilt(received, truth, preprocess, card)
    page = write_leak_page(out / "leaks.html", card, truth=shown, image_shape=image, columns=names)
    _print(card, page)
    return page


def _received(plan: AuditPlan) -> tuple[Any, list[Any], Received]:
    """Return the model, the steps before it, and what the coordinator received: from its journal where there is one."""
    run = plan.run
    if run.is_file():
        model = load(run)
        return model, [], from_model(model)
    if not run.is_dir():
        raise InputError(f"{run} is neither the folder of a run nor a saved model")
    path = plan.model or run / "model.fedspan"
    model = load(path) if plan.model or path.is_file() else None
    preprocess = [load(file) for file in sorted(run.glob("preprocess-*.fedspan"))]
    if (run / "journal").is_file() or any(run.glob("run-*/journal")):
        return model, preprocess, from_run(run, model=model)
    if model is None:
        raise InputError(f"{run} is no folder of a run: it has neither a journal nor a model.fedspan")
    return model, preprocess, from_model(model)


def _other(plan: AuditPlan, public: Any, bounds: Any, image: Any) -> LeakCard:
    """Return the card of the run or model to compare with: of the same public rows, and its own true ones."""
    assert plan.compare is not None
    other = replace(plan, run=plan.compare, model=None, compare=None)
    model, preprocess, received = _received(other)
    truth, _ = _truth(other, received, _columns((*preprocess, *([] if model is None else [model]))))
    return audit(received, truth=truth, public=public, bounds=bounds, image_shape=image, preprocess=preprocess)


def _truth(plan: AuditPlan, received: Received, names: list[str] | None) -> tuple[Any, list[str]]:
    """Return the true rows by site, or in order, and remarks: those that were named, or those of the run's study."""
    if plan.truth is not None and plan.truth.suffix == ".toml":
        return {table.name: table.frame for table in read_tables(read_study(plan.truth).data, text=True)}, []
    if plan.truth is not None:
        return _chosen(read_table(plan.truth), names, plan.truth), []
    copy = plan.run / "study.toml"
    if not copy.is_file():
        return None, []
    try:  # the study's files may have been moved, or have changed
        tables = read_tables(read_data_plan(copy, plan.run.resolve().parent), text=True)
        truth = {table.name: table.frame for table in tables}
        sizes = np.bincount(received.row_sites, minlength=len(received.sites))
        for name, size in zip(received.sites, sizes, strict=True):
            if size and len(truth.get(name, ())) != size:
                raise InputError(f"site {name!r} has other rows than the run saw")
    except InputError as error:
        return None, [f"The study's rows were not read ({error}); name the study, or a table, with --truth."]
    return truth, []


def _as_rebuilt(received: Received, truth: Any, preprocess: list[Any], card: LeakCard) -> Any:
    """Return the true rows in the order and the units of the rebuilt ones, for the pictures."""
    rebuilt = next((entry.rebuilt for entry in card.entries if entry.rebuilt is not None), None)
    if truth is None or rebuilt is None:
        return None
    undone = all(hasattr(step, "inverse_transform") for step in preprocess)
    parts = truth if isinstance(truth, dict) else {"": truth}
    found = {}
    for name, part in parts.items():
        rows: Any = part
        for step in [] if undone else preprocess:
            rows = step.transform(rows)
        found[name] = np.asarray(rows, dtype=np.float64)
    shown = received.rows_of(found if isinstance(truth, dict) else found[""])
    return shown if card.order is None else shown[card.order]


def _columns(steps: tuple[Any, ...]) -> list[str] | None:
    """Return the names of the columns that the first step was fitted on."""
    names = getattr(steps[0], "feature_names_in_", None) if steps else None
    return None if names is None else [str(name) for name in names]


def _chosen(frame: pd.DataFrame, names: list[str] | None, file: Path) -> Any:
    """Return the columns that the run had; those of a file that names none are taken as they are."""
    if names is None or list(frame.columns) == [f"x{i}" for i in range(frame.shape[1])]:
        return frame.to_numpy()
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise InputError(f"{file} has no column {missing[0]!r}, which the run had")
    return frame[names]


def _pair(text: str | None, between: str, option: str, example: str, kind: type) -> tuple[Any, Any] | None:
    if text is None:
        return None
    try:
        first, second = (kind(part) for part in text.lower().split(between))
    except ValueError:
        raise InputError(f"{option} {text!r} must be written as {example}") from None
    return first, second


def _print(card: LeakCard, page: Path) -> None:
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console = Console(file=sys.stdout, width=_WIDTH)
    lines = card.lines()
    console.print(f"{card.what}, from {card.where}", highlight=False)
    if lines:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1))
        for number, column in enumerate(lines[0]):
            table.add_column(column, justify="right" if number else "left")
        for line in lines[1:]:
            table.add_row(*line)
        console.print(table)
    for entry in card.entries:
        console.print(f"{entry.attack}: {entry.verdict}", highlight=False, markup=False)
    for remark in card.remarks:
        console.print(remark, highlight=False, markup=False)
    console.print(f"page: {page}", soft_wrap=True, highlight=False, markup=False)

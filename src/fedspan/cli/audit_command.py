"""``fedspan audit``: attack what the coordinator of a run received, print the leak card, and leave a page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedspan.audit import LeakCard, Received, audit, from_model, from_run
from fedspan.checks import printable
from fedspan.cli.study.run_folder import make_folder, saved_models
from fedspan.cli.study.study_file import DataPlan, data_plan, read_copy, read_study
from fedspan.cli.study.study_tables import read_tables
from fedspan.datasets.sources import read_as_shown
from fedspan.errors import InputError
from fedspan.report.leak_page import write_leak_page

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _Target:
    """A run to attack: what its coordinator received, its fitted steps and columns, and its true rows if known."""

    received: Received
    preprocess: list[Any]
    columns: list[str] | None
    truth: Any
    remarks: tuple[str, ...] = ()


def audit_run(
    run: Path | None,
    of: str | None,
    model: Path | None,
    truth: Path | None,
    public: Path | None,
    image: str | None,
    bounds: str | None,
    compare: Path | None,
    out: Path | None,
) -> int:
    """Attack, print and write. Nothing is written before everything is read and checked."""
    others = (model, truth, public, image, bounds, compare, out)
    if of is not None:
        if run is not None or any(option is not None for option in others):
            raise InputError(
                f"--of {of} attacks a published method on its own data: leave out the run and other options"
            )
        return _audit_method(of)
    if run is None:
        raise InputError("name a run or a model to audit, or a published method with --of")
    shape = _pair(image, "x", "--image", "28x28", int)
    if shape is not None and min(shape) < 1:
        raise InputError(f"--image {image} must have at least one pixel each way")
    target = _target(run, model, truth)
    known: dict[str, Any] = {"bounds": _pair(bounds, ",", "--bounds", "0,1", float), "image_shape": shape}
    known["public"] = None if public is None else _chosen(read_as_shown(public), target.columns, public)
    card = _card(target, known)
    card = replace(card, remarks=(*card.remarks, *target.remarks))
    if compare is not None:
        card = replace(card, beside=(_card(_target(compare, None, truth), known),))
    out = out or (run / "audit" if run.is_dir() else run.with_name(f"{run.stem}-audit"))
    make_folder(out)
    out.chmod(0o700)  # it holds private rows
    card.save(out / "leaks.json")
    shown = _as_rebuilt(target.received, target.truth, target.preprocess, card)
    page = write_leak_page(out / "leaks.html", card, truth=shown, image_shape=shape, columns=target.columns)
    print(printable(str(card)))
    print(f"\npage: {page}")
    return 0


def _audit_method(of: str) -> int:
    """Print the card of a published method for each set of images that is there."""
    from fedspan.audit.published_methods import image_sets, method_card

    for images in image_sets():
        print(method_card(of, images), end="\n\n")
    return 0


def _card(target: _Target, known: dict[str, Any]) -> LeakCard:
    return audit(target.received, truth=target.truth, preprocess=target.preprocess, **known)


def _target(run: Path, model: Path | None, truth: Path | None) -> _Target:
    """Read a run: what was received is in its journal, or else in its model."""
    preprocess, fitted = saved_models(run, model)
    if (run / "journal").is_file() or any(run.glob("run-*/journal")):
        received = from_run(run, model=fitted)
    elif fitted is None:
        raise InputError(
            f"{run} is not the folder of a run, with a journal or a model.fedspan: name the output folder of "
            "'fedspan run'"
        )
    else:
        received = from_model(fitted)
    first = preprocess[0] if preprocess else fitted
    names = getattr(first, "feature_names_in_", None)
    columns = None if names is None else [str(name) for name in names]
    if truth is not None and truth.suffix == ".toml":
        return _Target(received, preprocess, columns, _rows(read_study(truth).data))
    if truth is not None:
        return _Target(received, preprocess, columns, _chosen(read_as_shown(truth), columns, truth))
    if not (run / "study.toml").is_file():
        return _Target(received, preprocess, columns, None)
    try:  # the study's files may have been moved, or have changed
        rows = _rows(data_plan(read_copy(run)[1]))
        sizes = np.bincount(received.row_sites, minlength=len(received.sites))
        for name, size in zip(received.sites, sizes, strict=True):
            if size and len(rows.get(name, ())) != size:
                raise InputError(f"site {name!r} has other rows than the run saw")
    except InputError as error:
        remark = f"The study's rows were not read ({error}); name the study, or a table, with --truth."
        return _Target(received, preprocess, columns, None, (remark,))
    return _Target(received, preprocess, columns, rows)


def _rows(plan: DataPlan) -> dict[str, pd.DataFrame]:
    return {table.name: table.frame for table in read_tables(plan, text=True)}


def _as_rebuilt(received: Received, truth: Any, preprocess: list[Any], card: LeakCard) -> Any:
    """Return the true rows in the order and the units of the rebuilt ones, for the pictures."""
    rebuilt = next((entry.rebuilt for entry in card.entries if entry.rebuilt is not None), None)
    if truth is None or rebuilt is None:
        return None
    undone = all(hasattr(step, "inverse_transform") for step in preprocess)

    def in_units(rows: Any) -> Any:
        for step in [] if undone else preprocess:
            rows = step.transform(rows)
        return np.asarray(rows, dtype=np.float64)

    found = {name: in_units(rows) for name, rows in truth.items()} if isinstance(truth, dict) else in_units(truth)
    shown = received.rows_of(found)
    return shown if card.order is None else shown[card.order]


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

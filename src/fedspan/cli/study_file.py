"""A study: a TOML file, checked before anything is read or written."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fedspan
from fedspan import privacy
from fedspan.anomaly.detector import FedDetector
from fedspan.base import FedEstimator
from fedspan.datasets.toml_file import check_keys, existing, names, parsed, table, typed
from fedspan.errors import InputError, PolicyError
from fedspan.federation import Policy

MECHANISMS = ("GaussianCenters", "GaussianData", "GaussianGradient", "PaperNoise")
_POLICY = ("deadline", "run_deadline", "quorum", "max_bytes", "secure_sum")


@dataclass(frozen=True)
class DataPlan:
    """Where the rows are: `files` by site, or one `file` with a `site_column`."""

    files: dict[str, Path] = field(default_factory=dict)
    file: Path | None = None
    site_column: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    label: str | None = None


@dataclass(frozen=True)
class ReportPlan:
    """What the report shows besides: how a detector judges labelled rows, and columns as pixels of an image.

    The rows are in the table `judge`. Its column `label` is `normal` for normal ones. An `image` has height and width.
    """

    judge: Path | None = None
    label: str = ""
    normal: str = ""
    image: tuple[int, int] | None = None


@dataclass(frozen=True)
class Study:
    """A checked study file."""

    path: Path
    text: str
    seed: int
    output: Path
    data: DataPlan
    preprocess: tuple[FedEstimator, ...]
    model: FedEstimator
    n_jobs: int
    wire: bool
    policy: Policy
    report: ReportPlan


def read_study(path: Path, output: Path | None = None, *, at_sites: bool = False) -> Study:
    """Read and check a study file; `output` replaces the folder that it names.

    A study `at_sites` of a real federation names no data: the sites' owners do.
    """
    text, raw = parsed(path)
    check_keys(raw, {"seed", "output", "data", "preprocess", "model", "federation", "report"}, path, "")
    federation = table(raw, "federation", path)
    check_keys(federation, {*_POLICY} if at_sites else {"n_jobs", "wire", *_POLICY}, path, "[federation] ")
    if at_sites and "data" in raw:
        raise InputError(f"{path}: with --kit the data are at the sites: remove the [data] table")
    preprocess = raw.get("preprocess", [])
    if not isinstance(preprocess, list) or not all(isinstance(entry, dict) for entry in preprocess):
        raise InputError(f"{path}: preprocess must be written as [[preprocess]] tables")
    if "model" not in raw:
        raise InputError(f"{path}: a [model] table with a name is missing")
    model = _estimator(table(raw, "model", path), path, "[model]", "fit")
    report = report_plan(raw, path)
    if report.judge is not None and not isinstance(model, FedDetector):
        raise InputError(f"{path}: [report] judge needs a detector, and {type(model).__name__} is not one")
    return Study(
        path=path,
        text=text,
        seed=typed(raw, "seed", int, 0, path),
        output=output or path.parent / typed(raw, "output", str, path.stem, path),
        data=DataPlan() if at_sites else _data_plan(table(raw, "data", path), path),
        preprocess=tuple(_estimator(entry, path, "[[preprocess]]", "transform") for entry in preprocess),
        model=model,
        n_jobs=typed(federation, "n_jobs", int, 1, path),
        wire=typed(federation, "wire", bool, False, path),
        policy=_policy(federation, path),
        report=report,
    )


def read_data_plan(copy: Path, folder: Path) -> DataPlan:
    """Read where the rows are from the copy of a study whose paths are relative to `folder`."""
    return _data_plan(table(parsed(copy)[1], "data", copy), folder / copy.name)


def report_plan(study: Mapping[str, Any], path: Path) -> ReportPlan:
    """Read the ``[report]`` table of a study; its paths are relative to the folder of `path`."""
    raw, where, keys = table(study, "report", path), "[report] ", ("judge", "label", "normal")
    check_keys(raw, {*keys, "image"}, path, where)
    image = raw.get("image")
    if image is not None and not (isinstance(image, list) and len(image) == 2 and all(type(n) is int for n in image)):
        raise InputError(f"{path}: [report] image = {image!r} must be a height and a width in pixels, such as [28, 28]")
    pixels = None if image is None else (image[0], image[1])
    given = [key for key in keys if key in raw]
    if not given:
        return ReportPlan(image=pixels)
    if len(given) < len(keys):
        raise InputError(
            f"{path}: in [report] judge (a table of labelled rows), label (its column of labels) and normal (the label "
            "of normal rows) go together"
        )
    file = existing(path.parent / typed(raw, "judge", str, "", path, where), path)
    return ReportPlan(file, typed(raw, "label", str, "", path, where), str(raw["normal"]), pixels)


def _data_plan(raw: Mapping[str, Any], path: Path) -> DataPlan:
    if not raw:
        raise InputError(f"{path}: a [data] table with 'file' and 'site_column', or with 'sites', is missing")
    check_keys(raw, {"file", "site_column", "sites", "features", "drop", "label"}, path, "[data] ")
    if ("file" in raw) == ("sites" in raw):
        raise InputError(f"{path}: [data] must have either 'file' (one table) or 'sites' (one table per site)")
    sites = raw.get("sites", {})
    if not isinstance(sites, dict) or not all(isinstance(name, str) for name in sites.values()):
        raise InputError(f'{path}: [data] sites must be a table of files, such as {{ north = "north.csv" }}')
    if ("file" in raw) != ("site_column" in raw):
        raise InputError(f"{path}: [data] 'site_column' names the sites of the rows of 'file', and goes with it")
    features, drop = (names(raw, key, path, "[data] ", "column names") for key in ("features", "drop"))
    for column in features or ():
        if column in (drop or ()) or (features or ()).count(column) > 1:
            raise InputError(f"{path}: [data] names the column {column!r} twice, in 'features' or in 'drop'")
    return DataPlan(
        files={name: existing(path.parent / file, path) for name, file in sites.items()},
        file=existing(path.parent / typed(raw, "file", str, "", path), path) if "file" in raw else None,
        site_column=typed(raw, "site_column", str, None, path),
        features=features,
        drop=drop or (),
        label=typed(raw, "label", str, None, path),
    )


def _estimator(raw: Mapping[str, Any], path: Path, where: str, method: str) -> FedEstimator:
    known = {name: getattr(fedspan, name) for name in fedspan.ESTIMATORS}
    known = {name: kind for name, kind in known.items() if hasattr(kind, method)}
    name = raw.get("name")
    if not isinstance(name, str) or name not in known:
        raise InputError(f"{path}: {where} name = {name!r} must be one of {', '.join(sorted(known))}")
    allowed = set(inspect.signature(known[name].__init__).parameters) - {"self"}
    check_keys(raw, allowed | {"name"}, path, f"{where} ")
    given = {key: value for key, value in raw.items() if key != "name"}
    if "privacy" in given:
        given["privacy"] = _mechanism(given["privacy"], path, where)
    estimator: FedEstimator = known[name](**given)
    return estimator


def _mechanism(raw: Any, path: Path, where: str) -> Any:
    """Return the privacy mechanism that a table such as ``{ name = "GaussianGradient", epsilon = 8 }`` names."""
    known = {name: getattr(privacy, name) for name in MECHANISMS}
    if not isinstance(raw, dict) or raw.get("name") not in known:
        wanted = ", ".join(sorted(known))
        raise InputError(f"{path}: {where} privacy must be a table with a name, one of {wanted}, and its parameters")
    kind = known[raw["name"]]
    given = {key: value for key, value in raw.items() if key != "name"}
    check_keys(given, set(inspect.signature(kind).parameters), path, f"{where} privacy ")
    try:
        mechanism = kind(**given)
        mechanism.check()
    except (InputError, TypeError) as error:
        raise InputError(f"{path}: {where} privacy: {error}") from None
    return mechanism


def _policy(raw: Mapping[str, Any], path: Path) -> Policy:
    try:
        typed(raw, "secure_sum", bool, False, path)
        return Policy(**{key: raw[key] for key in _POLICY if key in raw})
    except PolicyError as error:
        raise InputError(f"{path}: [federation] {error}") from None

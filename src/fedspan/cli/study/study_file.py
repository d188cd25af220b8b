"""A study: a TOML file, checked before anything is read or written."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any

from sklearn.utils import get_tags

import fedspan
from fedspan import aggregation, privacy
from fedspan.anomaly.detector import FedDetector
from fedspan.base import FedEstimator
from fedspan.checks import real_number
from fedspan.datasets.sources import CSV_ENDINGS, Dialect, FileSource
from fedspan.datasets.sources.csv_dialect import DIALECT_KEYS, stated
from fedspan.datasets.toml_file import Section, parsed
from fedspan.errors import InputError, PolicyError
from fedspan.federation import Policy
from fedspan.statistics.survival.survival_model import FedSurvival
from fedspan.sums.batches import Fading

MECHANISMS = ("GaussianCenters", "GaussianData", "GaussianGradient", "GaussianMoments", "PaperNoise")
STUDY_KEYS = ("seed", "output", "data", "stream", "preprocess", "model", "federation", "report", "describe")
_POLICY = ("deadline", "run_deadline", "quorum", "max_bytes", "secure_sum", "groups")


@dataclass(frozen=True)
class DataPlan:
    """Where the rows are: `files` by site, or one `file` with a `site_column`.

    `target` has the columns that a model learns to predict, `task` the task of each row; `label` is only shown. The
    `watermark` rises from row to row of a stream, and is not a feature.
    """

    files: dict[str, FileSource] = field(default_factory=dict)
    file: FileSource | None = None
    site_column: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    label: str | None = None
    target: tuple[str, ...] = ()
    task: str | None = None
    watermark: str | None = None

    @property
    def apart(self) -> dict[str, str]:
        """The columns that are not features, and what each is."""
        named = {**({self.label: "label"} if self.label else {}), **dict.fromkeys(self.target, "target")}
        named |= {self.task: "task"} if self.task else {}
        return named | ({self.watermark: "watermark"} if self.watermark else {})

    @property
    def dialects(self) -> set[Dialect]:
        """The dialects of the CSV files; empty where there are no such files."""
        sources = [*self.files.values(), *([self.file] if self.file else [])]
        return {source.dialect for source in sources if source.ending in CSV_ENDINGS}


@dataclass(frozen=True)
class ReportPlan:
    """What the report shows besides: how a detector does on labelled rows, and columns as pixels of an image.

    The rows are in the table `judge`. Its column `label` is `normal` for normal ones. An `image` has height and width.
    """

    judge: FileSource | None = None
    label: str = ""
    normal: str = ""
    image: tuple[int, int] | None = None


@dataclass(frozen=True)
class StreamPlan:
    """How rows that arrive over time are learned from: how fast old ones fade, and whether and how drift is watched."""

    decay: float = 1.0
    half_life: float | str | None = None
    monitor: bool = True
    alike: float = 1.0


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
    stream: StreamPlan = StreamPlan()


def read_study(
    path: Path, output: Path | None = None, *, at_sites: bool = False, detached: bool = False, growing: bool = False
) -> Study:
    """Read and check a study file; `output` replaces the folder that it names.

    Tables that are `growing` need not exist yet.

    A study `at_sites` of a real federation names no data: the sites' owners do. A `detached` one names no file at all:
    it runs at the coordinator, whose files are not its user's.
    """
    text, raw = parsed(path)
    file = Section(raw, path, keys=STUDY_KEYS)
    federation = file.table("federation", _POLICY if at_sites else ("n_jobs", "wire", *_POLICY))
    if at_sites and "data" in file:
        raise file.error("with --kit the data are at the sites: remove the [data] table")
    preprocess = raw.get("preprocess", [])
    if not isinstance(preprocess, list) or not all(isinstance(entry, dict) for entry in preprocess):
        raise file.error("preprocess must be written as [[preprocess]] tables")
    if "model" not in file:
        raise file.error("a [model] table with a name is missing")
    model = _estimator(file.table("model"), "fit")
    if detached and "judge" in file.table("report"):  # before anything shows whether that file exists
        raise file.error(
            "--detach goes without [report] judge, whose rows are not at the coordinator: put it into the study.toml "
            "that 'fedspan fetch' brings, and write the report again with 'fedspan report'"
        )
    data = DataPlan() if at_sites else data_plan(file, growing=growing)
    if not at_sites:
        _check_target(file, model, data.target)
        if "residuals" in model.get_params() and not {"residuals", "privacy"} & file.table("model").raw.keys():
            model.set_params(residuals=True)  # the report shows them; owners of sites refuse sums over few rows
    report = report_plan(file)
    if report.judge is not None and not isinstance(model, FedDetector):
        raise file.error(f"[report] judge needs a detector, and {type(model).__name__} is not one")
    return Study(
        path=path,
        text=text,
        seed=file.value("seed", int, 0),
        output=output or path.parent / file.value("output", str, path.stem),
        data=data,
        preprocess=tuple(_estimator(Section(entry, path, "[[preprocess]] "), "transform") for entry in preprocess),
        model=model,
        n_jobs=federation.value("n_jobs", int, 1),
        wire=federation.value("wire", bool, False),
        policy=_policy(federation),
        report=report,
        stream=_stream_plan(file, at_sites=at_sites),
    )


def _stream_plan(file: Section, *, at_sites: bool) -> StreamPlan:
    """Read the ``[stream]`` table of a study."""
    section = file.table("stream", ("watermark", "decay", "half_life", "monitor", "alike"))
    if at_sites and "watermark" in section:
        raise section.error("watermark is for tables of this study: the tables of a kit's sites grow at their ends")
    half_life = section.raw.get("half_life")
    with section.naming():
        Fading.of(section.raw.get("decay", 1.0), half_life)
        alike = real_number("alike", section.raw.get("alike", 1.0), least=1)
    return StreamPlan(section.value("decay", float, 1.0), half_life, section.value("monitor", bool, True), alike)


def _check_target(file: Section, model: FedEstimator, target: tuple[str, ...]) -> None:
    """Refuse a study that names no target, or another number of target columns than its model learns."""
    if not learns_target(model):
        return
    wanted, name = 2 if isinstance(model, FedSurvival) else 1, type(model).__name__
    if not target and wanted == 1:
        raise file.error(f"{name} learns a target: name its column in [data], such as target = 'dose'")
    if len(target) != wanted:
        what = "a time and an event: name their columns" if wanted == 2 else "one target: name its column alone"
        such = "target = ['days', 'died']" if wanted == 2 else "target = 'dose'"
        raise file.error(f"{name} learns {what} in [data], such as {such}")


def learns_target(model: FedEstimator) -> bool:
    """Return whether a model learns a target, such as a number, a class, or a time and an event."""
    return bool(get_tags(model).target_tags.required)


@dataclass(frozen=True)
class DescribePlan:
    """What ``fedspan describe`` reads of a study: its data, its policy, and the settings of ``[describe]``."""

    seed: int
    data: DataPlan
    policy: Policy
    by: str | None
    settings: dict[str, Any]


def read_description(path: Path, *, at_sites: bool = False) -> DescribePlan:
    """Read what ``fedspan describe`` needs of a study; it needs no model."""
    file = Section(parsed(path)[1], path, keys=STUDY_KEYS)
    if at_sites and "data" in file:
        raise file.error("with --kit the data are at the sites: remove the [data] table")
    section = file.table("describe", ("by", "categorical", "categories", "max_categories", "bins", "least_set"))
    federation = file.table("federation", _POLICY if at_sites else ("n_jobs", "wire", *_POLICY))
    return DescribePlan(
        file.value("seed", int, 0),
        DataPlan() if at_sites else data_plan(file),
        _policy(federation),
        section.value("by", str),
        {key: value for key, value in section.raw.items() if key != "by"},
    )


def read_copy(run: Path) -> tuple[str, Section]:
    """Return the text and the content of the study's copy in a run's folder, whose paths are relative to the study."""
    text, raw = parsed(run / "study.toml")
    return text, Section(raw, run.resolve().parent / "study.toml")


def report_plan(file: Section) -> ReportPlan:
    """Read the ``[report]`` table of a study."""
    keys = ("judge", "label", "normal")
    section = file.table("report", (*keys, "image"))
    image = section.raw.get("image")
    if image is not None and not (isinstance(image, list) and len(image) == 2 and all(type(n) is int for n in image)):
        raise section.error(f"image = {image!r} must be a height and a width in pixels, such as [28, 28]")
    pixels = None if image is None else (image[0], image[1])
    given = [key for key in keys if key in section]
    if not given:
        return ReportPlan(image=pixels)
    if len(given) < len(keys):
        raise section.error(
            "judge (a table of labelled rows), label (its column of labels) and normal (the label of normal rows) go "
            "together"
        )
    dialect = stated(file.table("data"))
    judge, label = _source(section, section.value("judge", str), dialect), section.value("label", str)
    return ReportPlan(judge, label, str(section.raw["normal"]), pixels)


def data_plan(file: Section, *, growing: bool = False) -> DataPlan:
    """Read the ``[data]`` table of a study."""
    columns = ("features", "drop", "label", "target", "task")
    section = file.table("data", ("file", "site_column", "sites", *columns, *DIALECT_KEYS))
    if not section.raw:
        raise file.error("a [data] table with 'file' and 'site_column', or with 'sites', is missing")
    if ("file" in section) == ("sites" in section):
        raise section.error("must have either 'file' (one table) or 'sites' (one table per site)")
    if ("file" in section) != ("site_column" in section):
        raise section.error("'site_column' names the sites of the rows of 'file', and goes with it")
    dialect = stated(section)
    plan = DataPlan(
        files=_site_files(section, dialect, growing),
        file=_source(section, section.value("file", str), dialect) if "file" in section else None,
        site_column=section.value("site_column", str),
        features=section.names("features", "column names", None),
        drop=section.names("drop", "column names", ()),
        label=section.value("label", str),
        target=_target(section),
        task=section.value("task", str),
        watermark=file.table("stream", None).value("watermark", str),
    )
    named = [*(plan.features or ()), *plan.drop, *plan.target]
    named += [name for name in (plan.label, plan.task, plan.site_column, plan.watermark) if name is not None]
    twice = [name for name in named if named.count(name) > 1]
    if twice:
        raise section.error(
            f"names the column {twice[0]!r} twice: each column has one use (features, drop, label, ...)"
        )
    if dialect != Dialect() and not plan.dialects:
        raise section.error(f"{', '.join(DIALECT_KEYS)} are for CSV files, and the study names none: leave them out")
    if plan.features == ():
        raise section.error("features = [] names no column: name some, or leave it out for all columns")
    return plan


def _site_files(section: Section, dialect: Dialect, growing: bool) -> dict[str, FileSource]:
    """Return the file of each site: ``"north.csv"``, or ``{ file = "north.csv", separator = ";" }``."""
    sites, found = section.raw.get("sites", {}), {}
    wrong = section.error('sites must be a table of files, such as { north = "north.csv", south = "south.csv" }')
    if not isinstance(sites, dict) or ("sites" in section and not sites):
        raise wrong
    for name, entry in sites.items():
        if isinstance(entry, str):
            found[name] = _source(section, entry, dialect, growing)
        elif isinstance(entry, dict):
            inner = Section(entry, section.path, f"{section.where}sites.{name}: ", ("file", *DIALECT_KEYS))
            if not isinstance(entry.get("file"), str):
                raise inner.error('a file is missing, such as { file = "north.csv" }')
            found[name] = _source(inner, entry["file"], stated(inner, dialect), growing)
        else:
            raise wrong
    return found


def _source(section: Section, name: str, dialect: Dialect, growing: bool = False) -> FileSource:
    """Return a table's file; a dialect is for CSV files only."""
    source = FileSource(section.path.parent / name if growing else section.file(name))
    with section.naming():
        return replace(source, dialect=dialect) if source.ending in CSV_ENDINGS else source


def _target(section: Section) -> tuple[str, ...]:
    """Return the columns of the target: one name, or a list, such as those of time and event."""
    if isinstance(section.raw.get("target"), list):
        return section.names("target", "column names", ())
    name = section.value("target", str)
    return () if name is None else (name,)


def _estimator(section: Section, method: str) -> FedEstimator:
    known = {name: getattr(fedspan, name) for name in fedspan.ESTIMATORS}
    kind, given = _named(section, {name: kind for name, kind in known.items() if hasattr(kind, method)})
    if "privacy" in given:
        given["privacy"] = _mechanism(section)
    if "aggregator" in given:
        given["aggregator"] = _aggregator(section)
    estimator: FedEstimator = kind(**given)
    return estimator


def _mechanism(section: Section) -> Any:
    """Return the privacy mechanism that a table such as ``{ name = "GaussianGradient", epsilon = 8 }`` names."""
    raw, known = section.raw["privacy"], {name: getattr(privacy, name) for name in MECHANISMS}
    if not isinstance(raw, dict):
        raise section.error("privacy must be a table with the name of a mechanism, and its parameters")
    inner = Section(raw, section.path, f"{section.where}privacy: ")
    kind, given = _named(inner, known)
    try:
        mechanism = kind(**given)
        mechanism.check()
    except (InputError, TypeError) as error:
        raise inner.error(str(error)) from None
    return mechanism


def _aggregator(section: Section) -> Any:
    """Return the rule that a table such as ``{ name = "TrimmedMean", f = 1 }`` names."""
    raw = section.raw["aggregator"]
    if not isinstance(raw, dict):
        raise section.error('aggregator must be a table, such as { name = "GeometricMedian" }')
    inner = Section(raw, section.path, f"{section.where}aggregator: ")
    found = {name: getattr(aggregation, name) for name in aggregation.__all__}
    kind, given = _named(inner, {name: rule for name, rule in found.items() if is_dataclass(rule) and callable(rule)})
    try:
        return kind(**given)
    except (InputError, TypeError) as error:
        raise inner.error(str(error)) from None


def _named(section: Section, known: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the class that a table names, one of those `known`, and its parameters, which are the other keys."""
    name = section.raw.get("name")
    if not isinstance(name, str) or name not in known:
        given = "the name is missing, and" if name is None else f"name = {name!r}"
        raise section.error(f"{given} must be one of {', '.join(sorted(known))}")
    Section(section.raw, section.path, section.where, ("name", *inspect.signature(known[name]).parameters))
    return known[name], {key: value for key, value in section.raw.items() if key != "name"}


def _policy(section: Section) -> Policy:
    section.value("secure_sum", bool, False)
    try:
        return Policy(**{key: section.raw[key] for key in _POLICY if key in section})
    except PolicyError as error:
        raise section.error(str(error)) from None

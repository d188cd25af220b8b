"""``fedspan apply``: what a trained model gives for each row of a new table."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_clusterer
from sklearn.pipeline import Pipeline

from fedspan.anomaly.detector import FedDetector
from fedspan.cli.console import print_line, spreadsheet_cells
from fedspan.cli.study.study_file import read_copy
from fedspan.cli.study.study_tables import listed
from fedspan.datasets.sources import CSV_ENDINGS, Dialect, FileSource, detected
from fedspan.datasets.sources.csv_dialect import encoding_beside, stated
from fedspan.durable.whole_file import temporary_beside
from fedspan.errors import InputError
from fedspan.gateway import cell_text
from fedspan.maps.tsne import FedTSNE
from fedspan.maps.umap import FedUMAP
from fedspan.pca.estimator import FedPCA
from fedspan.persistence import load
from fedspan.progress import WorkProgress
from fedspan.statistics.combat.combat_estimator import FedComBat
from fedspan.statistics.survival.kaplan_meier import FedKaplanMeier

if TYPE_CHECKING:
    import pandas as pd

#: The features with the largest shares of a score that are named.
_TOP = 3
#: Cells of the rows that are worked on at a time, and the fewest rows.
_BLOCK = 2**20
_FEWEST_ROWS = 1000


def apply(study: Path, new: Path, out: Path, site: str | None = None) -> int:
    """Write what a study's model, or a saved one, gives for each row of `new`. Nothing is written before all is known.

    The file has a header and one line per row, in the study's dialect if it is a CSV file. `site` is that of all rows,
    for models that differ by site.
    """
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"--out {out} must end in .csv or .parquet")
    if not out.parent.is_dir() or out.is_dir():
        raise InputError(f"--out {out} must be a file in a folder that exists")
    if out.exists() and new.exists() and out.samefile(new):
        raise InputError(f"--out {out} is the table of the new rows: choose another file")
    steps = _steps(load(study))
    training = _training(study, site)
    if site is not None and site not in steps[-1].sites_:
        raise InputError(f"--site {site} must be a site that the model was trained on: {listed(steps[-1].sites_)}")
    dialect = _dialect(new, training.dialect)
    frame = FileSource(new, dialect or Dialect()).read()
    if not len(frame):
        raise InputError(f"{new} has no rows: name a table with rows")
    words = _read_as_numbers(frame, steps[0], dialect or Dialect())
    try:
        results = _results(steps, frame, training, new)
    except InputError:
        raise
    except (ValueError, TypeError) as error:  # of scikit-learn, about rows that the model can't take
        raise InputError(f"{new}: {str(error).splitlines()[0]}") from None
    _write(results, out, dialect or Dialect(), new)
    alarms = int(results["alarm"].sum()) if "alarm" in results else None
    about = "" if alarms is None else f", {alarms:,} alarm{'s' * (alarms != 1)}"
    empty = int(results.isna().any(axis=1).sum())
    about += f", {empty:,} empty (cells missing, or unknown to the model)" if empty else ""
    if words:
        about += f", {words:,} cell{'s' * (words != 1)} of text where the model knows numbers (taken as missing)"
    if getattr(steps[-1], "site_effects_", None) is not None and training.sites(frame) is None:
        about += ", with the mean effect of the sites (--site names the site of all rows)"
    print_line(
        f"{out}: {len(results):,} rows{about}; column{'s' * (results.shape[1] > 1)} {listed(list(results.columns))}"
    )
    return 0


def _read_as_numbers(frame: pd.DataFrame, first: Any, dialect: Dialect) -> int:
    """Let texts of columns that held numbers in training read as numbers, and return how many are none.

    One word makes a whole column text, with the decimal commas of its file.
    """
    if not hasattr(first, "categories_"):
        return 0
    words = 0
    for column in getattr(first, "feature_names_in_", ()):
        if column not in first.categories_ and column in frame and frame[column].dtype.kind == "O":
            cells = frame[column].map(lambda cell: dialect.plain(str(cell)), na_action="ignore")
            frame[column] = cells
            words += sum(cell_text.name(cell) != "" and math.isnan(cell_text.number(cell)) for cell in cells.dropna())
    return words


def _steps(model: Any) -> list[Any]:
    return [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]


@dataclass(frozen=True)
class _Training:
    """How the tables of the training were written, and which columns name the task and the site of a row.

    `site` is that of all new rows, if the user names one.
    """

    dialect: Dialect | None = None
    task: str | None = None
    site_column: str | None = None
    site: str | None = None

    def sites(self, frame: pd.DataFrame) -> NDArray[np.str_] | None:
        """Return the site of each row, where it is known."""
        if self.site is not None:
            return np.full(len(frame), self.site)
        if self.site_column not in frame.columns:
            return None
        return frame[self.site_column].astype(str).to_numpy(dtype=str)


def _training(study: Path, site: str | None) -> _Training:
    """Return the settings in the copy of the study; its tables may have moved."""
    if not (study / "study.toml").is_file():
        return _Training(site=site)
    data = read_copy(study)[1].table("data")
    sites = data.raw.get("sites", {})
    tables = [data.raw.get("file", ""), *(sites.values() if isinstance(sites, dict) else ())]
    files = [table.get("file", "") if isinstance(table, dict) else table for table in tables]
    is_csv = any(isinstance(file, str) and _is_csv(Path(file)) for file in files)
    return _Training(stated(data) if is_csv else None, data.value("task", str), data.value("site_column", str), site)


def _is_csv(file: Path) -> bool:
    return any(file.name.lower().endswith(ending) for ending in CSV_ENDINGS)


def _dialect(new: Path, trained: Dialect | None) -> Dialect | None:
    """Return how a CSV file is written: as those of the study, unless it shows another separator or encoding."""
    if not _is_csv(new) or not new.is_file():
        return None
    trained = trained or Dialect()
    found = detected(new, trained.encoding)
    same = found.separator == (trained.separator or ",")
    return replace(trained, encoding=found.encoding) if same else replace(found, missing=trained.missing)


def _results(steps: Sequence[Any], frame: pd.DataFrame, training: _Training, new: Path) -> pd.DataFrame:
    """Return what the model gives for all rows, a part of them at a time, with progress."""
    import pandas as pd

    features = _features(steps[0], frame, new)
    size = max(_FEWEST_ROWS, _BLOCK // max(1, frame.shape[1]))
    if training.sites(frame) is None and any(_takes(step, "transform", "sites") for step in steps):
        size = len(frame)  # rows of an unknown site are one batch, whose effect is learned from all of them
    parts = []
    with WorkProgress(f"applying to {new.name}", len(frame)) as work:
        for start in range(0, len(frame), size):
            part = slice(start, start + size)
            parts.append(_results_of(steps, features.iloc[part], frame.iloc[part], training, new))
            work.done(len(parts[-1]))
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def _results_of(
    steps: Sequence[Any], features: pd.DataFrame, frame: pd.DataFrame, training: _Training, new: Path
) -> pd.DataFrame:
    rows: Any = features
    names = [str(name) for name in rows.columns]
    for step in steps[:-1]:
        rows = np.asarray(step.transform(rows, **_sites_of(step, frame, training, new)))
        names = [str(name) for name in step.get_feature_names_out(names)]
    return _given(steps[-1], rows, names, frame, training, new)


def _features(first: Any, frame: pd.DataFrame, new: Path) -> pd.DataFrame:
    """Return the columns that the first step was fitted on, in its order."""
    names = getattr(first, "feature_names_in_", None)
    if names is None:
        if frame.shape[1] != first.n_features_in_:
            raise InputError(f"{new} has {frame.shape[1]} columns, and the model takes {first.n_features_in_}")
        return frame
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise InputError(
            f"{new} lacks column{'s' * (len(missing) > 1)} {listed(missing)}, which the model needs; it has "
            f"{listed(list(frame.columns))}"
        )
    rows = frame[list(names)]
    if not first.takes_text:
        bad = [name for name in names if getattr(rows[name].dtype, "kind", "O") not in "buif"]
        if bad:
            raise InputError(f"{new}: {listed(bad)} must hold numbers, as where the model was trained")
        gaps = [name for name in names if rows[name].isna().any()]
        if gaps:
            raise InputError(
                f"{new}: {listed(gaps)} has missing cells, which this model does not take: fill them in, or train "
                "with FedTabularEncoder as the first step"
            )
    return rows


def _given(
    model: Any, rows: Any, names: Sequence[str], frame: pd.DataFrame, training: _Training, new: Path
) -> pd.DataFrame:
    """Return what the model gives for each row, in named columns."""
    import pandas as pd

    if isinstance(model, FedDetector):
        results = _detected(model, rows, training.sites(frame))
        if hasattr(model, "explain"):
            results["top_features"] = _top_features(model, rows, names)
        return results
    if isinstance(model, FedKaplanMeier):
        raise InputError(
            "FedKaplanMeier describes all rows together, and gives nothing for single ones: see its curve in the "
            "study's report.html, or train FedCoxRegression"
        )
    if is_clusterer(model) and hasattr(model, "predict"):
        return pd.DataFrame({"cluster": model.predict(rows)})
    if hasattr(model, "predict"):
        if getattr(model, "missing", None) == "drop":
            complete = model.complete_rows(rows)
            if not complete.any():
                raise InputError(f"{new}: no row has a known value in every column of the model: fill them in")
            if not complete.all():
                found = _given(model, rows[complete], names, frame[complete], training, new)
                return found.reindex(np.where(complete, complete.cumsum() - 1, -1)).reset_index(drop=True)
        given = _of_rows(model, frame, training, new)
        results = pd.DataFrame({"prediction": model.predict(rows, **given)})
        if hasattr(model, "predict_proba"):
            results[[f"probability_{name}" for name in model.classes_]] = model.predict_proba(rows, **given)
        return results
    if not hasattr(model, "transform"):
        raise InputError(f"{type(model).__name__} gives nothing for new rows: train another model")
    values = np.asarray(model.transform(rows, **_sites_of(model, frame, training, new)))
    return pd.DataFrame(values, columns=_columns(model, values.shape[1], names))


def _takes(model: Any, method: str, name: str) -> bool:
    return hasattr(model, method) and name in inspect.signature(getattr(model, method)).parameters


def _sites_of(step: Any, frame: pd.DataFrame, training: _Training, new: Path) -> dict[str, Any]:
    """Return the site of each row, for a step that transforms by it."""
    if not _takes(step, "transform", "sites"):
        return {}
    sites = training.sites(frame)
    if sites is None and isinstance(step, FedComBat) and len(step.sites_) > 1:
        column = f" the column {training.site_column!r}," if training.site_column else ""
        raise InputError(
            f"{new} lacks{column or ' a column of'} the site of each row, and FedComBat adjusts each site differently: "
            "name the site of all rows with --site"
        )
    return {} if sites is None else {"sites": sites}


def _detected(model: Any, rows: Any, sites: NDArray[np.str_] | None) -> pd.DataFrame:
    """Return scores and alarms; those of a detector that has a threshold, or a model, for each site by the site."""
    import pandas as pd

    scores, alarm = np.empty(len(rows)), np.empty(len(rows), dtype=bool)
    known = {} if sites is None else {name: sites == name for name in np.unique(sites) if name in model.sites_}
    others = np.full(len(rows), True) if sites is None else ~np.isin(sites, list(known))
    for name, at in (*known.items(), *([(None, others)] if others.any() else [])):
        part = rows[at]
        by_site = {} if name is None or not _takes(model, "score_samples", "site") else {"site": str(name)}
        scores[at] = -model.score_samples(part, **by_site)
        by_site = {} if name is None or not _takes(model, "predict", "site") else {"site": str(name)}
        alarm[at] = model.predict(part, **by_site) == -1
    return pd.DataFrame({"score": scores, "alarm": alarm})


def _of_rows(model: Any, frame: pd.DataFrame, training: _Training, new: Path) -> dict[str, Any]:
    """Return the task or the site of each row, for a model that predicts by it."""
    takes = inspect.signature(model.predict).parameters
    if "task" in takes and training.task is not None:
        if training.task not in frame.columns:
            raise InputError(f"{new} lacks the column {training.task!r}, the task of each row")
        column = frame[training.task]
        number = getattr(column.dtype, "kind", "O") in "buif"
        return {"task": column.to_numpy() if number else column.astype(str).to_numpy(dtype=str)}
    sites = training.sites(frame)
    return {"site": sites} if "site" in takes and sites is not None else {}


def _columns(model: Any, count: int, names: Sequence[str]) -> list[str]:
    if isinstance(model, FedTSNE | FedUMAP):
        return list("xyz")[:count] if count <= 3 else [f"map_{i + 1}" for i in range(count)]
    if isinstance(model, FedPCA):
        return [f"component_{i + 1}" for i in range(count)]
    before = None if hasattr(model, "feature_names_in_") else names
    return [str(name) for name in model.get_feature_names_out(before)]


def _top_features(model: Any, rows: Any, names: Sequence[str]) -> list[str]:
    """Return for each row the features with the largest shares of its score, such as ``dose (62 %), age (20 %)``."""
    shares = model.explain(np.asarray(rows, dtype=np.float64))
    top = np.argsort(-shares, axis=1, kind="stable")[:, :_TOP]
    texts: list[str] = []
    for row, places in zip(shares, top.tolist(), strict=True):
        texts.append(", ".join(f"{names[j]} ({row[j]:.0%})" for j in places if row[j] >= 0.005))
    return texts


def _write(results: pd.DataFrame, out: Path, dialect: Dialect, new: Path) -> None:
    """Write a table, whole or not at all; a CSV file as that of the new rows is written."""
    descriptor, name = temporary_beside(out)
    os.close(descriptor)
    try:
        if out.suffix.lower() == ".parquet":
            results.to_parquet(name, index=False)
        else:
            if "alarm" in results:
                results = results.assign(alarm=np.where(results["alarm"], "true", "false"))
            spreadsheet_cells(results).to_csv(
                name,
                index=False,
                sep=dialect.separator or ",",
                decimal=dialect.decimal,
                encoding=encoding_beside(new, dialect),
                errors="replace",
            )
        os.replace(name, out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

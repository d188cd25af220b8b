"""A study's tables: one per site, or one with a site column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_regressor

from fedspan.cli.study.study_file import DataPlan, Study
from fedspan.datasets.sources import Words, missing_words
from fedspan.errors import InputError
from fedspan.federation import Site
from fedspan.federation.site_labels import site_rows
from fedspan.gateway.cell_text import MISSING
from fedspan.progress import WorkProgress
from fedspan.statistics.survival.survival_model import FedSurvival

if TYPE_CHECKING:
    import pandas as pd

#: Names that a message lists before it counts the others.
_SHOWN = 8


@dataclass(frozen=True)
class SiteTable:
    """One site's features as a data frame; its labels, target and task if the study names such columns.

    `words` are those of its file that were taken as missing cells, by column; where all sites share a file, the first
    one has them.
    """

    name: str
    frame: pd.DataFrame
    labels: NDArray[Any] | None
    target: NDArray[Any] | None = None
    task: NDArray[Any] | None = None
    words: Words = field(default_factory=dict)
    watermark: pd.Series[Any] | None = None

    def site(self) -> Site:
        """Return the site."""
        return Site(self.name, self.frame, self.target, self.task)


def study_tables(study: Study) -> list[SiteTable]:
    """Read and check the tables of a study, for its models."""
    first, model = (*study.preprocess, study.model)[0], study.model
    way_out = "name it in 'categorical' of the model, or " if hasattr(first, "categorical") else ""
    tables = read_tables(study.data, text=first.takes_text, way_out=way_out)
    if is_regressor(model) or isinstance(model, FedSurvival):
        texts = {
            table.name: f"the target {listed(found)} holds text, and {type(model).__name__} learns numbers"
            for table in tables
            if (found := _texts(study.data.target, table.target))
        }
        event = ", with 1 for an event and 0 for none" if isinstance(model, FedSurvival) else ""
        _refuse(texts, f"name another column{event}, or state 'decimal' or 'missing' in [data]")
    return tables


def _texts(names: Sequence[str], target: NDArray[Any] | None) -> list[str]:
    """Return the columns of a target that hold text: where one does, all are text in the array."""
    if target is None or target.dtype.kind in "buif":
        return []
    import pandas as pd

    columns = zip(names, target.reshape(len(target), -1).T, strict=True)
    return [name for name, column in columns if pd.to_numeric(pd.Series(column), errors="coerce").isna().any()]


def read_tables(plan: DataPlan, *, text: bool = False, way_out: str = "") -> list[SiteTable]:
    """Read and check all tables: the same columns at every site, in any order, of numbers unless there may be `text`.

    Columns have the order of the study's `features`, or else of the first site. `way_out` of text is named before that
    by an encoder.
    """
    frames, words = _frames(plan)
    if not frames:
        raise InputError("the study has no sites: name the file of each with 'sites'")
    _refuse({name: "has no rows" for name, frame in frames.items() if not len(frame)}, "leave it out of the study")
    _check_named(plan, frames)
    features = _features(plan, frames)
    if not text:
        _refuse_text_and_gaps(frames, features, way_out)
    return [_site_table(name, frame, words.get(name, {}), features, plan, text) for name, frame in frames.items()]


def per_reason(reasons: Mapping[str, str]) -> str:
    """Return the reasons of sites, each once, with the names of its sites.

    >>> per_reason({"north": "has no rows", "south": "lacks 'age'", "west": "has no rows"})
    "sites 'north' and 'west': has no rows; site 'south': lacks 'age'"
    """
    sites: dict[str, list[str]] = {}
    for site, reason in reasons.items():
        sites.setdefault(reason, []).append(site)
    return "; ".join(f"site{'s' * (len(names) > 1)} {listed(names)}: {reason}" for reason, names in sites.items())


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    >>> listed(["a", "b", "c"])
    "'a', 'b' and 'c'"
    """
    shown = [repr(str(name)) for name in names]
    if len(shown) > _SHOWN:
        shown = [*shown[: _SHOWN - 1], f"{len(shown) - _SHOWN + 1} more"]
    return "".join(shown) if len(shown) < 2 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def taken_as_missing(tables: Sequence[SiteTable]) -> Words:
    """Return the words that were taken as missing cells at all sites: by column, with their numbers."""
    counts: dict[str, Counter[str]] = {}
    for table in tables:
        for column, words in table.words.items():
            counts.setdefault(column, Counter()).update(words)
    return {column: dict(found.most_common()) for column, found in counts.items()}


def words_in_words(tables: Sequence[SiteTable]) -> list[str]:
    """Return a line for each column in which words were taken as missing cells."""
    return [
        f"taken as missing in column {column!r}: "
        + ", ".join(f"{word!r} ({count:,} cell{'s' * (count > 1)})" for word, count in list(words.items())[:_SHOWN])
        for column, words in taken_as_missing(tables).items()
    ]


def _frames(plan: DataPlan) -> tuple[dict[str, pd.DataFrame], dict[str, Words]]:
    """Return the whole table of each site, by name, and the words that were taken as missing cells."""
    if plan.file is None:
        frames = {}
        with WorkProgress("reading tables", len(plan.files)) as work:
            for name, source in sorted(plan.files.items()):
                frames[name] = source.read()
                work.done(1)
        return frames, {name: missing_words(frame) for name, frame in frames.items()}
    frame = plan.file.read()
    if plan.site_column not in frame.columns:
        raise InputError(
            f"{plan.file.label} has no site column {plan.site_column!r}; it has {listed(list(frame.columns))}: "
            "correct 'site_column' in [data]"
        )
    labels = frame[plan.site_column]
    if labels.isna().any():
        raise InputError(
            f"{plan.file.label}: {int(labels.isna().sum())} rows have no value in the site column "
            f"{plan.site_column!r}: fill it in, or remove these rows"
        )
    rest = frame.drop(columns=[plan.site_column])
    frames = {name: rest.iloc[index] for name, index in site_rows(labels.to_numpy(), len(frame)).items()}
    return frames, {next(iter(frames), ""): missing_words(frame)}


def _check_named(plan: DataPlan, frames: Mapping[str, pd.DataFrame]) -> None:
    """Refuse names of columns that a site lacks; a column to drop may be at some sites only."""
    wanted = {**plan.apart, **dict.fromkeys(plan.features or (), "")}
    lacking = {
        name: f"has no column {column!r}{f' for the {use}' if use else ''}; it has {listed(list(frame.columns))}"
        for name, frame in frames.items()
        for column, use in wanted.items()
        if column not in frame.columns
    }
    _refuse(lacking, "correct the name in [data]")
    for column in plan.drop:
        if all(column not in frame.columns for frame in frames.values()):
            raise InputError(f"no site has a column {column!r}, which 'drop' names: correct the name, or leave it out")


def _features(plan: DataPlan, frames: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the features, which all sites must have."""
    if plan.features is not None:
        return list(plan.features)
    left_out = {*plan.drop, *plan.apart}
    own = {name: [column for column in frame.columns if column not in left_out] for name, frame in frames.items()}
    first = next(iter(own.values()))
    times = Counter(column for columns in own.values() for column in columns)
    # Those of most sites; where it is a tie, those of the first one.
    usual = [name for name, count in times.items() if (count, name in first) > (len(own) / 2, False)]
    reasons: dict[str, str] = {}
    for site, columns in own.items():
        lacking = [name for name in usual if name not in columns]
        extra = [name for name in columns if name not in usual]
        parts = [f"lacks {listed(lacking)}"] * bool(lacking) + [f"also has {listed(extra)}"] * bool(extra)
        if parts:
            reasons[site] = " and ".join(parts)
    partial = [name for name, count in times.items() if count < len(own)]
    if len(partial) <= _SHOWN:
        fix = f"leave out what not all sites have, with drop = {partial}, or rename columns"
    else:
        fix = "name the columns that all sites have in 'features', or rename columns"
    _refuse(reasons, fix)
    if not first:
        raise InputError("no column is left to learn from: 'drop', 'label', 'target' and 'task' take all of them")
    return first


def _refuse_text_and_gaps(frames: Mapping[str, pd.DataFrame], features: Sequence[str], way_out: str) -> None:
    texts = {}
    for name, frame in frames.items():
        found = [column for column in features if getattr(frame[column].dtype, "kind", "O") not in "buif"]
        if found:
            holds = "holds" if len(found) == 1 else "hold"
            texts[name] = f"column{'s' * (len(found) > 1)} {listed(found)} {holds} text or times, not numbers"
    fixes = "let FedTabularEncoder be the first [[preprocess]] step, or leave such columns out with 'drop'"
    _refuse(texts, f"{way_out}{fixes}; if these are numbers, state 'decimal', 'thousands' or 'missing' in [data]")
    gaps = {}
    for name, frame in frames.items():
        found = [column for column in features if frame[column].isna().any()]
        if found:
            gaps[name] = f"column{'s' * (len(found) > 1)} {listed(found)} with missing cells"
    _refuse(gaps, fixes)


def _refuse(reasons: Mapping[str, str], fix: str) -> None:
    if reasons:
        raise InputError(f"{per_reason(reasons)}: {fix}")


def _site_table(
    name: str, frame: pd.DataFrame, words: Words, features: list[str], plan: DataPlan, text: bool
) -> SiteTable:
    rows = frame[features]
    found = {column: dict(counts) for column, counts in words.items() if column in features}
    for column in features if text else ():
        if getattr(rows[column].dtype, "kind", "O") not in "buifmM":  # the encoder takes more words as missing
            cells = rows[column].dropna().astype(str).str.strip().value_counts()
            counts = {str(word): int(count) for word, count in cells.items() if str(word).lower() in MISSING}
            found |= {column: found.get(column, {}) | counts} if counts else {}
    return SiteTable(
        name,
        rows,
        None if plan.label is None else frame[plan.label].astype(str).to_numpy(),
        _values(name, frame, plan.target, "target"),
        _values(name, frame, () if plan.task is None else (plan.task,), "task"),
        found,
        None if plan.watermark is None else frame[plan.watermark],
    )


def _values(site: str, frame: pd.DataFrame, columns: Sequence[str], use: str) -> NDArray[Any] | None:
    """Return the target or the task of each row: numbers, or text."""
    values = []
    for name in columns:
        gaps = int(frame[name].isna().sum())
        if gaps:
            raise InputError(f"site {site!r}: the {use} {name!r} is missing in {gaps} rows: fill it in, or remove them")
        number = getattr(frame[name].dtype, "kind", "O") in "buif"
        values.append(frame[name].to_numpy() if number else frame[name].astype(str).to_numpy(dtype=str))
    return None if not values else values[0] if len(values) == 1 else np.column_stack(values)

"""``fedspan init``: write a commented study file for some tables."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedspan.cli.console import print_line
from fedspan.cli.study.study_tables import listed
from fedspan.datasets.sources import CSV_ENDINGS, ENDINGS, Dialect, FileSource, detected
from fedspan.datasets.sources.csv_dialect import DIALECT_KEYS
from fedspan.durable.whole_file import write_whole
from fedspan.errors import InputError
from fedspan.owner.schema import kind_of
from fedspan.progress import WorkProgress

if TYPE_CHECKING:
    import pandas as pd

_STUDY = Path("study.toml")
_SITE_NAMES = {
    *("site", "hospital", "clinic", "practice", "center", "centre", "gateway", "device", "machine", "host", "plant"),
    *("factory", "company", "branch", "station", "source", "standort", "haus", "krankenhaus", "klinik", "praxis"),
    *("zentrum", "anlage", "werk", "filiale", "hopital", "clinique", "centro"),
}
_LABELS = ("label", "attack", "anomaly", "is_anomaly", "outlier")
_IDENTIFIER = re.compile(r"(.*[_ -])?(id|uuid|guid|key|nr)|.*Id|patient|row|index", re.ASCII)
_DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T].*)?", re.ASCII)
_NUMBER = r"\s*[-+]?\d+(?:[.,]\d+)*\s*"
_WITH_UNIT = r"^\s*[-+]?\d+(?:[.,]\d+)*\s*([^\d.,;:+-][^\d.,;:+-]*)$"
_CLOCK = re.compile(r"(.*[_ -])?(ts|time|timestamp|date|datetime|epoch)", re.ASCII | re.IGNORECASE)
_SINCE_1970 = 1e8  # seconds until 1973: larger numbers under such names are clock times
_FEWEST = 20  # rows from which on values that are all different look like identifiers
_MOST_SITES = 100
_LEAST_OF_A_SITE = 5


@dataclass(frozen=True)
class _Column:
    """A column of all sites: its kind, and the reason if it is not a feature."""

    name: str
    kind: str
    missing: int
    distinct: int
    why_not: str = ""
    lacking: int = 0
    numbers_in: tuple[str, ...] = ()
    words: int = 0

    def line(self, width: int) -> str:
        about = [self.kind]
        if self.kind == "text":
            about.append(f"{self.distinct:,} different value{'s' * (self.distinct != 1)}")
        if self.missing:
            about.append(f"{self.missing:,} missing cell{'s' * (self.missing != 1)}")
        if self.numbers_in:
            about.append(f"numbers in {listed(self.numbers_in)}")
        if self.words:
            about.append(f"numbers but for {self.words:,} cell{'s' * (self.words != 1)}: name their words in 'missing'")
        if self.why_not:
            about.append(f"left out: {self.why_not}")
        return f"#   {_on_one_line(self.name):{width}}  {', '.join(about)}"


def init(files: Sequence[Path]) -> int:
    """Write ``study.toml`` into this folder, unless there is one."""
    if _STUDY.exists():
        raise InputError(f"{_STUDY} exists in this folder already: rename or remove it first")
    for file in files:
        if not file.is_file():
            what = "is a folder: name the files in it" if file.is_dir() else "does not exist: correct its name"
            raise InputError(f"the file {file} {what}")
        if [other.resolve() for other in files].count(file.resolve()) > 1:
            raise InputError(f"the file {file} is named twice: each site has its own file")
    sources, frames = _read(files)
    for file, frame in zip(files, frames, strict=True):
        if not len(frame):
            raise InputError(f"{file} has no rows: leave it out")
    site_columns = _site_columns(frames[0]) if len(files) == 1 else []
    site_column = next(iter(site_columns), None)
    columns = _columns(files, frames, site_column)
    if all(column.lacking for column in columns):
        raise InputError(
            f"no column is in all of {listed([str(file) for file in files])}: rename columns that mean the same, or "
            "name only files of the same kind"
        )
    if all(column.why_not for column in columns):
        raise InputError(
            f"no column to learn from is left in {listed([str(file) for file in files])}: all seem to be labels, "
            "times or identifiers; write a study by hand, as 'fedspan run --help' shows"
        )
    write_whole(_STUDY, _text(sources, frames, columns, site_columns).encode())
    if len(site_columns) > 1:
        print_line(
            f"no column is named like one of sites: {site_column!r} is a guess, and 'site_column' in {_STUDY} may name "
            "another"
        )
    print_line(f"{_STUDY} is written: look at it, then 'fedspan check {_STUDY}' or 'fedspan run {_STUDY}'")
    return 0


def _read(files: Sequence[Path]) -> tuple[list[FileSource], list[pd.DataFrame]]:
    """Read all files, in as few dialects as fit."""
    sources = [FileSource(file, detected(file)) if _is_csv(file) else FileSource(file) for file in files]
    sizes = [file.stat().st_size for file in files]
    frames = []
    with WorkProgress("reading tables", sum(sizes)) as work:
        for source, size in zip(sources, sizes, strict=True):
            frames.append(source.read())
            work.done(size)
    found = Counter(source.dialect for source in sources if _is_csv(source.file))
    common = found.most_common(1)[0][0] if found else Dialect()
    # A file without decimals, or of plain ASCII, shows less than the others: with their dialect it is the same.
    if common.separator != "," and any(one.decimal == "," for one in found):
        common = replace(common, decimal=",")
    for place, source in enumerate(sources):
        if _is_csv(source.file) and source.dialect != common and source.dialect.separator == common.separator:
            other = replace(source, dialect=common)
            try:
                frame = other.read()
            except InputError:
                continue
            if _says_as_much(frame, frames[place]):
                sources[place], frames[place] = other, frame
    return sources, frames


def _is_csv(file: Path) -> bool:
    return any(file.name.lower().endswith(ending) for ending in CSV_ENDINGS)


def _says_as_much(frame: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Return whether no column of a table lost its numbers or its text in another dialect."""
    if list(frame.columns) != list(other.columns):
        return False
    numbers = [{name for name in one.columns if kind_of(one[name]) != "text"} for one in (frame, other)]
    texts = [name for name in frame.columns if name not in numbers[0]]
    return numbers[0] >= numbers[1] and frame[texts].equals(other[texts])


def _site_columns(frame: pd.DataFrame) -> list[str]:
    """Return the column that names the site of each row of a single table, or those that may do so."""
    found = []
    for name in frame.columns:
        counts = frame[name].value_counts()
        fits = 2 <= len(counts) <= _MOST_SITES and counts.min() >= _LEAST_OF_A_SITE and not frame[name].isna().any()
        if fits and (kind_of(frame[name]) == "text" or _names_sites(str(name))):
            found.append(str(name))
    return [name for name in found if _names_sites(name)][:1] or found


def _names_sites(name: str) -> bool:
    return not _SITE_NAMES.isdisjoint(re.findall(r"[a-z]+", name.lower()))


def _columns(files: Sequence[Path], frames: Sequence[pd.DataFrame], site_column: str | None) -> list[_Column]:
    names = dict.fromkeys(name for frame in frames for name in frame.columns if name != site_column)
    return [_column(str(name), files, frames) for name in names]


def _column(name: str, files: Sequence[Path], frames: Sequence[pd.DataFrame]) -> _Column:
    import pandas as pd

    parts = [frame[name] for frame in frames if name in frame.columns]
    own = {file: kind_of(frame[name]) for file, frame in zip(files, frames, strict=True) if name in frame.columns}
    kinds = {kind for kind, part in zip(own.values(), parts, strict=True) if not part.isna().all()} or {"number"}
    kind = next((kind for kind in ("text", "time", "duration", "number", "integer") if kind in kinds), "boolean")
    filled = [part.dropna() for part in parts]
    cells: pd.Series[Any] = pd.concat([part.astype(str) if kind == "text" else part for part in filled])
    missing, distinct = sum(int(part.isna().sum()) for part in parts), int(cells.nunique())
    lacking = len(frames) - len(parts)
    why_not = ""
    if lacking:
        why_not = f"{lacking} of {len(frames)} files lack it"
    elif not len(cells):
        why_not = "it is empty"
    elif name.lower() in _LABELS:
        why_not = "its name is that of a label"
    elif kind == "time" or (len(cells) and _seem_times(name, kind, cells)):
        why_not = "times of new rows would all be unusual"
    elif kind == "text" and distinct > _FEWEST and (unit := _unit_of(cells)):
        why_not = f"numbers with {_on_one_line(unit)!r}: take it out of the cells"
    elif kind == "text" and len(cells) >= _FEWEST and distinct > 0.5 * len(cells):
        why_not = "nearly every row has a value of its own"
    elif kind == "integer" and len(cells) >= _FEWEST and distinct == len(cells) and _IDENTIFIER.fullmatch(name):
        why_not = "it numbers the rows"
    numbers = int(cells.str.fullmatch(_NUMBER).sum()) if kind == "text" and len(cells) else 0
    numbers_in = [str(file) for file, found in own.items() if found != "text"] if kind == "text" else []
    return _Column(
        name,
        kind,
        missing,
        distinct,
        why_not,
        lacking,
        tuple(numbers_in),
        len(cells) - numbers if numbers > len(cells) / 2 else 0,
    )


def _unit_of(cells: pd.Series[Any]) -> str:
    """Return the unit that nearly all texts have behind a number, or nothing."""
    units = cells.str.extract(_WITH_UNIT, expand=False).str.strip().value_counts()
    return str(units.index[0]) if len(units) and units.iloc[0] > 0.9 * len(cells) else ""


def _seem_times(name: str, kind: str, cells: pd.Series[Any]) -> bool:
    """Return whether texts are dates, or numbers seconds since 1970 under a name of times."""
    if kind == "text":
        return bool(cells.str.fullmatch(_DATE).mean() > 0.9)
    return kind in ("integer", "number") and bool(_CLOCK.fullmatch(name)) and float(cells.min()) > _SINCE_1970


def _text(
    sources: Sequence[FileSource], frames: Sequence[pd.DataFrame], columns: Sequence[_Column], sites: Sequence[str]
) -> str:
    """Return the study."""
    label = next((column.name for column in columns if column.name.lower() in _LABELS and column.why_not), None)
    drop = [column.name for column in columns if column.why_not and column.name != label]
    if label is not None and any(label not in frame.columns for frame in frames):
        drop, label = [*drop, label], None
    files = listed([str(source.file) for source in sources])
    rows = sum(map(len, frames))
    lines = [
        f"# A study of {files}: {rows:,} rows. Written by 'fedspan init'; change what does not fit. Then:",
        f"#   fedspan check {_STUDY}                        what would happen, and what leaves each site",
        f"#   fedspan run {_STUDY}                          train; writes the folder '{_STUDY.stem}'",
        f"#   fedspan apply {_STUDY.stem} NEW.csv --out scores.csv    a score for each row of a new table",
        "",
        "seed = 0",
        "",
        "[data]                                # paths are relative to this file",
        *_where(sources, sites),
    ]
    if label is not None:
        lines.append(f"label = {_quoted(label)}  # shown as colour in the report, not learned from")
    if drop:
        lines.append(f"drop = {_quoted(drop)}  # not learned from, see below")
    width = max(len(_on_one_line(column.name)) for column in columns)
    lines += [
        '# missing = ["?", "-9"]                # words that mean a missing cell, besides an empty one',
        '# target = "..."                       # the column that a regression learns to predict',
        "#",
        "# The columns:",
        *(column.line(width) for column in columns),
        "",
        "[[preprocess]]                        # text, gaps and numbers become numbers on one scale",
        'name = "FedTabularEncoder"',
        "scale = true",
        "",
        "[model]                               # any estimator of fedspan; the other keys are its parameters",
        'name = "FedPCADetector"               # rows that do not fit those of all sites are alarms',
        "quantile = 0.95                       # 5 of 100 rows like these are alarms",
        "scale = false                         # the encoder has done it",
    ]
    return "\n".join(lines) + "\n"


def _where(sources: Sequence[FileSource], site_columns: Sequence[str]) -> list[str]:
    """Return the lines that name the files and how they are written."""
    found = Counter(source.dialect for source in sources if _is_csv(source.file))
    common = found.most_common(1)[0][0] if found else Dialect()
    if site_columns:
        guess = f"  # a guess; or {_on_one_line(listed(site_columns[1:]))}" if len(site_columns) > 1 else ""
        lines = [f"file = {_quoted(str(sources[0].file))}", f"site_column = {_quoted(site_columns[0])}{guess}"]
    else:
        lines = []
        for name, source in zip(_site_names([source.file for source in sources]), sources, strict=True):
            own = {key: value for key, value in _stated(source.dialect).items() if value != _stated(common).get(key)}
            own = own if _is_csv(source.file) and source.dialect != common else {}
            entry = _quoted(str(source.file))
            if own:
                settings = ", ".join(f"{key} = {_quoted(value)}" for key, value in own.items())
                entry = f"{{ file = {entry}, {settings} }}"
            lines.append(f"sites.{_key(name)} = {entry}")
    stated = [
        f"{key} = {_quoted(value)}" for key, value in _stated(common).items() if value != _stated(Dialect()).get(key)
    ]
    return [*lines, *stated]


def _stated(dialect: Dialect) -> dict[str, str]:
    known = replace(dialect, separator=dialect.separator or ",")
    return {key: getattr(known, key) for key in DIALECT_KEYS[:-1] if getattr(known, key) is not None}


def _site_names(files: Sequence[Path]) -> list[str]:
    """Return a name for each file: its own without the ending, with those of folders where several have the same."""

    def stem(file: Path) -> str:
        ending = next((ending for ending in ENDINGS if file.name.lower().endswith(ending)), file.suffix)
        return file.name[: len(file.name) - len(ending)] or file.name

    names, folders = [stem(file) for file in files], [file.resolve().parent for file in files]
    while len(set(names)) < len(names) and any(folder.name for folder in folders):
        names = [f"{folder.name}-{name}".lstrip("-") for folder, name in zip(folders, names, strict=True)]
        folders = [folder.parent for folder in folders]
    return names


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _on_one_line(name: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in name).split())


def _quoted(value: str | Sequence[str]) -> str:
    return json.dumps(value, ensure_ascii=False)

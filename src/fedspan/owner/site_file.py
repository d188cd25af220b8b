"""``site.toml``: what the owner of a site has written, checked before any data are read.

No password is ever shown. Owners put a URL under the wrong key, or a password where the name of a variable belongs. So
errors show no value of ``url``, ``password_env``, ``password_file`` or of an unknown key. A database URL anywhere else
is refused before anything is done with it. Errors are raised outside the calls that have seen the file's values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedspan.checks import one_of, real_number, whole_number
from fedspan.datasets.sources import FileSource, QuerySource, RowFilter, SqlSource, TableSource
from fedspan.datasets.sources.cell_source import CELL_ENDING, CellSource
from fedspan.datasets.sources.csv_dialect import DIALECT_KEYS, stated
from fedspan.datasets.sources.secret import Secret, secret_of
from fedspan.datasets.toml_file import Section, parsed
from fedspan.errors import InputError
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.transforms import installed_transforms
from fedspan.owner.allowed_steps import (
    LEVELS,
    STEPS_OF_LEVEL,
    TRANSFORM_GROUPS,
    TRANSFORMS_OF_LEVEL,
    AllowedSteps,
    check_names,
)
from fedspan.owner.rules import LEAST_ROWS, LEAST_SET, LEAST_SITES, STEP_SECONDS, Rules
from fedspan.owner.schema import check_schema
from fedspan.privacy.gaussian import check_budget

T = TypeVar("T")

KEYS = {
    "site": {"name", "modules"},
    "data": {
        *("file", "tables", "url", "query", "password_env", "password_file", "timeout"),
        *("columns", "drop", "label", "target", "task", "where", "layer", "stream"),
        *DIALECT_KEYS,
    },
    "rules": {
        *("level", "steps", "transforms", "least_rows", "least_set", "largest_reply", "rounds_per_day", "users"),
        *("sums_only", "least_sites", "step_seconds", "step_memory", "approval"),
    },
    "privacy": {"ledger", "epsilon", "delta", "strict"},
    "log": {"file"},
}
_SECRET = ("url", "password_env", "password_file")
#: What no text may hold but ``url``: a database's URL; except in free text, also any other URL, or the end of one.
_DATABASE_URL = re.compile(r"(?:postgres|sqlite|mysql|mariadb|oracle|mssql)[a-z0-9+]*:/", re.IGNORECASE)
_ANY_URL = re.compile(r"://|:\S*@")
_FREE_TEXT = ("query", "where")

NAME_RULE = "letters, digits, '-' and '_', at most 63, and begin and end with a letter or digit"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")


class SiteFileError(InputError):
    """Everything that is wrong with a site's file, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class RowsPlan:
    """Where the rows are, and which of them and of their columns the federation may learn from.

    `target` has the columns that regressions learn to predict: one, or those of time and event. A `label` is not
    learned from. With `stream` the rows stay in their files, and are read in blocks for every pass.
    """

    source: TableSource
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    label: str | None = None
    target: tuple[str, ...] = ()
    task: str | None = None
    where: RowFilter | None = None
    stream: bool = False


@dataclass(frozen=True)
class PrivacyPlan:
    """Where the site's ledger is, and its budget; without one, the budget that the ledger has."""

    ledger: Path
    epsilon: float | None = None
    delta: float | None = None
    strict: bool = False


@dataclass(frozen=True)
class SiteFile:
    """A checked ``site.toml``."""

    path: Path
    name: str
    data: RowsPlan
    schema: dict[str, str] | None
    rules: Rules
    privacy: PrivacyPlan | None
    log: Path

    @property
    def decisions(self) -> Path:
        """The file of the owner's decisions, beside the log."""
        return self.log.with_suffix(".decisions")


def read_site_file(path: Path) -> SiteFile:
    """Read and check a site's file, or raise a `SiteFileError` with a sentence for each section that is wrong."""
    read = _read(path)
    if isinstance(read, SiteFile):
        return read
    raise SiteFileError(read)  # here: no frame of this error has seen a value of the file


def is_name(value: object) -> bool:
    """Return whether a site or a user can have this name, as certificates write it.

    >>> is_name("alice"), is_name(" alice"), is_name("")
    (True, False, False)
    """
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _read(path: Path) -> SiteFile | list[str]:
    try:
        raw = parsed(path)[1]
        problems = [f"{path}: {sentence}" for sentence in _misplaced_urls(raw)]
        if problems:
            return problems
        file = Section(raw, path, keys=(*KEYS, "schema"))
    except InputError as error:
        return [str(error)]

    def part(name: str, make: Callable[[Section], T]) -> T | None:
        try:
            return make(file.table(name, KEYS.get(name)))
        except InputError as error:
            problems.append(str(error))
            return None

    name, data, rules = part("site", _site), part("data", _data), part("rules", _rules)
    schema = part("schema", _schema) if "schema" in raw else None
    privacy = part("privacy", _privacy) if "privacy" in raw else None
    log = part("log", lambda section: path.parent / section.value("file", str, "audit.jsonl"))
    if rules is not None and rules.level == "private" and not (privacy is not None and privacy.strict):
        problems.append(f"{path}: [rules] level = 'private' needs a [privacy] section with strict = true")
    if data is not None and data.stream and rules is not None and (privacy is not None or rules.level == "aggregate"):
        what, other = "level = 'aggregate'", "choose another level"
        if privacy is not None:
            what, other = "a [privacy] section", "leave that out"
        problems.append(f"{path}: {what} needs all rows in memory: leave [data] stream out, or {other}")
    if problems or name is None or data is None or rules is None or log is None:
        return problems
    return SiteFile(path, name, data, schema, rules, privacy, log)


def _misplaced_urls(raw: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each text, but that of ``[data] url``, that holds a URL or part of one."""
    found = []
    for section, body in raw.items():
        entries = body if isinstance(body, dict) else {}
        if any(_ANY_URL.search(name) for name in (section, *entries)):
            found.append('the name of a section or key is a URL, or part of one: write url = "..." in [data]')
            continue
        for key, value in entries.items():
            pattern = _DATABASE_URL if key in (*_FREE_TEXT, "tables") else _ANY_URL
            if key not in _SECRET and any(pattern.search(text) for text in _texts(value)):
                found.append(f"[{section}] {key} holds a URL, or part of one: only [data] url may")
    return found


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []


def _site(section: Section) -> str:
    if "name" not in section:
        raise InputError(f"{section.path}: a [site] table with a name is missing")
    modules = section.names("modules", "modules, such as 'ourlab.protocols'", ())
    with section.naming():
        install_steps(own=modules)
    return str(section.value("name", str))


def _data(section: Section) -> RowsPlan:
    columns, drop = section.names("columns", "column names", None), section.names("drop", "column names", ())
    label, task, where = (section.value(key, str) for key in ("label", "task", "where"))
    target = _target(section)
    named = [*(columns or ()), *drop, *dict.fromkeys(name for name in (label, *target, task) if name is not None)]
    doubled = [name for name in named if named.count(name) > 1]
    if doubled:
        raise section.error(f"names the column {doubled[0]!r} twice, in 'columns', 'drop', 'label', 'target' or 'task'")
    if columns is not None and not columns:
        raise section.error("columns must name at least one column")
    with section.naming():
        row_filter = None if where is None else RowFilter(where)
    source, stream = _source(section), section.value("stream", bool, False)
    if stream and not (isinstance(source, FileSource) and source.streams):
        raise section.error(
            "stream = true is for Parquet and Feather files, whose columns have a type before all rows are read: "
            "convert the table, or leave stream out"
        )
    return RowsPlan(source, columns, drop, label, target, task, row_filter, stream)


def _target(section: Section) -> tuple[str, ...]:
    """Return the columns of the target: one name, or a list, such as those of time and event."""
    if isinstance(section.raw.get("target"), list):
        found = section.names("target", "column names", ())
        if not found or len(set(found)) < len(found):
            raise section.error("target must name one column or more, each once")
        return found
    name = section.value("target", str)
    return () if name is None else (name,)


def _source(section: Section) -> TableSource:
    if sum(key in section for key in ("file", "url", "tables")) != 1:
        raise section.error(
            "must have either 'file' (a table), 'url' and 'query' (a database), or 'tables' and 'query' (SQL on files)"
        )
    if "tables" in section:
        return _query_source(section)
    if "file" in section:
        for key in ("query", "password_env", "password_file", "timeout"):
            if key in section:
                raise section.error(f"{key} belongs to a database, and the data are in a file")
        file, layer = section.file(section.value("file", str), folders=True), section.value("layer", str)
        dialect, of_cells = stated(section), file.name.lower().endswith(CELL_ENDING)
        if layer is not None and not of_cells:
            raise section.error(f"layer is for {CELL_ENDING} files of cells: leave it out for {file.name}")
        with section.naming():
            return CellSource(file, dialect, layer) if of_cells else FileSource(file, dialect)
    url, env, password_file = (_secret(section, key) for key in _SECRET)
    assert url is not None
    for key in DIALECT_KEYS:
        if key in section:
            raise section.error(f"{key} is for CSV files, and the data are in a database, which has its own types")
    query, folder = section.value("query", str, ""), section.path.parent
    if not query.strip():
        raise section.error('url needs a query, such as query = "SELECT age, dose FROM visits ORDER BY id"')
    with section.naming():
        timeout = real_number("timeout", section.raw.get("timeout", 600), above=0)
        password = secret_of(env, password_file, folder)
        source = SqlSource(url, query, password=password, folder=folder, timeout=timeout)
    if source.password_in_url and section.path.stat().st_mode & 0o077:
        raise section.error(
            "url holds a password, and this file can be read by others: restrict it with chmod 600, or use "
            "password_env or password_file"
        )
    return source


def _query_source(section: Section) -> QuerySource:
    for key in (*_SECRET, "timeout", *DIALECT_KEYS):
        if key in section:
            raise section.error(f"{key} does not belong to SQL on files")
    tables, query = section.raw["tables"], section.value("query", str, "")
    if not isinstance(tables, dict) or not all(isinstance(place, str) for place in tables.values()):
        raise section.error('tables must name files, such as { visits = "visits.parquet" }')
    with section.naming():
        return QuerySource(tables, query, section.path.parent)


def _secret(section: Section, key: str) -> Secret | None:
    value = section.raw.get(key)
    if value is not None and not isinstance(value, str):
        raise section.error(f"{key} must be text")
    return None if value is None else Secret(value)


def _schema(section: Section) -> dict[str, str]:
    with section.naming():
        return check_schema(section.raw)


def _rules(section: Section) -> Rules:
    level = section.value("level", str, "aggregate")
    approval = section.value("approval", str, "none")
    with section.naming():
        one_of("level", level, tuple(LEVELS))
        one_of("approval", approval, ("none", "required"))
    if level == "aggregate":
        for key in ("steps", "transforms", "sums_only"):
            if key in section:
                raise section.error(
                    f"{key} has no effect at level = 'aggregate', which admits fixed analyses: leave it out"
                )
    steps = section.names("steps", "steps or groups", (STEPS_OF_LEVEL[level],))
    transforms = section.names("transforms", "transforms", (TRANSFORMS_OF_LEVEL[level],))
    users = section.names("users", "users' names", None)
    for user in users or ():
        if not is_name(user):
            raise section.error(f"users: {user!r} can't be a name in a certificate: names are {NAME_RULE}")
    sums_only, raw = section.value("sums_only", bool, level == "secure"), section.raw
    if level == "secure" and not sums_only:
        raise section.error("level = 'secure' means secure sums only: leave sums_only out")
    with section.naming():
        limits = {
            key: whole_number(key, raw[key], least) if key in raw else default
            for key, least, default in (
                ("least_rows", 1, LEAST_ROWS),
                ("least_set", 1, LEAST_SET),
                ("least_sites", 2, LEAST_SITES),
                ("largest_reply", 1, None),
                ("rounds_per_day", 0, None),
                ("step_seconds", 1, STEP_SECONDS),
                ("step_memory", 2**20, None),
            )
        }
        check_names("transform", transforms, installed_transforms(), TRANSFORM_GROUPS)
        allowed = AllowedSteps(steps), transforms, level
        return Rules(*allowed, users=users, sums_only=sums_only, approval=approval == "required", **limits)  # type: ignore[arg-type]


def _privacy(section: Section) -> PrivacyPlan:
    if "ledger" not in section:
        raise section.error('needs the file of the site\'s ledger, such as ledger = "clinic.ledger"')
    epsilon, delta = (section.value(key, float) for key in ("epsilon", "delta"))
    if (epsilon is None) != (delta is None):
        raise section.error("epsilon and delta go together: give both, or neither where the ledger has them")
    if epsilon is not None:
        with section.naming():
            check_budget(epsilon, delta)
    return PrivacyPlan(
        section.path.parent / section.value("ledger", str), epsilon, delta, section.value("strict", bool, False)
    )

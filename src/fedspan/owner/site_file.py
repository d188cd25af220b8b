"""``site.toml``: what the owner of a site has written, checked before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from fedspan.checks import real_number, whole_number
from fedspan.datasets.sources import Dialect, FileSource, RowFilter, SqlSource, TableSource
from fedspan.datasets.sources.secret import secret_of
from fedspan.datasets.toml_file import check_keys, existing, names, parsed, table, typed
from fedspan.errors import InputError
from fedspan.federation.site.discovery import install_steps
from fedspan.federation.site.transforms import installed_transforms
from fedspan.owner.allowed_steps import AllowedSteps, allows_transform
from fedspan.owner.hidden_values import hidden_values, secret_text
from fedspan.owner.owned_rows import RowsPlan
from fedspan.owner.participant_names import NAME_RULE, is_name
from fedspan.owner.rules import LEAST_ROWS, LEAST_SET, Rules
from fedspan.owner.schema import check_schema
from fedspan.privacy.gaussian import check_budget

T = TypeVar("T")

KEYS = {
    "site": {"name", "modules"},
    "data": {
        *("file", "url", "query", "password_env", "password_file", "timeout"),
        *("columns", "drop", "label", "task", "where", "missing"),
    },
    "rules": {
        "steps",
        "transforms",
        "least_rows",
        "largest_reply",
        "rounds_per_day",
        "users",
        "sums_only",
        "least_set",
    },
    "privacy": {"ledger", "epsilon", "delta", "strict"},
    "log": {"file"},
}


class SiteFileError(InputError):
    """What is wrong with a site's file: all of it, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


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


def read_site_file(path: Path) -> SiteFile:
    """Read and check a site's file; one sentence for each section that has something wrong."""
    raw, found = hidden_values(parsed(path)[1], KEYS | {"schema": set()})
    if found:
        raise SiteFileError([f"{path}: {sentence}" for sentence in found])
    problems: list[str] = []

    def part(make: Callable[[], T]) -> T | None:
        try:
            return make()
        except InputError as error:
            said = str(error)
            problems.append(said if said.startswith(str(path)) else f"{path}: {said}")
            return None

    part(lambda: check_keys(raw, {*KEYS, "schema"}, path, ""))
    for key, allowed in KEYS.items():
        part(lambda key=key, allowed=allowed: check_keys(table(raw, key, path), allowed, path, f"[{key}] "))  # type: ignore[misc]
    if not problems:
        name = part(lambda: _site(table(raw, "site", path), path))
        data = part(lambda: _data(table(raw, "data", path), path))
        schema = part(lambda: _schema(table(raw, "schema", path)) if "schema" in raw else None)
        rules = part(lambda: _rules(table(raw, "rules", path), path))
        privacy = part(lambda: _privacy(table(raw, "privacy", path), path) if "privacy" in raw else None)
        log = part(lambda: path.parent / typed(table(raw, "log", path), "file", str, "audit.jsonl", path, "[log] "))
    if problems or name is None or data is None or rules is None or log is None:
        raise SiteFileError(problems)
    return SiteFile(path, name, data, schema, rules, privacy, log)


def _site(raw: Mapping[str, Any], path: Path) -> str:
    if "name" not in raw:
        raise InputError(f"{path}: a [site] table with a name is missing")
    install_steps(own=names(raw, "modules", path, "[site] ", "modules, such as 'ourlab.protocols'") or ())
    return str(typed(raw, "name", str, None, path, "[site] "))


def _data(raw: Mapping[str, Any], path: Path) -> RowsPlan:
    lists = {key: names(raw, key, path, "[data] ", "column names") for key in ("columns", "drop")}
    missing = names(raw, "missing", path, "[data] ", 'texts that mean a missing cell, such as ["?"]') or ()
    texts = {key: typed(raw, key, str, None, path, "[data] ") for key in ("label", "task", "where")}
    columns, drop = lists["columns"], lists["drop"] or ()
    named = [*(columns or ()), *drop, *dict.fromkeys(texts[key] for key in ("label", "task") if texts[key] is not None)]
    doubled = [name for name in named if named.count(name) > 1]
    if doubled:
        raise InputError(f"[data] names the column {doubled[0]!r} twice, in 'columns', 'drop', 'label' or 'task'")
    if columns is not None and not columns:
        raise InputError("[data] columns must name at least one column")
    where = None
    if texts["where"] is not None:
        try:
            where = RowFilter(texts["where"])
        except InputError as error:
            raise InputError(f"[data] where: {error}") from None
    return RowsPlan(_source(raw, missing, path), columns, drop, texts["label"], texts["task"], where)


def _source(raw: Mapping[str, Any], missing: tuple[str, ...], path: Path) -> TableSource:
    if ("file" in raw) == ("url" in raw):
        raise InputError("[data] must have either 'file' (a table) or 'url' and 'query' (a database)")
    if "file" in raw:
        for key in ("query", "password_env", "password_file", "timeout"):
            if key in raw:
                raise InputError(f"[data] {key} belongs to a database, and the data are in a file")
        return FileSource(
            existing(path.parent / typed(raw, "file", str, "", path, "[data] "), path), Dialect(missing=missing)
        )
    url, env, file = (secret_text(raw, key) for key in ("url", "password_env", "password_file"))
    assert url is not None
    if missing:
        raise InputError("[data] missing is for CSV files, and the data are in a database, which has a mark of its own")
    query = typed(raw, "query", str, "", path, "[data] ")
    if not query.strip():
        raise InputError('[data] url needs a query, such as query = "SELECT age, dose FROM visits ORDER BY id"')
    try:
        source = SqlSource(
            url,
            query,
            password=secret_of(env, file, path.parent),
            folder=path.parent,
            timeout=real_number("timeout", raw.get("timeout", 600), above=0),
        )
    except InputError as error:
        raise InputError(f"[data] {error}") from None
    if source.password_in_url and path.stat().st_mode & 0o077:
        raise InputError(
            "[data] url holds a password, and this file can be read by others: take that back with chmod 600, or use "
            "password_env or password_file"
        )
    return source


def _schema(raw: Mapping[str, Any]) -> dict[str, str]:
    try:
        return check_schema(raw)
    except InputError as error:
        raise InputError(f"[schema] {error}") from None


def _rules(raw: Mapping[str, Any], path: Path) -> Rules:
    limits = {}
    try:
        for key, least in (("least_rows", 1), ("least_set", 1), ("largest_reply", 1), ("rounds_per_day", 0)):
            limits[key] = whole_number(key, raw[key], least) if key in raw else None
        steps = names(raw, "steps", path, "[rules] ", "steps, modules or groups")
        transforms = names(raw, "transforms", path, "[rules] ", "transforms or modules")
        users = names(raw, "users", path, "[rules] ", "users' names")
        for user in users or ():
            if not is_name(user):
                raise InputError(f"users: {user!r} is nobody's name in a certificate: names are {NAME_RULE}")
        return Rules(
            AllowedSteps(("summaries",) if steps is None else steps),
            ("fedspan",) if transforms is None else _installed(transforms),
            limits["least_rows"] or LEAST_ROWS,
            limits["largest_reply"],
            limits["rounds_per_day"],
            users,
            typed(raw, "sums_only", bool, False, path, "[rules] "),
            limits["least_set"] or LEAST_SET,
        )
    except InputError as error:
        said = str(error)
        raise InputError(said if said.startswith(str(path)) else f"[rules] {said}") from None


def _installed(transforms: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of transforms, if there is something here that each of them allows."""
    known = installed_transforms()
    for name in transforms:
        if not any(allows_transform([name], transform) for transform in known):
            near = get_close_matches(name, [*known, *{transform.rpartition(".")[0] for transform in known}], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(
                f"transforms: {name!r} is neither a transform that is installed here nor a module with such{hint}"
            )
    return transforms


def _privacy(raw: Mapping[str, Any], path: Path) -> PrivacyPlan:
    if "ledger" not in raw:
        raise InputError('[privacy] needs the file of the site\'s ledger, such as ledger = "clinic.ledger"')
    epsilon, delta = (typed(raw, key, float, None, path, "[privacy] ") for key in ("epsilon", "delta"))
    if (epsilon is None) != (delta is None):
        raise InputError("[privacy] epsilon and delta go together: give both, or neither where the ledger has them")
    if epsilon is not None:
        try:
            check_budget(epsilon, delta)
        except InputError as error:
            raise InputError(f"[privacy] {error}") from None
    ledger = path.parent / typed(raw, "ledger", str, "", path, "[privacy] ")
    return PrivacyPlan(ledger, epsilon, delta, typed(raw, "strict", bool, False, path, "[privacy] "))

"""``fed.toml``: who takes part in a federation, checked before anything is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedspan.datasets.toml_file import parsed
from fedspan.errors import InputError
from fedspan.owner.schema import check_schema
from fedspan.owner.site_file import NAME_RULE, is_name

#: The server's name in its certificate and the name of its kit.
COORDINATOR = "coordinator"

#: What a user may do: an analyst runs studies, a viewer sees who is online.
ROLES = ("analyst", "viewer")

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_TAKEN = {COORDINATOR, "server", "admin", "all", "authority", "runner"}


@dataclass(frozen=True)
class FederationPlan:
    """A checked ``fed.toml``: the federation's name, the server's address, the sites, and each user's role.

    `schema`, where there is one, names the columns that every site's table must have, with their kinds.
    """

    name: str
    host: str
    port: int
    sites: tuple[str, ...]
    users: dict[str, str]
    schema: dict[str, str] | None = None

    @property
    def server(self) -> str:
        """The server's address, ``host:port``."""
        return f"{self.host}:{self.port}"


def read_plan(path: Path) -> FederationPlan:
    """Read and check a ``fed.toml``."""
    return parse_plan(parsed(path)[1], str(path))


def parse_plan(raw: Mapping[str, Any], where: str) -> FederationPlan:
    """Check what a ``fed.toml`` says.

    >>> parse_plan({"name": "demo", "server": "fl.example.org:8002", "sites": ["north", "south"],
    ...             "users": {"alice": "analyst"}}, "fed.toml").server
    'fl.example.org:8002'
    """
    needed = {"name", "server", "sites", "users"}
    for key in raw:
        if key not in {*needed, "schema"}:
            known = ", ".join(sorted({*needed, "schema"}))
            raise InputError(f"{where}: {key!r} is not a known key; known are {known}")
    for key in sorted(needed):
        if key not in raw:
            raise InputError(f"{where}: {key!r} is missing; a federation has a name, a server, sites and users")
    host, port = _address(raw["server"], where)
    sites, users = raw["sites"], raw["users"]
    if not isinstance(sites, list) or not sites:
        raise InputError(f'{where}: sites must be a list of names, such as ["north", "south"]')
    if not isinstance(users, dict) or not users:
        raise InputError(f'{where}: users must be a table of roles, such as {{ alice = "analyst" }}')
    names = [_name(name, where, "site") for name in sites] + [_name(name, where, "user") for name in users]
    twice = sorted({name for name in names if [other.lower() for other in names].count(name.lower()) > 1})
    if twice:
        raise InputError(f"{where}: the name {twice[0]!r} is given twice; sites and users need names of their own")
    for user, role in users.items():
        if role not in ROLES:
            raise InputError(f"{where}: the role {role!r} of {user} must be one of {', '.join(ROLES)}")
    schema = _schema(raw["schema"], where) if "schema" in raw else None
    name = _name(raw["name"], where, "federation")
    return FederationPlan(name, host, port, tuple(sorted(sites)), dict(users), schema)


def _schema(raw: Any, where: str) -> dict[str, str]:
    if not isinstance(raw, dict) or not raw:
        raise InputError(f'{where}: schema must be a table of kinds of columns, such as {{ age = "integer" }}')
    try:
        return check_schema(raw)
    except InputError as error:
        raise InputError(f"{where}: [schema] {error}") from None


def _address(value: Any, where: str) -> tuple[str, int]:
    host, _, port = str(value).rpartition(":")
    if not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"{where}: server = {value!r} must be an address such as fl.example.org:8002")
    return host, int(port)


def _name(value: Any, where: str, what: str) -> str:
    if not is_name(value):
        raise InputError(f"{where}: the {what} name {value!r} must be {NAME_RULE}")
    if what != "federation" and value.lower() in _TAKEN:
        raise InputError(f"{where}: the {what} name {value!r} is taken by the system; choose another")
    return str(value)

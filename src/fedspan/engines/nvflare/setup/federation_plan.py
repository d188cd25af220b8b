"""``fed.toml``: who takes part in a federation, checked before any kit is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedspan.datasets.toml_file import parsed
from fedspan.errors import InputError
from fedspan.owner.admission import ANALYST
from fedspan.owner.schema import check_schema
from fedspan.owner.site_file import NAME_RULE, is_name

#: The server's name in its certificate and the name of its kit.
COORDINATOR = "coordinator"

#: Roles of users: an analyst runs studies, a viewer sees which sites are online.
ROLES = (ANALYST, "viewer")

_NEEDED = ("name", "server", "sites", "users")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_RESERVED = {COORDINATOR, "server", "admin", "all", "authority", "runner"}


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
    try:
        return parse_plan(parsed(path)[1])
    except PlanError as error:
        raise InputError(f"{path}: {error}") from None


class PlanError(InputError):
    """What is wrong with a ``fed.toml``."""


def parse_plan(raw: Mapping[str, Any]) -> FederationPlan:
    """Check the content of a ``fed.toml``.

    >>> parse_plan({"name": "demo", "server": "fl.example.org:8002", "sites": ["north", "south"],
    ...             "users": {"alice": "analyst"}}).server
    'fl.example.org:8002'
    """
    for key in raw:
        if key not in (*_NEEDED, "schema"):
            raise PlanError(f"{key!r} is not a known key; known are {', '.join(sorted((*_NEEDED, 'schema')))}")
    for key in _NEEDED:
        if key not in raw:
            raise PlanError(f"{key!r} is missing; a federation has a name, a server, sites and users")
    host, _, port = str(raw["server"]).rpartition(":")
    if not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise PlanError(f"server = {raw['server']!r} must be an address such as fl.example.org:8002")
    sites, users = raw["sites"], raw["users"]
    if not isinstance(sites, list) or not sites:
        raise PlanError('sites must be a list of names, such as ["north", "south"]')
    if not isinstance(users, dict) or not users:
        raise PlanError('users must be a table of roles, such as { alice = "analyst" }')
    names = [_name(name, "site") for name in sites] + [_name(name, "user") for name in users]
    twice = sorted({name for name in names if [other.lower() for other in names].count(name.lower()) > 1})
    if twice:
        raise PlanError(f"the name {twice[0]!r} is given twice; sites and users need names of their own")
    for user, role in users.items():
        if role not in ROLES:
            raise PlanError(f"the role {role!r} of {user} must be one of {', '.join(ROLES)}")
    name = _name(raw["name"], "federation")
    return FederationPlan(name, host, int(port), tuple(sorted(sites)), dict(users), _schema(raw))


def _schema(raw: Mapping[str, Any]) -> dict[str, str] | None:
    if "schema" not in raw:
        return None
    if not isinstance(raw["schema"], dict) or not raw["schema"]:
        raise PlanError('schema must be a table of kinds of columns, such as { age = "integer" }')
    try:
        return check_schema(raw["schema"])
    except InputError as error:
        raise PlanError(f"[schema] {error}") from None


def _name(value: Any, what: str) -> str:
    if not is_name(value):
        raise PlanError(f"the {what} name {value!r} must be {NAME_RULE}")
    if what != "federation" and value.lower() in _RESERVED:
        raise PlanError(f"the {what} name {value!r} is reserved; choose another")
    return str(value)

"""``fed.toml``, which names the participants of a federation, and their kits: the folder of each participant."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedspan.checks import json_value
from fedspan.datasets.toml_file import parsed
from fedspan.durable.whole_file import write_whole
from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.errors import InputError, MissingPackageError, PolicyError
from fedspan.federation import SecureSum
from fedspan.owner.admission import ANALYST
from fedspan.owner.schema import check_schema
from fedspan.owner.site_file import NAME_RULE, is_name

#: The server's name in its certificate and the name of its kit.
COORDINATOR = "coordinator"

#: Roles of users: an analyst runs studies, a viewer sees which sites are online.
ROLES = (ANALYST, "viewer")

_NEEDED, _OPTIONAL = ("name", "server", "sites", "users"), ("schema", "secure_sum", "transport")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_RESERVED = {COORDINATOR, "server", "admin", "all", "authority", "runner"}
KINDS = ("coordinator", "site", "user")

#: How messages travel, the default first; all of them with mutual TLS, on one port.
TRANSPORTS = ("grpc", "http", "tcp")


@dataclass(frozen=True)
class FederationPlan:
    """A checked ``fed.toml``: the federation's name, the server's address, the sites, and each user's role.

    `schema`, where there is one, names the columns that every site's table must have, with their kinds. `secure_sum`
    has the settings of all secure sums; `transport` is one of `TRANSPORTS`.
    """

    name: str
    host: str
    port: int
    sites: tuple[str, ...]
    users: dict[str, str]
    schema: dict[str, str] | None = None
    secure_sum: SecureSum = field(default_factory=SecureSum)
    transport: str = TRANSPORTS[0]

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
        if key not in (*_NEEDED, *_OPTIONAL):
            raise PlanError(f"{key!r} is not a known key; known are {', '.join(sorted((*_NEEDED, *_OPTIONAL)))}")
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
    secure_sum = _secure_sum(raw, len(sites))
    transport = raw.get("transport", TRANSPORTS[0])
    if transport not in TRANSPORTS:
        raise PlanError(f"transport = {transport!r} must be one of {', '.join(TRANSPORTS)}")
    plan = (name, host, int(port), tuple(sorted(sites)), dict(users), _schema(raw), secure_sum, transport)
    return FederationPlan(*plan)


def _schema(raw: Mapping[str, Any]) -> dict[str, str] | None:
    if "schema" not in raw:
        return None
    if not isinstance(raw["schema"], dict) or not raw["schema"]:
        raise PlanError('schema must be a table of kinds of columns, such as { age = "integer" }')
    try:
        return check_schema(raw["schema"])
    except InputError as error:
        raise PlanError(f"[schema] {error}") from None


def _secure_sum(raw: Mapping[str, Any], sites: int) -> SecureSum:
    given = raw.get("secure_sum", {})
    known = [one.name for one in fields(SecureSum)]
    if not isinstance(given, dict) or not set(given) <= set(known):
        raise PlanError(f"secure_sum must be a table of settings of secure sums: {', '.join(known)}")
    try:
        settings = SecureSum(**given)
    except PolicyError as error:
        raise PlanError(f"[secure_sum] {error}") from None
    if "least" in given and settings.least > sites:
        raise PlanError(f"[secure_sum] least={settings.least} is more than the {sites} sites of the federation")
    return settings


def _name(value: Any, what: str) -> str:
    if not is_name(value):
        raise PlanError(f"the {what} name {value!r} must be {NAME_RULE}")
    if what != "federation" and value.lower() in _RESERVED:
        raise PlanError(f"the {what} name {value!r} is reserved; choose another")
    return str(value)


@dataclass(frozen=True)
class Kit:
    """Whose kit a folder is, and of which federation; `schema` has the kinds of the columns that all sites have.

    `secure_sum` has the settings of secure sums, with the root's signature.
    """

    path: Path
    federation: str
    kind: str
    name: str
    server: str
    sites: tuple[str, ...]
    users: tuple[str, ...]
    version: str
    schema: dict[str, str] | None = None
    secure_sum: dict[str, Any] | None = None
    transport: str = TRANSPORTS[0]

    def must_be(self, kind: str, command: str) -> None:
        """Refuse the kit of another kind of participant."""
        if self.kind != kind:
            raise InputError(f"{self.path} is the kit of the {self.kind} {self.name}; {command} needs a {kind}'s kit")


def needs_nvflare() -> None:
    """Raise an error unless NVIDIA FLARE is installed."""
    if find_spec("nvflare") is None:
        raise MissingPackageError("real federations need NVIDIA FLARE: pip install fedspan[nvflare]")


def read_kit(path: str | os.PathLike[str]) -> Kit:
    """Read whose kit `path` is."""
    folder = Path(path).resolve()
    file = folder / "fedspan.json"
    try:
        raw = json_value(file.read_bytes())
        schema = raw.pop("schema", None)
        kit = Kit(folder, **raw | {name: tuple(sorted(raw[name])) for name in ("sites", "users")})
        if kit.kind not in KINDS or not isinstance(schema, dict | None):
            raise ValueError
    except OSError:
        raise InputError(
            f"{path} is not a kit: it has no fedspan.json; 'fedspan federation init fed.toml' makes kits"
        ) from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{file} is damaged; request the kit again") from None
    return kit if schema is None else Kit(**vars(kit) | {"schema": check_schema(schema)})


def write_kit(kit: Kit) -> None:
    """Write ``fedspan.json`` into the kit's folder, whole or not at all."""
    raw = {key: value for key, value in asdict(kit).items() if key != "path"}
    write_json(kit.path / "fedspan.json", raw)


def new_kit(path: Path, plan: FederationPlan, kind: str, name: str, secure_sum: dict[str, Any]) -> Kit:
    """Return the kit of a participant of `plan`, made by this version of fedspan, with signed settings."""
    sites, users = tuple(plan.sites), tuple(sorted(plan.users))
    who = (path, plan.name, kind, name, plan.server, sites, users, fedspan_version())
    return Kit(*who, plan.schema, secure_sum, plan.transport)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    write_whole(path, json.dumps(content, indent=2).encode())

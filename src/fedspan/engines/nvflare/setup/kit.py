"""``fed.toml``, which names the participants of a federation, and their kits: the folder of each participant."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedspan.checks import json_value
from fedspan.datasets.toml_file import parsed
from fedspan.durable.whole_file import write_whole
from fedspan.engines.members.enrolment import ROLES, RUNNER, check_name
from fedspan.engines.members.member_list import KINDS, MEMBERS, kit_list
from fedspan.engines.members.oidc import OidcSettings
from fedspan.errors import InputError, MissingPackageError, PolicyError
from fedspan.federation import SecureSum
from fedspan.owner.schema import check_schema
from fedspan.owner.site_file import NAME_RULE, is_name

#: How messages travel, the default first; all of them with mutual TLS, on one port.
TRANSPORTS = ("grpc", "http", "tcp")

_NEEDED, _OPTIONAL = ("name", "server", "sites", "users"), ("schema", "secure_sum", "transport", "oidc")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")


@dataclass(frozen=True)
class FederationPlan:
    """A checked ``fed.toml``: the federation's name, the server's address, the sites, and each user's role.

    `schema`, where there is one, names the columns that every site's table must have, with their kinds. `secure_sum`
    has the settings of all secure sums, `oidc` the identity provider of users.
    """

    name: str
    host: str
    port: int
    sites: tuple[str, ...]
    users: dict[str, str]
    schema: dict[str, str] | None = None
    secure_sum: SecureSum = field(default_factory=SecureSum)
    transport: str = TRANSPORTS[0]
    oidc: OidcSettings | None = None

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
    raw = {"users": {}, **raw} if "oidc" in raw else raw
    for key in _NEEDED:
        if key not in raw:
            raise PlanError(f"{key!r} is missing; a federation has a name, a server, sites and users")
    host, port = parse_address(raw["server"])
    transport = raw.get("transport", TRANSPORTS[0])
    if transport not in TRANSPORTS:
        raise PlanError(f"transport = {transport!r} must be one of {', '.join(TRANSPORTS)}")
    sites, users = raw["sites"], raw["users"]
    if not isinstance(sites, list) or not sites:
        raise PlanError('sites must be a list of names, such as ["north", "south"]')
    if not isinstance(users, dict) or not (users or "oidc" in raw):
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
    settings = (_schema(raw), secure_sum, transport, _oidc(raw))
    return FederationPlan(name, host, port, tuple(sorted(sites)), dict(users), *settings)


def parse_address(address: object) -> tuple[str, int]:
    """Return host and port of a coordinator's address.

    >>> parse_address("fl.example.org:8002")
    ('fl.example.org', 8002)
    """
    host, _, port = str(address).rpartition(":")
    if not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise PlanError(f"server = {address!r} must be an address such as fl.example.org:8002")
    return host, int(port)


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


def _oidc(raw: Mapping[str, Any]) -> OidcSettings | None:
    if "oidc" not in raw:
        return None
    try:
        return OidcSettings(**raw["oidc"])
    except TypeError:
        known = ", ".join(one.name for one in fields(OidcSettings))
        raise PlanError(f"oidc must be a table with issuer, client_id and roles; known are {known}") from None
    except InputError as error:
        raise PlanError(str(error)) from None


def _name(value: Any, what: str) -> str:
    if what == "federation" and not is_name(value):
        raise PlanError(f"the {what} name {value!r} must be {NAME_RULE}")
    if what != "federation":
        try:
            check_name(what, value)
        except InputError as error:
            raise PlanError(str(error)) from None
    return str(value)


@dataclass(frozen=True)
class Kit:
    """Whose kit a folder is, and of which federation; `schema` has the kinds of the columns that all sites have.

    All but kind and name comes from the federation's signed list of participants.
    """

    path: Path
    kind: str
    name: str
    federation: str
    server: str
    transport: str
    sites: tuple[str, ...]
    users: tuple[str, ...]
    schema: dict[str, str] | None = None

    def must_be(self, kind: str, command: str) -> None:
        """Refuse the kit of another kind of participant."""
        if self.kind != kind:
            raise InputError(f"{self.path} is the kit of the {self.kind} {self.name}; {command} needs a {kind}'s kit")


def needs_nvflare() -> None:
    """Raise an error unless NVIDIA FLARE is installed."""
    if find_spec("nvflare") is None:
        raise MissingPackageError("real federations need NVIDIA FLARE: pip install '.[nvflare]' in a checkout")


def read_owner(folder: Path) -> tuple[str, str]:
    """Return kind and name of the participant whose kit `folder` is; it may have no certificate yet."""
    file = folder / "fedspan.json"
    try:
        raw = json_value(file.read_bytes())
        kind, name = str(raw["kind"]), str(raw["name"])
        if kind not in KINDS:
            raise ValueError
    except OSError:
        raise InputError(
            f"{folder} is not a kit: it has no fedspan.json; 'fedspan site enroll', 'coordinator enroll' or "
            "'user enroll' makes one"
        ) from None
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{file} is damaged: make the kit again") from None
    return kind, name


def read_kit(path: str | os.PathLike[str]) -> Kit:
    """Read whose kit `path` is, and what the list of participants in it has."""
    folder = Path(path).resolve()
    kind, name = read_owner(folder)
    if not (folder / MEMBERS).exists():
        raise InputError(
            f"{path} has no certificate yet: bring its request to the federation's authority, and then "
            f"'fedspan {kind} join {path} members.json'"
        )
    listed = kit_list(folder)
    # The coordinator's own user is in the list as one that no other participant sees.
    users = tuple(user for user in listed.names("user") if user != RUNNER)
    schema = None if listed.schema is None else check_schema(dict(listed.schema))
    sites = listed.names("site")
    return Kit(folder, kind, name, listed.federation, listed.server, listed.transport, sites, users, schema)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    write_whole(path, json_bytes(content))


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return what `write_json` writes."""
    return json.dumps(content, indent=2).encode()

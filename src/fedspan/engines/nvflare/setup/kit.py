"""A kit: the folder with which one participant takes part in a federation."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedspan.engines.nvflare.setup.federation_plan import FederationPlan
from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.errors import InputError
from fedspan.owner.schema import check_schema

KINDS = ("coordinator", "site", "user")


@dataclass(frozen=True)
class Kit:
    """Whose kit a folder is, and of which federation; `schema` are the kinds of the columns that all sites have."""

    path: Path
    federation: str
    kind: str
    name: str
    server: str
    sites: tuple[str, ...]
    users: tuple[str, ...]
    version: str
    schema: dict[str, str] | None = None

    def must_be(self, kind: str, command: str) -> None:
        """Say so if the kit is another participant's."""
        if self.kind != kind:
            raise InputError(f"{self.path} is the kit of the {self.kind} {self.name}; {command} needs a {kind}'s kit")


def read_kit(path: str | os.PathLike[str]) -> Kit:
    """Read whose kit `path` is."""
    folder = Path(path).resolve()
    file = folder / "fedspan.json"
    try:
        raw: Any = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(
            f"{path} is not a kit: it has no fedspan.json; 'fedspan federation init fed.toml' makes kits"
        ) from None
    except ValueError:
        raise InputError(f"{file} is damaged; ask for the kit again") from None
    fields = ("federation", "kind", "name", "server", "sites", "users", "version")
    if not isinstance(raw, dict) or not all(key in raw for key in fields) or raw["kind"] not in KINDS:
        raise InputError(f"{file} is damaged; ask for the kit again")
    schema = raw.get("schema")
    if schema is not None and not isinstance(schema, dict):
        raise InputError(f"{file} is damaged; ask for the kit again")
    sites, users = tuple(sorted(raw["sites"])), tuple(sorted(raw["users"]))
    named = (raw["federation"], raw["kind"], raw["name"], raw["server"])
    return Kit(folder, *named, sites, users, raw["version"], None if schema is None else check_schema(schema))


def write_kit(kit: Kit) -> None:
    """Write ``fedspan.json`` into the kit's folder, whole or not at all."""
    raw = {key: value for key, value in asdict(kit).items() if key != "path"}
    write_private(kit.path / "fedspan.json", json.dumps(raw, indent=2))


def new_kit(path: Path, plan: FederationPlan, kind: str, name: str) -> Kit:
    """Return the kit of a participant of `plan`, made by this version of fedspan."""
    users = tuple(sorted(plan.users))
    return Kit(path, plan.name, kind, name, plan.server, tuple(plan.sites), users, fedspan_version(), plan.schema)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)

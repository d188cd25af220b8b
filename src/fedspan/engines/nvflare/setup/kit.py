"""A kit: the folder with which one participant takes part in a federation."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from fedspan.engines.nvflare.setup.federation_plan import FederationPlan
from fedspan.engines.remote.messages.environment import fedspan_version
from fedspan.errors import InputError, MissingPackageError
from fedspan.owner.schema import check_schema

KINDS = ("coordinator", "site", "user")


@dataclass(frozen=True)
class Kit:
    """Whose kit a folder is, and of which federation; `schema` has the kinds of the columns that all sites have."""

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
        raw = json.loads(file.read_text(encoding="utf-8"))
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
    write_private(kit.path / "fedspan.json", json.dumps(raw, indent=2))


def new_kit(path: Path, plan: FederationPlan, kind: str, name: str) -> Kit:
    """Return the kit of a participant of `plan`, made by this version of fedspan."""
    users = tuple(sorted(plan.users))
    return Kit(path, plan.name, kind, name, plan.server, tuple(plan.sites), users, fedspan_version(), plan.schema)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)

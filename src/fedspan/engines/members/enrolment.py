"""Requests to take part: a participant makes its key where it is used, and only the request leaves the machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedspan.checks import json_value
from fedspan.durable.whole_file import write_whole
from fedspan.engines.members.certificates import (
    key_digest,
    make_request,
    new_key,
    read_certificate,
    read_key,
    read_request,
)
from fedspan.engines.members.member_list import KINDS
from fedspan.errors import InputError
from fedspan.owner.site_file import NAME_RULE, is_name

#: Roles of users: an analyst runs studies, a viewer sees which sites are online, an operator disables sites and cancels
#: studies.
ROLES = ("analyst", "viewer", "operator")
#: Name of the coordinator, and name and role of its own user. Sites refuse what that user requests in its own name.
COORDINATOR, RUNNER = "coordinator", "runner"
_RESERVED = {COORDINATOR, RUNNER, "server", "admin", "all", "authority"}
_LARGEST = 2**18


def check_name(kind: str, name: str) -> None:
    """Refuse a name that a participant of this kind can't have."""
    if kind == "coordinator":
        if name != COORDINATOR:
            raise InputError(f"the coordinator is called {COORDINATOR!r}, not {name!r}")
    elif not is_name(name):
        raise InputError(f"the {kind} name {name!r} must be {NAME_RULE}")
    elif name.lower() in _RESERVED:
        raise InputError(f"the {kind} name {name!r} is reserved; choose another")


@dataclass(frozen=True)
class EnrolmentRequest:
    """A request to take part. `keys` has, by name, the role and the public key; a coordinator has a user of its own.

    `token` is what an identity provider has signed about a user, if any.
    """

    kind: str
    name: str
    keys: dict[str, tuple[str, Any]]
    token: str = ""

    @property
    def digest(self) -> str:
        """The digest of its key, to be compared by telephone or in person."""
        return key_digest(self.keys[self.name][1])


def names_of(kind: str, name: str) -> tuple[str, ...]:
    """Return the names under which a participant has keys."""
    return (name, RUNNER) if kind == "coordinator" else (name,)


def request_text(kind: str, name: str, role: str, keys: dict[str, bytes], token: str = "") -> bytes:
    """Return the request of a participant with these private keys, by name."""
    roles = {name: role, RUNNER: RUNNER}
    made = [make_request(key, whose, roles[whose]).decode() for whose, key in keys.items()]
    about = {"format": 1, "kind": kind, "name": name, "requests": made} | ({"token": token} if token else {})
    return json.dumps(about, indent=1).encode()


def read_enrolment(path: Path) -> EnrolmentRequest:
    """Read and check a request."""
    try:
        raw = json_value(path.read_bytes(), _LARGEST)
        kind, name, token = str(raw["kind"]), str(raw["name"]), str(raw.get("token", ""))
        found = [read_request(str(one).encode()) for one in raw["requests"]]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{path} is not a request: 'fedspan site enroll' makes one") from None
    if kind not in KINDS or tuple(whose for whose, _, _ in found) != names_of(kind, name):
        raise InputError(f"{path} is not a request of one participant")
    check_name(kind, name)
    return EnrolmentRequest(kind, name, {whose: (role, public) for whose, role, public in found}, token)


def make_keys(folder: Path, kind: str, name: str) -> dict[str, bytes]:
    """Make the keys of a participant in its kit, beside those that are in use, and return them by name.

    Keys that wait for their certificate are kept: the request for them may be under way.
    """
    keys = {}
    for whose, path in key_files(folder, kind, name).items():
        waiting = path.with_suffix(".next.key")
        if not waiting.exists():
            waiting.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(waiting, new_key())
        keys[whose] = waiting.read_bytes()
    return keys


def key_files(folder: Path, kind: str, name: str) -> dict[str, Path]:
    """Return where the keys of a participant are, by name."""
    if kind == "coordinator":
        return {name: folder / "startup" / "server.key", RUNNER: folder / RUNNER / "startup" / "client.key"}
    return {name: folder / "startup" / "client.key"}


def install_certificate(key: Path, certificates: tuple[str, ...]) -> None:
    """Write the newest certificate beside the key that it is for.

    A key that waited for its certificate takes the place of the previous one.
    """
    waiting, file = key.with_suffix(".next.key"), key.with_suffix(".crt")
    for one in certificates:
        public = read_certificate(one.encode()).public_key()
        for path in (waiting, key):
            if path.exists() and read_key(path.read_bytes()).public_key() == public:
                if not file.exists() or file.read_bytes() != one.encode():
                    write_whole(file, one.encode())
                path.replace(key)
                return
    raise InputError("the list of participants has no certificate for this kit's key: has the request been approved?")

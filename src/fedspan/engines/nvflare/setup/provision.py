"""Kits: a participant enrolls, joins with the signed list, and follows it; NVIDIA FLARE's settings are hardened."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedspan.durable.whole_file import write_whole
from fedspan.engines.members.authority_folder import AuthorityFolder
from fedspan.engines.members.certificates import key_digest, read_certificate
from fedspan.engines.members.enrolment import (
    COORDINATOR,
    RUNNER,
    check_name,
    install_certificate,
    key_files,
    make_keys,
    read_enrolment,
    request_text,
)
from fedspan.engines.members.member_list import MEMBERS, MemberList, read_list, root_of
from fedspan.engines.nvflare.setup.hardening import authorization, logging_settings, server_resources, site_resources
from fedspan.engines.nvflare.setup.kit import FederationPlan, parse_address, read_owner, write_json
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.errors import InputError, MessageError

#: The folder with the authority's key, which makes participants.
AUTHORITY = "authority"


def enroll(folder: Path, kind: str, name: str, role: str = "", token: str = "") -> bytes:
    """Make a kit with a key of its own, or a new key in a kit, and return the request to take part with it."""
    check_name(kind, name)
    if (folder / "fedspan.json").exists():
        if read_owner(folder) != (kind, name):
            raise InputError(f"{folder} is the kit of the {' '.join(read_owner(folder))}: choose another folder")
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is used already: choose another folder")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    keys = make_keys(folder, kind, name)
    write_json(folder / "fedspan.json", {"kind": kind, "name": name})
    if kind == "coordinator":
        write_json(folder / RUNNER / "fedspan.json", {"kind": "user", "name": RUNNER})
    return request_text(kind, name, role, keys, token)


class RemovedError(InputError):
    """A participant is not on the list."""


def join(folder: Path, data: bytes, root_digest: str = "") -> MemberList:
    """Install a signed list in a kit, with the kit's certificate in it; refuse an older list, or one without it.

    The first list brings the federation's root, which must have the digest `root_digest`, where it is given.
    """
    kind, name = read_owner(folder)
    file = folder / "startup" / "rootCA.pem"
    root = file.read_bytes() if file.exists() else root_of(data)
    members = read_list(data, root)
    if root_digest and "".join(root_digest.split()) != root_digest_of(root).replace(" ", ""):
        raise InputError(f"the root of this list has the digest {root_digest_of(root)}, not {root_digest}: do not join")
    old = folder / MEMBERS
    before = None
    with suppress(InputError):  # a damaged one is replaced
        before = read_list(old.read_bytes(), root) if old.exists() else None
    if before is not None and members.version < before.version:
        raise InputError(f"the list has the version {members.version}, and the kit has {before.version} already")
    own = {whose: members.members.get(whose) for whose in key_files(folder, kind, name)}
    for whose, member in own.items():
        if member is None:
            why = f"{whose!r} is not on the list of participants of {members.federation} (version {members.version})"
            raise RemovedError(f"{why}: ask its authority to approve the request")
    files = key_files(folder, kind, name)
    for key in files.values():  # the list first: what a kill leaves undone is done from it when the kit is used
        write_whole(key.parent / "rootCA.pem", root)
        write_whole(key.parent.parent / MEMBERS, data)
    for whose, key in files.items():
        member = own[whose]
        assert member is not None
        install_certificate(key, member.certificates)
        _write_settings(key.parent.parent, "user" if whose == RUNNER else kind, whose, members)
    return members


def check_own(folder: Path) -> None:
    """Refuse a kit whose certificate is not valid by its own list; finish what a kill may have left undone."""
    try:
        _verify_own(folder)
    except (InputError, MessageError) as error:
        try:
            join(folder, (folder / MEMBERS).read_bytes())
            _verify_own(folder)
        except (InputError, MessageError):
            raise InputError(f"the kit {folder} cannot be used: {error}") from None


def _verify_own(folder: Path) -> None:
    identity = Identity.from_kit(folder)
    Authority.from_kit(folder).verify(identity.certificate, identity.sign(b"mine"), b"mine")


def read_owner_of(folder: Path, kind: str) -> None:
    """Refuse the kit of another kind of participant."""
    if read_owner(folder)[0] != kind:
        raise InputError(f"{folder} is the kit of the {' '.join(read_owner(folder))}, not of a {kind}")


def root_digest_of(root: bytes) -> str:
    """Return the digest of a root's key, as two people compare it."""
    return key_digest(read_certificate(root).public_key())


def _write_settings(home: Path, kind: str, name: str, members: MemberList) -> None:
    """Write the settings of NVIDIA FLARE into a kit."""
    host, port = parse_address(members.server)
    project, identity, security = members.federation, COORDINATOR, {"connection_security": "mtls"}
    tls = {"ssl_private_key": "client.key", "ssl_cert": "client.crt", "ssl_root_cert": "rootCA.pem", **security}
    settings: dict[str, dict[str, Any]] = {}
    local: dict[str, dict[str, Any]] = {}
    if kind == "user":
        files = {"client_key": "client.key", "client_cert": "client.crt", "ca_cert": "rootCA.pem"}
        folders = {"with_file_transfer": True, "upload_dir": "transfer", "download_dir": "transfer"}
        address = {"scheme": members.transport, "host": host, "port": port, "uid_source": "user_input", **security}
        admin = {"project_name": project, "username": name, "server_identity": identity, **address, **folders, **files}
        settings["fed_admin.json"] = {"format_version": 1, "admin": admin}
        waits = {"idle_timeout": 900.0, "login_timeout": 10.0, "with_debug": False, "authenticate_msg_timeout": 2.0}
        local["resources.json"] = {"format_version": 1, "admin": waits}
    else:
        server: dict[str, Any] = {"name": project, "service": {"target": members.server, "scheme": members.transport}}
        if kind == "site":
            client = {**tls, "fqsn": name, "is_leaf": True}
            settings["fed_client.json"] = {
                "format_version": 2,
                "servers": [{**server, "identity": identity}],
                "client": client,
            }
        else:
            server["service"]["target"] = f"{COORDINATOR}:{port}"
            own = tls | {"ssl_private_key": "server.key", "ssl_cert": "server.crt"}
            listens = {"admin_server": COORDINATOR, "admin_port": port, **own}
            settings["fed_server.json"] = {"format_version": 2, "servers": [server | listens]}
        local["authorization.json"] = authorization()
        local["log_config.json"] = logging_settings()
        local["resources.json"] = site_resources() if kind == "site" else server_resources(home)
    for folder, files_of in (("startup", settings), ("local", local)):
        (home / folder).mkdir(exist_ok=True, mode=0o700)
        (home / folder).chmod(0o700)
        for file, content in files_of.items():
            if (home / folder / file).exists() and (home / folder / file).read_text() == json.dumps(content, indent=2):
                continue
            write_json(home / folder / file, content)


def found(plan: FederationPlan, folder: Path) -> AuthorityFolder:
    """Make the authority of `plan`, or let that in `folder` take the plan's names and settings."""
    if not folder.exists():
        AuthorityFolder.create(folder, plan.name, plan.server)
    authority = AuthorityFolder(folder)
    members = authority.members
    if (members.federation, members.server) != (plan.name, plan.server):
        raise InputError(
            f"{folder} is the authority of {members.federation} at {members.server}, not of {plan.name} at "
            f"{plan.server}: 'fedspan federation move' changes the address"
        )
    for user, role in plan.users.items():
        if user in members.members and members.members[user].role != role:
            raise InputError(
                f"{user} is {members.members[user].role} by certificate, not {role}: let {user} enroll again, and "
                f"'fedspan federation approve --replace' the request"
            )
    logged_in = {user: about for user, about in authority.invited.items() if plan.oidc and about[0] == "user"}
    invited = logged_in | {COORDINATOR: ("coordinator", "")} | dict.fromkeys(plan.sites, ("site", ""))
    authority.invite(invited | {user: ("user", role) for user, role in plan.users.items()})
    authority.trust(plan.oidc)
    authority.settle(plan.schema, plan.secure_sum, plan.transport)
    return authority


@dataclass(frozen=True)
class Provisioned:
    """The kits that were made here, and the participants that have theirs elsewhere, or from before, by name."""

    made: tuple[str, ...]
    kept: tuple[str, ...]


def provision(plan: FederationPlan, out: Path) -> Provisioned:
    """Make the authority and all kits of `plan` on this machine, for a trial. A name that has an identity keeps it."""
    if out.exists() and any(out.iterdir()) and not (out / AUTHORITY).is_dir():
        raise InputError(f"{out} is used already, and has no authority in it: choose another with --out")
    authority = found(plan, out / AUTHORITY)
    made = tuple(name for name in authority.invited if name not in authority.members.members)
    kept = tuple(name for name in authority.invited if name not in made)
    for name in made:
        kind, role = authority.invited[name]
        request = out / f"{name}.request"
        write_whole(request, enroll(out / name, kind, name, role))
        authority.approve(read_enrolment(request))
        request.unlink()
    hand_out(authority, out)
    return Provisioned(made, kept)


def hand_out(authority: AuthorityFolder, out: Path) -> list[str]:
    """Bring the newest list to all kits in a folder that are on it; return their names."""
    names = [name for name in authority.members.members if (out / name / "fedspan.json").exists()]
    for name in names:
        join(out / name, authority.list_bytes)
    return names

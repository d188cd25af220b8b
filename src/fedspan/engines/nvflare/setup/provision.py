"""``fedspan federation init``: one kit per participant, made by NVIDIA FLARE's provisioner and then hardened."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedspan.engines.nvflare.setup.federation_plan import COORDINATOR, FederationPlan
from fedspan.engines.nvflare.setup.hardening import (
    RUNNER,
    authorization,
    logging_settings,
    server_resources,
    site_resources,
)
from fedspan.engines.nvflare.setup.kit import Kit, new_kit, read_kit, write_kit, write_private
from fedspan.engines.nvflare.setup.requirements import needs_nvflare
from fedspan.errors import InputError

#: Holds the certificate authority's key: whoever has it makes participants.
AUTHORITY = "authority"


@dataclass(frozen=True)
class Provisioned:
    """What was made: kits by name, which of them are new, and when the federation's certificates end.

    Of the kits that were kept, those `renewed` have a new ``fedspan.json``: participants or the schema have changed.
    """

    folder: Path
    made: tuple[str, ...]
    kept: tuple[str, ...]
    renewed: tuple[str, ...]
    ends: datetime.datetime
    now: datetime.datetime


def provision(plan: FederationPlan, out: Path) -> Provisioned:
    """Make the kits of `plan` in `out`, or add the participants that have none yet.

    The same authority signs what is added later. A kit that is there is never written over; what it says about the
    federation's address must be what the plan says.
    """
    needs_nvflare()
    started = out.exists() and any(out.iterdir())
    if started and not (out / AUTHORITY / plan.name).is_dir():
        raise InputError(f"{out} is used already, and not by the federation {plan.name}: choose another with --out")
    _check_same(plan, out)
    wanted = {COORDINATOR: "coordinator"} | dict.fromkeys(plan.sites, "site") | dict.fromkeys(plan.users, "user")
    kept = tuple(name for name in wanted if (out / name).exists())
    made = tuple(name for name in wanted if name not in kept)
    out.mkdir(parents=True, exist_ok=True)
    (out / AUTHORITY).mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out / AUTHORITY) as work:
        produced = _run_provisioner(plan, out / AUTHORITY, Path(work))
        for name in made:
            _place(produced / name, new_kit(out / name, plan, wanted[name], name))
            if name == COORDINATOR:
                _place(produced / RUNNER, new_kit(out / name / RUNNER, plan, "user", RUNNER))
    renewed: list[str] = []
    for (
        name
    ) in kept:  # who takes part, or the schema, has changed: the server's and the users' kits here know it at once
        old = read_kit(out / name)
        new = new_kit(old.path, plan, wanted[name], name)
        if _items(new) == _items(old):
            continue
        renewed.append(name)
        write_kit(new)
        if name == COORDINATOR:
            write_kit(new_kit(old.path / RUNNER, plan, "user", RUNNER))
    ends = _ends(out / COORDINATOR / "startup" / "rootCA.pem")
    return Provisioned(out, made, kept, tuple(renewed), ends, datetime.datetime.now(datetime.UTC))


def _items(kit: Kit) -> list[object]:
    """Return what a kit says; the order of a schema's columns counts."""
    return [*vars(kit).values(), list(kit.schema or {})]


def _check_same(plan: FederationPlan, out: Path) -> None:
    if not (out / COORDINATOR).is_dir():
        return
    old = read_kit(out / COORDINATOR)
    if (old.federation, old.server) != (plan.name, plan.server):
        raise InputError(
            f"{out} holds the federation {old.federation} at {old.server}, not {plan.name} at {plan.server}: "
            "kits carry the address, so make all of them anew with --out"
        )
    for user, role in plan.users.items():
        if (out / user).is_dir() and (has := certificate_role(out / user / "startup" / "client.crt")) != role:
            raise InputError(
                f"{user} is {has} by certificate, not {role}: take the kit {out / user} away to make it anew"
            )


def _run_provisioner(plan: FederationPlan, authority: Path, work: Path) -> Path:
    """Let NVIDIA FLARE make all kits, with the authority's keys, and return the folder that holds them."""
    from nvflare.lighter.entity import Participant, Project
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        project = Project(plan.name, f"fedspan federation {plan.name}")
        org = "fedspan"
        ports = {"fed_learn_port": plan.port, "admin_port": plan.port}
        server = {**ports, "default_host": plan.host, "host_names": [plan.host]}
        project.add_participant(Participant("server", COORDINATOR, org, server))
        for site in plan.sites:
            project.add_participant(Participant("client", site, org, {}))
        for user, role in (plan.users | {RUNNER: RUNNER}).items():
            participant = Participant("admin", f"{user}@fedspan.example", org, {"role": role})
            participant.name = participant.subject = user  # the certificate names the user as fed.toml does
            project.add_participant(participant)
        state = authority / plan.name
        if state.exists():
            shutil.copytree(state, work / plan.name / "state")
        builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config", scheme="tcp"), CertBuilder()]
        context = Provisioner(str(work), builders).provision(project, logger=logging.getLogger(__name__))
    produced = context.get("current_prod_dir")
    if not produced:
        raise InputError(f"NVIDIA FLARE could not make the kits: {said.getvalue().strip()[-500:]}")
    if not state.exists():
        _keep_authority(work / plan.name / "state" / "cert.json", state)
    return Path(produced)


def _keep_authority(fresh: Path, state: Path) -> None:
    """Keep the authority's certificate and key alone: each participant's key leaves with its kit."""
    known = json.loads(fresh.read_text(encoding="utf-8"))
    root = {key: value for key, value in known.items() if key.startswith("root_")}
    state.mkdir(mode=0o700)
    write_private(state / "cert.json", json.dumps(root))


def _place(produced: Path, kit: Kit) -> None:
    """Take over what NVIDIA FLARE made for one participant, without its scripts, and harden it."""
    temporary = kit.path.with_name(f".{kit.path.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)
    (temporary / "startup").mkdir(parents=True)
    (temporary / "local").mkdir()
    for file in (produced / "startup").iterdir():
        if file.suffix in (".crt", ".key", ".pem") or file.name in (
            "fed_server.json",
            "fed_client.json",
            "fed_admin.json",
        ):
            write_private(temporary / "startup" / file.name, file.read_text(encoding="utf-8"))
    settings: dict[str, dict[str, Any]] = {}
    if kit.kind == "user":
        admin = {"idle_timeout": 900.0, "login_timeout": 10.0, "with_debug": False, "authenticate_msg_timeout": 2.0}
        settings["resources.json"] = {"format_version": 1, "admin": admin}
    else:
        settings["authorization.json"] = authorization()
        settings["log_config.json"] = logging_settings()
        settings["resources.json"] = site_resources() if kit.kind == "site" else server_resources(kit.path)
    for name, content in settings.items():
        write_private(temporary / "local" / name, json.dumps(content, indent=2))
    for folder in (temporary, temporary / "startup", temporary / "local"):
        folder.chmod(0o700)
    write_kit(Kit(**{**vars(kit), "path": temporary}))
    os.replace(temporary, kit.path)


def certificate_role(path: Path) -> str:
    """Return the role that a user's certificate names."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.load_pem_x509_certificate(path.read_bytes()).subject
    return "".join(str(entry.value) for entry in subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME))


def _ends(root: Path) -> datetime.datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(root.read_bytes()).not_valid_after_utc

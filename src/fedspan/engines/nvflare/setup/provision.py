"""``fedspan federation init``: one kit per participant, made by NVIDIA FLARE's provisioner and then hardened."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedspan.checks import json_value
from fedspan.durable.whole_file import write_whole
from fedspan.engines.nvflare.setup.hardening import (
    RUNNER,
    authorization,
    logging_settings,
    server_resources,
    site_resources,
)
from fedspan.engines.nvflare.setup.kit import (
    COORDINATOR,
    FederationPlan,
    Kit,
    needs_nvflare,
    new_kit,
    read_kit,
    write_json,
    write_kit,
)
from fedspan.engines.remote.messages.identity import Authority, Identity, sign_settings
from fedspan.errors import InputError

#: The folder with the certificate authority's key, which makes participants.
AUTHORITY = "authority"


_SETTINGS = ("fed_server.json", "fed_client.json", "fed_admin.json")


@dataclass(frozen=True)
class Provisioned:
    """The kits that were made, by name, and when the federation's certificates end.

    Of the kits that were kept, those `renewed` have a new ``fedspan.json``: participants, the schema or the settings of
    secure sums have changed.
    """

    made: tuple[str, ...]
    kept: tuple[str, ...]
    renewed: tuple[str, ...]
    ends: datetime


def provision(plan: FederationPlan, out: Path) -> Provisioned:
    """Make the kits of `plan` in `out`, or add the participants that have none yet.

    The same authority signs later participants. An existing kit is never overwritten, and must have the plan's address.
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
        root_key = json_value((out / AUTHORITY / plan.name / "cert.json").read_text(encoding="utf-8"))["root_pri_key"]
        signed = sign_settings(root_key.encode(), plan.name, plan.secure_sum)
        for name in made:
            _place(produced / name, new_kit(out / name, plan, wanted[name], name, signed))
            if name == COORDINATOR:
                _place(produced / RUNNER, new_kit(out / name / RUNNER, plan, "user", RUNNER, signed))
    renewed = []  # the participants, the schema or the settings have changed
    for name in kept:
        old = read_kit(out / name)
        new = new_kit(old.path, plan, wanted[name], name, signed)
        if _items(new) != _items(old):
            renewed.append(name)
            write_kit(new)
            if name == COORDINATOR:
                write_kit(new_kit(old.path / RUNNER, plan, "user", RUNNER, signed))
    return Provisioned(made, kept, tuple(renewed), Authority.from_kit(out / COORDINATOR).ends)


def _items(kit: Kit) -> list[object]:
    """Return the values of a kit; the order of a schema's columns counts."""
    return [*vars(kit).values(), list(kit.schema or {})]


def _check_same(plan: FederationPlan, out: Path) -> None:
    if not (out / COORDINATOR).is_dir():
        return
    old = read_kit(out / COORDINATOR)
    if (old.federation, old.server, old.transport) != (plan.name, plan.server, plan.transport):
        raise InputError(
            f"{out} holds the federation {old.federation} at {old.server} over {old.transport}, not {plan.name} at "
            f"{plan.server} over {plan.transport}: kits carry the address, so make all of them again with --out"
        )
    for user, role in plan.users.items():
        if (out / user).is_dir() and (has := Identity.from_kit(out / user).role) != role:
            raise InputError(
                f"{user} is {has} by certificate, not {role}: remove the kit {out / user} to make a new one"
            )


def _run_provisioner(plan: FederationPlan, authority: Path, work: Path) -> Path:
    """Let NVIDIA FLARE make all kits, with the authority's keys, and return the folder that holds them."""
    from nvflare.lighter.entity import Participant, Project
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
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
        builders = [WorkspaceBuilder(), StaticFileBuilder(config_folder="config", scheme=plan.transport), CertBuilder()]
        context = Provisioner(str(work), builders).provision(project, logger=logging.getLogger(__name__))
    produced = context.get("current_prod_dir")
    if not produced:
        raise InputError(f"NVIDIA FLARE could not make the kits: {output.getvalue().strip()[-500:]}")
    if not state.exists():
        _keep_authority(work / plan.name / "state" / "cert.json", state)
    return Path(produced)


def _keep_authority(fresh: Path, state: Path) -> None:
    """Keep the authority's certificate and key alone: each participant's key leaves with its kit."""
    known = json_value(fresh.read_bytes())
    root = {key: value for key, value in known.items() if key.startswith("root_")}
    state.mkdir(mode=0o700)
    write_json(state / "cert.json", root)


def _place(produced: Path, kit: Kit) -> None:
    """Copy what NVIDIA FLARE made for one participant, without its scripts, and harden it."""
    temporary = kit.path.with_name(f".{kit.path.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)
    (temporary / "startup").mkdir(parents=True)
    (temporary / "local").mkdir()
    for file in (produced / "startup").iterdir():
        if file.suffix in (".crt", ".key", ".pem") or file.name in _SETTINGS:
            write_whole(temporary / "startup" / file.name, file.read_bytes())
    settings: dict[str, dict[str, Any]] = {}
    if kit.kind == "user":
        admin = {"idle_timeout": 900.0, "login_timeout": 10.0, "with_debug": False, "authenticate_msg_timeout": 2.0}
        settings["resources.json"] = {"format_version": 1, "admin": admin}
    else:
        settings["authorization.json"] = authorization()
        settings["log_config.json"] = logging_settings()
        settings["resources.json"] = site_resources() if kit.kind == "site" else server_resources(kit.path)
    for name, content in settings.items():
        write_json(temporary / "local" / name, content)
    for folder in (temporary, temporary / "startup", temporary / "local"):
        folder.chmod(0o700)
    write_kit(Kit(**{**vars(kit), "path": temporary}))
    os.replace(temporary, kit.path)

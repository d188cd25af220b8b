"""The commands about who takes part: the authority's, and those of participants."""

from __future__ import annotations

from pathlib import Path

from fedspan.cli import help_texts
from fedspan.cli.command_parser import Commands, option, path

MODULE = "fedspan.cli.federation.members_command"
_NAMES = {"site": "north", "user": "alice", "coordinator": "coordinator"}


def add_authority(federation: Commands) -> None:
    """Add the commands of the authority to those of a federation."""
    where = path(
        "--authority", "FOLDER", "the authority's folder (default: kits/authority)", default=Path("kits/authority")
    )
    days = option("--days", "days that the certificate is valid (default: 360)", type=float, default=360.0)
    federation.add(
        "init",
        "make the authority of a federation",
        path("plan", "fed.toml", "name, server, sites, users, and a schema"),
        path("--out", "FOLDER", "where to (default: kits)", default=Path("kits")),
        option("--kits", "also make all kits on this machine, for a trial", action="store_true"),
        description=help_texts.FEDERATION_INIT,
        example="fedspan federation init fed.toml",
    )
    federation.add(
        "approve",
        "approve requests to take part",
        option("requests", "what 'enroll' has written", nargs="+", type=Path, metavar="REQUEST"),
        where,
        option("--add", "approve a name that fed.toml does not have", action="store_true"),
        option("--replace", "give a name another key, and revoke the previous one", action="store_true"),
        option("--role", "a user's role, instead of that in fed.toml or in the request", default=""),
        days,
        description=help_texts.APPROVE,
        example="fedspan federation approve north.request",
    )
    federation.add(
        "remove",
        "revoke a participant",
        option("name", "the participant's", metavar="NAME"),
        where,
        description="Revoke all certificates of a participant, without a restart of the others.",
        example="fedspan federation remove south",
    )
    federation.add(
        "renew",
        "renew certificates before they end",
        option("names", "whose (default: all that end within 60 days)", nargs="*", metavar="NAME"),
        where,
        days,
        description="Give the keys of participants new certificates. Participants take them from the coordinator.",
        example="fedspan federation renew",
    )
    federation.add(
        "move",
        "change the coordinator's address",
        option("address", "the new one", metavar="HOST:PORT"),
        where,
        description="Change the coordinator's address. Hand the list out before the coordinator stops at the old one.",
        example="fedspan federation move fl2.example.org:8002",
    )
    federation.add(
        "members",
        "list the participants",
        path("folder", "FOLDER", "the authority's folder, or a kit"),
        description="List the participants, by the newest signed list in a folder: kind, role, end of certificates.",
        example="fedspan federation members kits/authority",
    )


def add_operation(federation: Commands) -> None:
    """Add the commands of operators to those of a federation."""
    for name, help in (("disable", "pass nothing on to a site"), ("enable", "pass requests on to a site again")):
        federation.add(
            name,
            help,
            option("site", "its name", metavar="SITE"),
            path("kit", "KIT", "an operator's kit"),
            description=f"{help[0].upper()}{help[1:]}: for operators. Studies wait for a disabled site.",
            example=f"fedspan federation {name} south kits/olga",
            target=f"fedspan.cli.federation.federation_command:{name}",
        )


def add_enrolment(group: Commands, kind: str) -> None:
    """Add the commands with which a participant of this kind enrolls and joins."""
    name = _NAMES[kind]
    kit = path("--kit", "FOLDER", "the kit, a new folder or the current one (default: kits/NAME)")
    request = path("--request", "FILE", "where to write the request (default: NAME.request)")
    arguments = [kit, request]
    if kind != "coordinator":
        arguments.insert(0, option("name", f"the {kind}'s, as fed.toml has it", metavar="NAME"))
    if kind == "user":
        arguments.append(option("--role", "the role to request: analyst, viewer or operator", default=""))
        arguments.append(option("--oidc", "log in at this identity provider (OpenID Connect)", metavar="ISSUER"))
        arguments.append(option("--client-id", "fedspan's name at the provider (fedspan)", default="fedspan"))
    group.add(
        "enroll",
        "make a key here, and a request to take part with it",
        *arguments,
        description="Make a key on this machine, which it does not leave, and a request for the authority. "
        "In a kit that takes part already, the new key replaces the current one when the authority approves it.",
        example=f"fedspan {kind} enroll{'' if kind == 'coordinator' else f' {name}'}",
        target=f"{MODULE}:enroll",
        kind=kind,
    )
    group.add(
        "join",
        "install the signed list of participants, with this kit's certificate",
        path("kit", "KIT", f"the {kind}'s kit"),
        path("list", "members.json", "the list, from the authority"),
        option("--root", "the digest of the root's key, as the authority reads it out", default="", metavar="DIGEST"),
        description="Install the list of participants that the authority has signed, with the certificate of this kit. "
        "A process that runs with the kit takes it up.",
        example=f"fedspan {kind} join kits/{name} members.json",
        target=f"{MODULE}:join",
        kind=kind,
    )

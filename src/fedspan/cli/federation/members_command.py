"""``fedspan federation init | approve | remove | renew | move | members`` and ``enroll | join``: who takes part."""

from __future__ import annotations

import webbrowser
from datetime import UTC, datetime
from pathlib import Path

from fedspan.cli.console import print_line, print_table
from fedspan.durable.whole_file import write_whole
from fedspan.engines.members.authority_folder import AuthorityFolder
from fedspan.engines.members.enrolment import COORDINATOR, RUNNER, read_enrolment
from fedspan.engines.members.member_list import MEMBERS, kit_list, root_of
from fedspan.engines.members.oidc import log_in
from fedspan.engines.nvflare.setup import provision as kits_of
from fedspan.engines.nvflare.setup.kit import parse_address, read_plan
from fedspan.errors import InputError


def init(plan: Path, out: Path, kits: bool) -> int:
    """Make the authority of a federation, or let it take a changed plan; with `kits`, all kits too."""
    planned, folder = read_plan(plan), out / kits_of.AUTHORITY
    before = (folder / MEMBERS).read_bytes() if folder.exists() else b""
    invited = AuthorityFolder(folder).invited if before else {}
    if kits:
        done = kits_of.provision(planned, out)
        for name in done.made:
            print_line(str(out / name))
        missing = [name for name in done.kept if not (out / name).exists()]
        if missing:
            print_line(
                f"not made again: {', '.join(missing)}. A name has one identity; "
                "'fedspan federation approve --replace' gives it another"
            )
    elif out.exists() and any(out.iterdir()) and not folder.is_dir():
        raise InputError(f"{out} is used already, and has no authority in it: choose another with --out")
    else:
        kits_of.found(planned, folder)
    authority = AuthorityFolder(folder)
    if before == authority.list_bytes and invited == authority.invited:
        raise InputError(f"{folder} is the authority of this plan already: nothing has changed, and nothing is made")
    gone = [n for n in authority.members.members if n not in authority.invited and n != RUNNER]
    if gone:
        print_line(f"still participants: {', '.join(gone)}. 'fedspan federation remove NAME' revokes one")
    print_line(f"keep {folder} to yourself: its key makes participants")
    print_line(f"the digest of its key, to be read out to participants: {authority.digest}")
    if before:
        _hand_out(authority)
    elif not kits:
        print_line("next: 'enroll' for the coordinator, each site and each user, then 'fedspan federation approve'")
    return 0


def approve(requests: list[Path], authority: Path, add: bool, replace: bool, role: str, days: float) -> int:
    """Approve requests, and sign a list with them."""
    folder = AuthorityFolder(authority)
    read = [read_enrolment(path) for path in requests]
    for path, request in zip(requests, read, strict=True):
        if replace and path.name.partition(".")[0] != request.name:  # a file may hold the request of any participant
            raise InputError(
                f"{path} is a request of the {request.kind} {request.name!r}: call it {request.name}.request if that "
                "is whose key is to be replaced"
            )
    for request in read:
        if request.token and folder.oidc is not None:
            folder.approve_login(request, add=add)
        else:
            folder.approve(request, role=role, add=add, replace=replace, days=days)
        member = folder.members.members[request.name]
        what = f"{request.kind} {request.name}" if request.kind != "coordinator" else "the coordinator"
        print_line(f"approved: {what}{f', {member.role}' if member.role else ''}, key {request.digest}")
    _hand_out(folder)
    return 0


def remove(name: str, authority: Path) -> int:
    """Revoke a participant."""
    folder = AuthorityFolder(authority)
    folder.remove(name)
    print_line(f"removed: {name}")
    _hand_out(folder)
    return 0


def renew(names: list[str], authority: Path, days: float) -> int:
    """Renew certificates."""
    folder = AuthorityFolder(authority)
    renewed = folder.renew(names, days)
    if not renewed:
        print_line("no certificate ends within 60 days: nothing is renewed")
        return 0
    for name in renewed:
        print_line(f"renewed: {name}, to {folder.members.members[name].ends:%Y-%m-%d}")
    _hand_out(folder)
    return 0


def move(address: str, authority: Path) -> int:
    """Change the coordinator's address."""
    folder, (host, port) = AuthorityFolder(authority), parse_address(address)
    folder.move(f"{host}:{port}")
    print_line(f"the coordinator's address is now {host}:{port}")
    _hand_out(folder)
    print_line("when the participants have the list, stop the coordinator and start it at the new address")
    return 0


def members(folder: Path) -> int:
    """List the participants."""
    listed = AuthorityFolder(folder).members if (folder / "root.key").exists() else kit_list(folder)
    rows = []
    for name, member in sorted(listed.members.items()):
        if name != RUNNER:
            days = (member.ends - datetime.now(UTC)).days
            rows.append([name, member.kind, member.role, f"{member.ends:%Y-%m-%d}", f"{days:,}"])
    title = f"{listed.federation} at {listed.server}, version {listed.version}"
    print_table(("name", "kind", "role", "certificate ends", "days"), rows, ("days",), title)
    return 0


def enroll(
    kind: str,
    kit: Path | None,
    request: Path | None,
    name: str = COORDINATOR,
    role: str = "",
    oidc: str | None = None,
    client_id: str = "",
) -> int:
    """Make the keys of a participant, and its request; with `oidc`, let a user log in at this identity provider."""
    folder, file = kit or Path("kits") / name, request or Path(f"{name}.request")
    write_whole(file, kits_of.enroll(folder, kind, name, role))
    print_line(f"{folder} has the private key: it stays on this machine")
    if oidc is not None:
        token = log_in(oidc, client_id, read_enrolment(file).digest, _show_login)
        write_whole(file, kits_of.enroll(folder, kind, name, role, token))
    print_line(f"{file} is the request: send it to the federation's authority, in any way")
    if oidc is None:
        print_line(f"read this digest out to the authority: {read_enrolment(file).digest}")
    print_line(f"then, with the list that you get back: fedspan {kind} join {folder} members.json")
    return 0


def _show_login(address: str) -> None:
    print_line(f"log in at: {address}")
    webbrowser.open(address)


def join(kind: str, kit: Path, list: Path, root: str) -> int:
    """Install the list of participants in a kit."""
    kits_of.read_owner_of(kit, kind)
    try:
        data = list.read_bytes()
    except OSError as error:
        raise InputError(f"{list} cannot be read: {error.strerror}") from None
    first = not (kit / MEMBERS).exists()
    listed = kits_of.join(kit, data, root)
    print_line(f"{kit} has the list of {listed.federation}, version {listed.version}; coordinator at {listed.server}")
    if first and not root:
        print_line(f"compare with the authority, as it reads it out: {kits_of.root_digest_of(root_of(data))}")
    return 0


def _hand_out(authority: AuthorityFolder) -> None:
    """Bring the list to the kits beside the authority's folder, and print how the others get it."""
    names = kits_of.hand_out(authority, authority.folder.parent)
    file, version = authority.folder / MEMBERS, authority.members.version
    print_line(f"list of participants: {file}, version {version}")
    if COORDINATOR in names:
        print_line("the coordinator's kit has it: while it runs, it hands it to all others within seconds")
    elif COORDINATOR in authority.members.members:
        print_line(f"bring it to the coordinator: fedspan coordinator join KIT {MEMBERS}")

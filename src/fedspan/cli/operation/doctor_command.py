"""``fedspan doctor``: what keeps this machine from taking part, each with its remedy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedspan.cli.console import print_line
from fedspan.engines.members.enrolment import COORDINATOR
from fedspan.engines.nvflare.setup.kit import Kit, read_kit
from fedspan.engines.nvflare.setup.reach import proxy_of, trouble
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.errors import FedspanError
from fedspan.federation.versions import version_of
from fedspan.owner.audit_log import read_lines
from fedspan.owner.decisions import Decisions
from fedspan.owner.owned_site import data_problems, read_rows
from fedspan.owner.site_file import SiteFile, SiteFileError, read_site_file
from fedspan.privacy import Ledger

#: Bytes that a disk must have free, days before the end of a certificate, seconds for a connection.
LEAST_DISK, LEAST_DAYS, CONNECT = 2**30, 30, 5.0
#: Versions of Python and NVIDIA FLARE that are supported.
PYTHON, NVFLARE = (3, 11), "2.9."


@dataclass(frozen=True)
class Finding:
    """One thing that was checked: a sentence, and the remedy where it is a problem."""

    words: str
    remedy: str = ""

    def line(self) -> str:
        """Return it as printed."""
        return f"problem: {self.words}. Remedy: {self.remedy}" if self.remedy else f"ok: {self.words}"


def doctor(kit: Path, config: Path | None, health: bool) -> int:
    """Print what was checked; return 1 if there is a problem. With `health` check only that the process answers."""
    found = read_kit(kit)
    findings = list(_alive(found)) if health else [one for check in _checks(found, config) for one in check()]
    for one in findings:
        print_line(one.line())
    problems = sum(bool(one.remedy) for one in findings)
    print_line("no problems" if not problems else f"{problems} problem{'s' * (problems > 1)}")
    return 1 if problems else 0


def _checks(kit: Kit, config: Path | None) -> list[Callable[[], Iterator[Finding]]]:
    found: list[Callable[[], Iterator[Finding]]] = [
        _versions,
        lambda: _certificate(kit),
        lambda: _clock(kit, config),
        lambda: _disks(kit, config),
        lambda: _port(kit),
    ]
    if kit.kind == "site":
        found.append(lambda: _site(kit, config))
    return found


def _versions() -> Iterator[Finding]:
    here, flare = version_of("fedspan"), version_of("nvflare")
    if sys.version_info < PYTHON:
        yield Finding("this Python is too old", f"install Python {PYTHON[0]}.{PYTHON[1]} or newer")
    if flare == "not installed":
        yield Finding("NVIDIA FLARE is not installed", "pip install '.[nvflare]' in a checkout")
    elif not flare.startswith(NVFLARE):
        yield Finding(f"NVIDIA FLARE {flare} was not tested with fedspan {here}", f"pip install 'nvflare=={NVFLARE}*'")
    else:
        yield Finding(f"fedspan {here}, NVIDIA FLARE {flare}, Python {sys.version.split()[0]}")


def _certificate(kit: Kit) -> Iterator[Finding]:
    try:
        identity, authority = Identity.from_kit(kit.path), Authority.from_kit(kit.path)
        authority.verify(identity.certificate, identity.sign(b"mine"), b"mine")
        ends = _ends(identity.certificate)
    except FedspanError as error:
        yield Finding(
            f"the certificate can't be used: {error}",
            f"let the authority renew it, or 'fedspan {kit.kind} enroll' again and approve it with --replace",
        )
        return
    left = (ends - _now()).days
    if left < LEAST_DAYS:
        yield Finding(
            f"the certificate of {kit.name} ends on {ends:%Y-%m-%d}, in {left} days",
            "let the federation's authority renew the kit before then",
        )
    else:
        yield Finding(f"the certificate of {kit.name} is valid until {ends:%Y-%m-%d}, {left} days")
    keys = [path for path in (kit.path / "startup").glob("*.key") if path.stat().st_mode & 0o077]
    if keys and os.name == "posix":
        yield Finding(f"others can read the private key {keys[0]}", f"chmod 600 {keys[0]}")


def _clock(kit: Kit, config: Path | None) -> Iterator[Finding]:
    now = _now()
    with suppress(FedspanError):
        begins = _begins(Identity.from_kit(kit.path).certificate)
        if now < begins:
            yield Finding(
                f"the clock says {now:%Y-%m-%d %H:%M} UTC, before the certificate begins ({begins:%Y-%m-%d %H:%M})",
                "set the clock, and let it be kept by NTP (timedatectl set-ntp true)",
            )
            return
    if config is not None:
        with suppress(FedspanError):
            lines = read_lines(read_site_file(config).log)
            if lines and datetime.fromisoformat(lines[-1][0]["when"]) > now:
                yield Finding(
                    f"the clock says {now:%Y-%m-%d %H:%M} UTC, and the audit log has a later line",
                    "set the clock; if it was ahead once, begin a new log",
                )
                return
    kept = _ntp()
    if kept is False:
        yield Finding(
            "no time server keeps this machine's clock: requests are refused when clocks differ by minutes",
            "timedatectl set-ntp true, or install chrony",
        )
    else:
        by = " and kept by a time server" if kept else "; whether a time server keeps it is not known here"
        yield Finding(f"the clock says {now:%Y-%m-%d %H:%M} UTC{by}")


def _ntp() -> bool | None:
    """Return whether a time server keeps the clock, where systemd knows it."""
    if shutil.which("timedatectl") is None:
        return None
    command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
        return {"yes": True, "no": False}.get(done.stdout.strip())
    return None


def _disks(kit: Kit, config: Path | None) -> Iterator[Finding]:
    """Check each disk that the participant writes to: folders in a kit may be on disks of their own."""
    folders, seen = [kit.path, *(kit.path / name for name in ("runs", "studies", "store"))], set()
    if config is not None:
        with suppress(FedspanError):
            file = read_site_file(config)
            folders += [path.parent for path in (file.log, file.privacy.ledger if file.privacy else file.log)]
    for folder in folders:
        if folder.is_dir() and (disk := folder.stat().st_dev) not in seen:
            seen.add(disk)
            yield from _disk(folder)


def _disk(folder: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    if free < LEAST_DISK:
        yield Finding(f"the disk of {folder} has {free / 2**20:,.0f} MiB left", "free at least 1 GiB of it")
    else:
        yield Finding(f"the disk of {folder} has {free / 2**30:,.1f} GiB left")
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(f"{folder} can't be written to", f"chown it to the user that runs fedspan ({os.getuid()})")


def _port(kit: Kit) -> Iterator[Finding]:
    host, _, port = kit.server.rpartition(":")
    if kit.kind == COORDINATOR:
        yield from _own_port(host, int(port))
        return
    if (proxy := proxy_of(kit)) is not None:  # which knows the name, and may be the only way
        why = trouble(kit, CONNECT)
        yield (
            Finding(why, f"let the proxy {proxy} pass CONNECT to {kit.server}, or start the coordinator")
            if why
            else Finding(f"the coordinator at {kit.server} accepts connections through the proxy {proxy}")
        )
        return
    try:
        address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        yield Finding(f"the name {host} of the coordinator is not known here", "check the DNS, or /etc/hosts")
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT).close()
    except TimeoutError:
        yield Finding(
            f"the coordinator at {kit.server} ({address}) gives no answer",
            f"let the firewall pass outgoing TCP connections to port {port}",
        )
    except OSError as error:
        yield Finding(
            f"the coordinator at {kit.server} ({address}) can't be reached: {error.strerror or error}",
            "start the coordinator, or correct 'server' in fed.toml",
        )
    else:
        yield Finding(f"the coordinator at {kit.server} accepts connections")


def _own_port(host: str, port: int) -> Iterator[Finding]:
    if _accepts("127.0.0.1", port) or _accepts(host, port):
        yield Finding(f"port {port} accepts connections: the coordinator, or another program, runs here")
        return
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError as error:
        yield Finding(f"port {port} can't be used: {error.strerror}", "choose another port in fed.toml")
    else:
        yield Finding(f"port {port} is free; open it in the firewall for incoming TCP connections")


def _accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=CONNECT).close()
    except OSError:
        return False
    return True


def _site(kit: Kit, config: Path | None) -> Iterator[Finding]:
    if config is None:
        yield Finding("the owner's file was not checked: name it with --config site.toml")
        return
    try:
        file = read_site_file(config)
    except SiteFileError as error:
        for problem in error.problems:
            yield Finding(problem.rstrip("."), "correct site.toml; 'fedspan site check' explains it")
        return
    if file.name != kit.name:
        yield Finding(f"{config} names the site {file.name!r}, and the kit is that of {kit.name!r}", "use one name")
    try:
        rows = read_rows(file, kit.schema)
        problems = data_problems(file, rows, kit.schema)
    except FedspanError as error:
        yield Finding(f"the data can't be read: {error}", "correct [data] in site.toml, or start the database")
    else:
        yield Finding(f"the data can be read: {len(rows):,} rows of {file.data.source.label}")
        for problem in problems:
            yield Finding(problem, "correct the data or the schema; 'fedspan site check' lists the columns")
    yield from _files(file)


def _files(file: SiteFile) -> Iterator[Finding]:
    checks: list[tuple[str, Path, Callable[[], object]]] = [
        ("audit log", file.log, lambda: read_lines(file.log)),
        ("file of decisions", file.decisions, lambda: Decisions(file.decisions, read_only=True)),
    ]
    if file.privacy is not None:
        ledger = file.privacy.ledger
        checks.append(("ledger", ledger, lambda: Ledger(ledger, read_only=True)))
    for name, path, read in checks:
        if not path.exists():
            if not os.access(path.parent, os.W_OK | os.X_OK):
                yield Finding(
                    f"the {name} can't be made in {path.parent}", "make the folder, or let fedspan write to it"
                )
            continue
        try:
            read()
        except FedspanError as error:
            yield Finding(str(error), "restore it from a backup ('fedspan restore'), or begin a new one")
        else:
            yield Finding(f"the {name} {path} is whole")
    if file.privacy is not None and file.privacy.ledger.exists():
        with suppress(FedspanError):  # it is named above
            yield from _confirmed(Ledger(file.privacy.ledger, read_only=True), file.log)


def _confirmed(ledger: Ledger, log: Path) -> Iterator[Finding]:
    """Check that the ledger is not an older copy, by itself and by the audit log."""
    lines = read_lines(log) if log.exists() else []
    left = [line for line, _ in lines if line["budget_left"] is not None]
    if left:
        ledger.must_have_spent(float(left[-1]["budget_left"]), left[-1]["when"])
    try:
        ledger.check_confirmed()
    except FedspanError as error:
        yield Finding(str(error), "lower epsilon in site.toml by what may have been spent, then confirm-ledger")


def _alive(kit: Kit) -> Iterator[Finding]:
    """Check that the process of a kit answers: the coordinator's port, or the site's worker."""
    if kit.kind == "site":
        try:
            from fedspan.engines.nvflare.site.worker_process import socket_path  # not on Windows, as a site
            from fedspan.engines.remote.site.byte_link import ByteLink

            ByteLink.to(socket_path(kit.path)).close()
        except OSError:
            yield Finding(f"site {kit.name} does not run", f"fedspan site start {kit.path} --config site.toml")
        else:
            yield Finding(f"site {kit.name} runs")
        return
    host, _, port = kit.server.rpartition(":")
    if _accepts("127.0.0.1", int(port)) or _accepts(host, int(port)):
        yield Finding(f"port {port} accepts connections")
    else:
        yield Finding("the coordinator does not run", f"fedspan coordinator start {kit.path}")


def _ends(certificate: bytes) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _begins(certificate: bytes) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate).not_valid_before_utc


def _now() -> datetime:
    return datetime.now(UTC)

"""``fedspan backup`` and ``fedspan restore``: all that a coordinator or a site keeps, in one file.

The file holds private keys, and of a site its ledger: it is as private as the kit. A restored ledger may lack charges
that were made after the backup, so that it refuses every charge until the owner confirms it.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from fedspan.checks import json_value
from fedspan.cli.console import print_line
from fedspan.engines.nvflare.setup.kit import read_kit
from fedspan.errors import InputError, LedgerError
from fedspan.federation.versions import version_of
from fedspan.owner.site_file import read_site_file
from fedspan.privacy import Ledger

#: What a kit holds for the time being only.
_LEFT_OUT = ("transfer", "worker.sock", "log.txt", "worker.log", "about.json")
_ABOUT = "fedspan-backup.json"
_LARGEST_NAME = 4096
_FACTS = {"kind", "name", "federation", "version", "when", "config", "ledger"}


def backup(kit: Path, to: Path, config: Path | None) -> int:
    """Write a kit, and the owner's files of a site, to one file of mode 0600."""
    found = read_kit(kit)
    if found.kind == "site" and config is None:
        raise InputError("the backup of a site needs --config site.toml: its log, decisions and ledger belong to it")
    if to.exists():
        raise InputError(f"{to} exists already: name another file")
    owned = [] if config is None else list(_owned(config))
    about = {"kind": found.kind, "name": found.name, "federation": found.federation, "version": version_of("fedspan")}
    about |= {"when": datetime.now(UTC).isoformat(timespec="seconds"), "config": config.name if config else ""}
    about["ledger"] = _ledger_name(config)
    descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        content = json.dumps(about).encode()
        head = tarfile.TarInfo(_ABOUT)
        head.size, head.mode = len(content), 0o600
        tar.addfile(head, io.BytesIO(content))
        for path in sorted(found.path.rglob("*")):
            inside = path.relative_to(found.path)
            if path.is_file() and not path.is_symlink() and inside.parts[0] not in _LEFT_OUT:
                tar.add(path, f"kit/{inside.as_posix()}", recursive=False)
        for path in owned:
            tar.add(path, f"owner/{path.name}", recursive=False)
        file.flush()
        os.fsync(file.fileno())
    print_line(f"{to}: the {found.kind} {found.name} of {found.federation}, {to.stat().st_size:,} bytes")
    print_line("it holds private keys: keep it like the kit. Data of tables and databases are not in it")
    return 0


def restore(file: Path, to: Path) -> int:
    """Write what a backup holds into a new folder: ``kit`` and, of a site, ``owner``."""
    if to.exists() and any(to.iterdir()):
        raise InputError(f"{to} is not empty: name a new folder")
    try:
        with tarfile.open(file, "r:gz") as tar:
            first = tar.next()
            body = None if first is None or first.name != _ABOUT else tar.extractfile(first)
            if body is None:
                raise InputError(f"{file} is not a backup of 'fedspan backup'")
            about = json_value(body.read(2**20))
            if not isinstance(about, dict) or not all(isinstance(about.get(name), str) for name in _FACTS):
                raise InputError(f"{file} is not a backup of 'fedspan backup'")
            to.mkdir(mode=0o700, parents=True, exist_ok=True)
            for member in tar:
                if member.name != _ABOUT:
                    _extract(tar, member, to)
    except (OSError, tarfile.TarError, ValueError, EOFError) as error:
        raise InputError(f"{file} can't be restored: {error}") from None
    print_line(f"{to / 'kit'}: the {about['kind']} {about['name']} of {about['federation']}, as of {about['when']}")
    if about["version"] != version_of("fedspan"):
        print_line(f"it was made by fedspan {about['version']}, and this is fedspan {version_of('fedspan')}")
    if about["kind"] == "site":
        print_line(f"{to / 'owner'}: {about['config']}, log and decisions; put them where the site had them")
    if about["ledger"]:
        _mark(to / "owner" / Path(about["ledger"]).name)
    return 0


def confirm(file: Path) -> int:
    """Confirm a ledger that was restored: it charges again from what it knows."""
    plan = read_site_file(file).privacy
    if plan is None:
        raise InputError(f"{file} has no [privacy] section, and so no ledger")
    ledger = Ledger(plan.ledger)
    ledger.confirm()
    print_line(f"{plan.ledger} is confirmed: epsilon {ledger.spent:.4g} of {ledger.epsilon:g} counts as spent")
    print_line("charges after the backup are not in it: lower epsilon in site.toml by what they may have been")
    return 0


def _owned(config: Path) -> Iterator[Path]:
    """Yield the owner's files of a site that exist."""
    site = read_site_file(config)
    files = [config, site.log, site.decisions, site.log.with_suffix(".rows")]
    files += [] if site.privacy is None else [site.privacy.ledger]
    names = [path.name for path in files]
    if len(set(names)) < len(names):
        raise InputError("two of the owner's files have one name, in different folders: rename one of them")
    yield from (path for path in files if path.exists())


def _ledger_name(config: Path | None) -> str:
    plan = None if config is None else read_site_file(config).privacy
    return plan.ledger.name if plan is not None and plan.ledger.exists() else ""


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, to: Path) -> None:
    """Write one plain file of a backup below `to`, for its owner alone; refuse every other name."""
    parts = PurePosixPath(member.name).parts
    if not member.isfile() or parts[0] not in ("kit", "owner") or ".." in parts or len(member.name) > _LARGEST_NAME:
        raise ValueError(f"{member.name[:100]!r} does not belong in a backup")
    target = to.joinpath(*parts)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    body = tar.extractfile(member)
    assert body is not None
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        while piece := body.read(2**20):
            out.write(piece)


def _mark(ledger: Path) -> None:
    try:
        Ledger(ledger).restored()
    except LedgerError as error:
        raise InputError(str(error)) from None
    print_line(
        f"{ledger} may lack charges that were made after the backup. It refuses every charge until you run "
        "'fedspan site confirm-ledger site.toml'"
    )

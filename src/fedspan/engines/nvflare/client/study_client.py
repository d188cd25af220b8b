"""How a user speaks with the coordinator's desk for detached studies."""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from fedspan.engines.nvflare.client.user_session import Session
from fedspan.engines.nvflare.setup.federation_plan import COORDINATOR
from fedspan.engines.nvflare.setup.kit import Kit
from fedspan.engines.remote.messages.delegation import delegated
from fedspan.engines.remote.messages.envelope import Sealed
from fedspan.engines.remote.messages.identity import Authority, Identity
from fedspan.errors import InputError

CHANNEL, PURPOSE = "fedspan-studies", "study"

#: Bytes of a request, and seconds after which it is too old.
LARGEST, LATEST = 2**20, 300.0

#: The longest time for which the coordinator may ask in a user's name.
MOST_HOURS = 720.0

#: Seconds for an answer, which may hold all results.
_LIMIT = 60.0


def submit_study(kit: Kit, title: str, text: str, hours: float) -> str:
    """Hand in a study, and let the coordinator ask in the user's name for so many hours; return the study's name."""
    if not 0 < hours <= MOST_HOURS:
        raise InputError(f"hours={hours:g} must be above 0 and at most {MOST_HOURS:g}, which is 30 days")
    identity, authority = Identity.from_kit(kit.path), Authority.from_kit(kit.path)
    delegation = delegated(identity, COORDINATOR, authority.federation, hours * 3600.0)
    parts = {"study": text.encode("utf-8"), "delegation": delegation}
    return str(_ask(kit, {"kind": "submit", "title": title}, parts)["study"])


def list_studies(kit: Kit) -> list[dict[str, Any]]:
    """Return what the coordinator knows of the user's studies."""
    return list(_ask(kit, {"kind": "list"}, {})["studies"])


def cancel_study(kit: Kit, study: str) -> str:
    """End a study, and have the coordinator delete the user's word; return its state: another one if it was over."""
    return str(_ask(kit, {"kind": "cancel", "study": study}, {})["about"]["state"])


def fetch_study(kit: Kit, study: str, out: Path) -> None:
    """Fetch the results of a study that is done into a new folder."""
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is used already: choose another folder with --out")
    answer = _ask(kit, {"kind": "fetch", "study": study}, {})
    about = answer["about"]
    if about["state"] != "done":
        why = f": {about['why']}" if about["why"] else ""
        raise InputError(f"study {study} is {about['state']}{why}")
    unzipped(bytes(answer["results"]), out)


def zipped(folder: Path) -> bytes:
    """Return all files of a folder in one archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder).as_posix())
    return buffer.getvalue()


def unzipped(archive: bytes, folder: Path) -> None:
    """Write an archive's files into `folder`, for its owner alone, and none beside it."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        for name in opened.namelist():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise InputError(f"the archive names a file outside its folder: {name[:100]!r}")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in opened.namelist():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(opened.read(name))
            path.chmod(0o600)


def _ask(kit: Kit, head: dict[str, Any], parts: dict[str, bytes]) -> dict[str, Any]:
    """Send a signed request to the desk and return its answer, or raise why it refuses."""
    kit.must_be("user", "this command")
    identity, authority = Identity.from_kit(kit.path), Authority.from_kit(kit.path)
    bound = {"federation": authority.federation, "time": time.time(), **head}
    session = Session(kit)
    try:
        answer = session.ask_server(CHANNEL, Sealed(identity, PURPOSE, bound, parts).to(COORDINATOR), _LIMIT)
    finally:
        session.close()
    if "refused" in answer:
        raise InputError(f"the coordinator refuses: {answer['refused']}")
    return answer

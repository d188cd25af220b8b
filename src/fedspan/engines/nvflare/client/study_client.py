"""Detached studies, from the user's side: submit, list, cancel, fetch."""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path
from typing import Any

from fedspan.engines.members.enrolment import COORDINATOR
from fedspan.engines.nvflare.client.user_session import UserSession
from fedspan.engines.nvflare.setup.kit import read_kit
from fedspan.engines.remote.messages.envelope import Sealed
from fedspan.engines.remote.messages.identity import Identity, make_delegation
from fedspan.errors import InputError

CHANNEL, PURPOSE = "fedspan-studies", "study"

#: Bytes of a request, and seconds after which it is too old.
LARGEST, LATEST = 2**20, 300.0

#: The longest time for which the coordinator may act in a user's name.
MOST_HOURS = 720.0

#: Seconds for an answer, which may hold all results.
_LIMIT = 60.0
#: Bytes of all files of a study's results, once they are unpacked.
_LARGEST_RESULTS = 2**32


def submit_study(kit: Path, title: str, text: str, hours: float) -> str:
    """Submit a study, authorise the coordinator for this number of hours, and return the study's name."""
    if not 0 < hours <= MOST_HOURS:
        raise InputError(f"hours={hours:g} must be above 0 and at most {MOST_HOURS:g}, which is 30 days")
    seconds, federation = hours * 3600.0, read_kit(kit).federation
    delegation = make_delegation(Identity.from_kit(kit), COORDINATOR, federation, seconds)
    parts = {"study": text.encode("utf-8"), "delegation": delegation}
    return str(_request(kit, {"kind": "submit", "title": title}, parts)["study"])


def list_studies(kit: Path) -> list[dict[str, Any]]:
    """Return what the coordinator knows of the user's studies."""
    return list(_request(kit, {"kind": "list"})["studies"])


def cancel_study(kit: Path, study: str) -> str:
    """Cancel a study and revoke its authorisation; return its state, which is another one if it was over before."""
    return str(_request(kit, {"kind": "cancel", "study": study})["about"]["state"])


def log_of_study(kit: Path, study: str) -> tuple[str, bool]:
    """Return the end of the log of a study, and whether the study is over."""
    answer = _request(kit, {"kind": "log", "study": study})
    return str(answer["log"]), answer["about"]["state"] not in ("waiting", "running")


def disable_site(kit: Path, site: str, disable: bool) -> dict[str, str]:
    """Let the coordinator pass nothing on to a site, or again; return the disabled sites. For operators."""
    answer = _request(kit, {"kind": "disable" if disable else "enable", "site": site})
    return {str(name): str(why) for name, why in answer["disabled"].items()}


def fetch_study(kit: Path, study: str, out: Path) -> None:
    """Fetch the results of a finished study into a new folder."""
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is used already: choose another folder with --out")
    answer = _request(kit, {"kind": "fetch", "study": study})
    about = answer["about"]
    if about["state"] != "done":
        why = f": {about['why']}" if about["why"] else ""
        raise InputError(f"study {study} is {about['state']}{why}")
    unzip(bytes(answer["results"]), out)


def zipped(folder: Path) -> bytes:
    """Return all files of a folder in one archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder).as_posix())
    return buffer.getvalue()


def unzip(archive: bytes, folder: Path) -> None:
    """Write an archive's files into `folder`, for its owner alone, and none outside it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        unfolded = sum(member.file_size for member in opened.infolist())
        if unfolded > _LARGEST_RESULTS:
            raise InputError(f"the results have {unfolded:,} bytes, more than the {_LARGEST_RESULTS:,} that are taken")
        opened.extractall(folder)  # it takes ".." and absolute paths for names inside the folder
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def _request(path: Path, head: dict[str, Any], parts: dict[str, bytes] | None = None) -> dict[str, Any]:
    """Send the coordinator a signed request and return its answer, or raise why it refuses."""
    from fedspan.engines.nvflare.flare import RefusedError

    kit = read_kit(path)
    kit.must_be("user", "this command")
    bound = {"federation": kit.federation, "time": time.time(), **head}
    message = Sealed(Identity.from_kit(kit.path), PURPOSE, bound, parts or {}).to(COORDINATOR)
    session = UserSession(kit)
    try:
        answer, results = session.request(CHANNEL, str(head["kind"]), {}, message, _LIMIT, stream=True)
        return {**answer, "results": results}
    except RefusedError as error:
        raise InputError(f"the coordinator refuses: {error}") from None
    finally:
        session.close()

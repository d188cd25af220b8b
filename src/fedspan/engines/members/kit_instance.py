"""The instance of a kit: a copy in another folder, or on another machine, is another instance; a restart is not."""

from __future__ import annotations

import json
import os
import secrets
import uuid
from pathlib import Path
from typing import IO

from fedspan.checks import json_value
from fedspan.durable.whole_file import write_whole
from fedspan.errors import InputError

#: The property in which a site's process sends the instance of its kit.
INSTANCE = "fedspan_instance"

_MACHINE = Path("/etc/machine-id")


def kit_instance(folder: Path) -> str:
    """Return the id of a kit in this place: random, and made again where the kit was copied or moved to."""
    file, place = folder / "instance.json", _place(folder)
    try:
        known = json_value(file.read_bytes())
        if known["place"] == place:
            return str(known["id"])
    except (OSError, KeyError, TypeError, ValueError):
        pass
    made = secrets.token_hex(8)
    write_whole(file, json.dumps({"id": made, "place": place}).encode())
    return made


def lock_kit(folder: Path) -> IO[bytes]:
    """Take a kit for this process as long as the result is open; refuse where another process has it."""
    import fcntl  # not on Windows, where analysts may have kits

    held = (folder / "lock").open("ab")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise InputError(f"{folder} is in use by another process on this machine: stop that one first") from None
    return held


def _place(folder: Path) -> list[str | int]:
    found = os.stat(folder)
    try:
        machine = _MACHINE.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        machine = str(uuid.getnode())
    return [machine, found.st_dev, found.st_ino]

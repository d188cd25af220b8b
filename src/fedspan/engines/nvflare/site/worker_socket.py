"""The socket between a site's own processes."""

from __future__ import annotations

import os
from pathlib import Path

#: Bytes of the longest message between a site's own processes.
LONGEST = 2**33


def socket_path(kit: Path) -> str:
    """Return where the site's worker listens: beside the kit's keys, in a folder that only its owner enters.

    The path is relative to the working directory if the full one is too long for a socket.
    """
    path = str(kit / "worker.sock")
    return path if len(path.encode()) < 100 else os.path.relpath(path)

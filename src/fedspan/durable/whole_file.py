"""Files that are replaced as a whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def temporary_beside(target: Path) -> tuple[int, str]:
    """Open a new file in the folder of `target`; an error names `target`, which a user knows."""
    try:
        return tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file for its owner alone (mode 0600); a reader, or a kill, finds the old content or the new one."""
    target = Path(path)
    descriptor, name = temporary_beside(target)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

"""``fedspan logs``: the log of a coordinator, a site or a detached study."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedspan.checks import printable
from fedspan.engines.nvflare.setup.kit import read_kit
from fedspan.errors import InputError

#: Seconds between two checks of a log that is followed.
EVERY = 2.0
#: Bytes of a log's end that are read.
_LONGEST = 2**22


def logs(kit: Path, study: str | None, lines: int, follow: bool) -> int:
    """Print the end of a log, and what is added to it: of a user's study until it is over."""
    read = _reader(kit, study)
    shown, over = read()
    print(printable("\n".join(shown.splitlines()[-max(0, lines) :])), flush=True)
    while follow and not over:
        time.sleep(EVERY)
        now, over = read()
        print(printable(_added(shown, now)), end="", flush=True)
        shown = now
    return 0


def _added(before: str, after: str) -> str:
    """Return what was added to a log, or the whole log if it was begun again.

    >>> _added("one", "one two")
    ' two'
    """
    if after.startswith(before):
        return after[len(before) :]
    last = before[-200:]
    return after.partition(last)[2] if last and last in after else after


def _reader(kit: Path, study: str | None) -> Callable[[], tuple[str, bool]]:
    found = read_kit(kit)
    if found.kind == "user":
        if study is None:
            raise InputError("a user's kit has no log of its own: name a study, as 'fedspan status' prints it")
        from fedspan.engines.nvflare.client.study_client import log_of_study

        return lambda: log_of_study(kit, study)
    if study is not None and (found.kind == "site" or not (found.path / "studies" / study).is_dir()):
        raise InputError(f"{kit} has no study {study!r}")
    names = ("log.txt", "worker.log") if study is None else (f"studies/{study}/log.txt",)
    return lambda: ("".join(_end(found.path / name) for name in names), False)


def _end(file: Path) -> str:
    try:
        return file.read_bytes()[-_LONGEST:].decode("utf-8", "replace")
    except OSError:
        return ""

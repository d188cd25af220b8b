"""One mutant against its tests, in a process of its own."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from types import CodeType
from typing import Any

import pytest

from tools.mutation.covering import QUIET

SLOWER_THAN_EXPECTED = 10.0  # times: then it hangs
BUSY_MACHINE = 8.0  # seconds on the clock for a second of work, at most
HEARD = 4000  # bytes of a child's output that an error shows where it dies
_FORKING = Lock()  # a child must not inherit the pipe of another: it would keep it open


class Changed(importlib.machinery.SourceFileLoader):
    """Loads a module from another source than the one on disk."""

    source = ""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the changed source, past every cache."""
        return compile(self.source, self.path, "exec", dont_inherit=True)


@dataclass(frozen=True, eq=False)
class Finder(importlib.abc.MetaPathFinder):
    """Finds one module, and gives it the changed source."""

    name: str
    path: Path
    source: str

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Return how to load the changed module; others are found as ever."""
        if fullname != self.name:
            return None
        loader = Changed(fullname, str(self.path.resolve()))
        loader.source = self.source
        package = [str(self.path.resolve().parent)] if self.path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname, self.path.resolve(), loader=loader, submodule_search_locations=package
        )


@dataclass(frozen=True, eq=False)
class Only:
    """A plugin that runs the named tests alone, in the order of the names."""

    tests: Sequence[str]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Select and sort."""
        place = {test: i for i, test in enumerate(self.tests)}
        items[:] = sorted((item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid])


def module_name(path: Path) -> str:
    """Return the dotted name of a file below ``src``.

    Examples
    --------
    >>> module_name(Path("src/fedspan/linalg/medians/median_solver.py"))
    'fedspan.linalg.medians.median_solver'
    """
    parts = path.with_suffix("").parts[path.parts.index("src") + 1 :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class ChildError(RuntimeError):
    """A child ended without an answer, for a reason that is not what was asked."""


class CrashError(ChildError):
    """A signal ended it: a stack that is too deep, say."""


def noticed(path: Path, source: str, tests: Sequence[str], seconds: float) -> str:
    """Return what the tests say of the changed file: "killed", "hangs" or "survived".

    Raises
    ------
    ChildError
        Where none of the tests ran, or something else went wrong that is no verdict of theirs.
    """
    files = sorted({test.split("::")[0] for test in tests})
    if absent := [file for file in files if not Path(file).is_file()]:
        raise ChildError(f"there is no {', '.join(absent)}")

    def ask() -> bool:
        sys.meta_path.insert(0, Finder(module_name(path), path, source))
        outcome = pytest.main([*files, *QUIET, "-x"], plugins=[Only(tests)])
        if outcome == pytest.ExitCode.NO_TESTS_COLLECTED:
            raise LookupError(f"none of these tests is there: {', '.join(tests)}")
        return outcome != pytest.ExitCode.OK

    try:
        answer = forked(ask, seconds=10.0 + SLOWER_THAN_EXPECTED * seconds)
    except CrashError:
        return "killed"
    return {None: "hangs", True: "killed", False: "survived"}[answer]


def forked(work: Callable[[], Any], seconds: float) -> Any:
    """Return what `work` returns, plain values, in a child process without a voice; ``None`` when it takes too long.

    The seconds are those of a processor: a busy machine is no endless loop. A child that dies without an answer is an
    error here, with the last of what it said: `CrashError` where a signal ended it.
    """
    said = TemporaryFile()  # noqa: SIM115, the child writes to it and this process reads
    with _FORKING:
        reading, writing = os.pipe()
        sys.stdout.flush()  # or the child would print it again
        child = os.fork()
        if child:
            os.close(writing)
    if child == 0:
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
            silence = os.open(os.devnull, os.O_RDONLY)
            for stream, instead in ((0, silence), (1, said.fileno()), (2, said.fileno())):
                os.dup2(instead, stream)
            answer = json.dumps(work()).encode()
            while answer:
                answer = answer[os.write(writing, answer) :]
        except BaseException:
            with suppress(Exception):
                sys.stdout.flush()
            os.write(2, traceback.format_exc().encode())
            os._exit(1)
        finally:
            os._exit(0)
    data, deadline = b"", time.monotonic() + BUSY_MACHINE * seconds
    os.set_blocking(reading, False)
    try:
        while time.monotonic() < deadline:
            try:
                part = os.read(reading, 2**20)
            except BlockingIOError:
                time.sleep(0.01)
                continue
            if not part:
                break
            data += part
        else:
            return None
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        if data and ended is not None and ended.si_status == 0:
            return json.loads(data)
        signalled = ended is not None and ended.si_code != os.CLD_EXITED
        if ended is not None and signalled and ended.si_status in (signal.SIGXCPU, signal.SIGKILL):
            return None
        said.seek(max(0, said.seek(0, os.SEEK_END) - HEARD))
        words = said.read().decode(errors="replace").strip() or "nothing"
        raise (CrashError if signalled else ChildError)(f"a child died without an answer, and said: {words}")
    finally:
        os.close(reading)
        said.close()
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # with what it has started
        os.waitpid(child, 0)

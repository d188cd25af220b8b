"""The tool that tests the tests: tests that run a change notice it, and the file on disk stays as it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tools.mutation.rooms import IGNORED, LAWS, ROOMS, room_tests
from tools.mutation.sampling import sample

ROOT = Path(__file__).parents[1]
#: Before anything forks, so that no child imports them again.
LIBRARIES = "import hypothesis, numpy, scipy.linalg, scipy.optimize, scipy.special, sklearn.base\n"
TRIALS = """
from pathlib import Path
from tools.mutation.trial import forked, noticed

path = Path("src/fedspan/aggregation/mean.py")
source = path.read_text()
test = ["tests/aggregation/test_mean.py::test_mean_by_hand"]
doctest = ["src/fedspan/aggregation/mean.py::fedspan.aggregation.mean.Mean"]
other = ["tests/aggregation/test_krum.py::test_krum_by_hand"]
changed = source.replace("given.shares[:, None]", "given.shares[::-1, None] ** 2")
hanging = source.replace("return given.mixed", "while True: pass\\n        return given.mixed")
assert source != changed and source != hanging
said = [noticed(path, source, test, 1.0), noticed(path, changed, test, 1.0), noticed(path, changed, other, 1.0)]
said += [noticed(path, source, doctest, 1.0), noticed(path, changed, doctest, 1.0)]
print(*said, noticed(path, hanging, test, -0.8), noticed(path, "import nothing_of_that_name", test, 1.0))
print(forked(lambda: {"a": 1}, 5.0), path.read_text() == source)
"""


def test_a_change_is_noticed_by_the_tests_that_run_it_and_by_no_others():
    done = subprocess.run(
        [sys.executable, "-c", LIBRARIES + TRIALS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["survived killed survived survived killed hangs killed", "{'a': 1} True"]


NO_VERDICT = """
import ctypes
from pathlib import Path
from tools.mutation.trial import ChildError, CrashError, forked, noticed

path = Path("src/fedspan/aggregation/mean.py")
file = "tests/aggregation/test_mean.py"
crash = "import os, signal\\nos.kill(os.getpid(), signal.SIGSEGV)\\n"
works = {
    "no test": lambda: noticed(path, path.read_text(), [f"{file}::no_such_test"], 1.0),
    "no file": lambda: noticed(path, path.read_text(), ["tests/no_such_file.py::test"], 1.0),
    "raises": lambda: forked(lambda: print("before") or 1 / 0, 5.0),
    "crashes": lambda: forked(lambda: ctypes.string_at(0), 5.0),
    "change that crashes": lambda: noticed(path, crash + path.read_text(), [f"{file}::test_mean_by_hand"], 1.0),
}
for name, work in works.items():
    try:
        print(name, "|", work())
    except ChildError as error:
        shown = [word for word in ("no_such_test", "no_such_file", "before", "ZeroDivisionError") if word in str(error)]
        print(name, "|", type(error).__name__, *shown)
"""


def test_a_child_that_dies_for_a_reason_of_its_own_is_an_error_and_no_kill():
    done = subprocess.run(
        [sys.executable, "-c", LIBRARIES + NO_VERDICT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        *("no test | ChildError no_such_test", "no file | ChildError no_such_file"),
        *("raises | ChildError before ZeroDivisionError", "crashes | CrashError", "change that crashes | killed"),
    ]


def test_the_rooms_that_are_changed_are_those_of_the_package(monkeypatch):
    monkeypatch.chdir(ROOT)
    package = {path.parent.name for path in (ROOT / "src" / "fedspan").glob("*/__init__.py")}
    others = {"cli", "console", "papers"}
    assert package - set(ROOMS) == others
    assert set(LAWS) <= set(ROOMS) <= package
    named = [*IGNORED, *(law for laws in LAWS.values() for law in laws)]
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert room_tests("pca") == ["tests/pca", "tests/laws/test_protocols.py", "src/fedspan/pca"]


def test_the_page_lists_the_rooms():
    page = (ROOT / "docs" / "mutation.md").read_text(encoding="utf-8")
    assert [room for room in ROOMS if f"`{room}`" not in page] == []


def test_the_statement_of_a_line():
    from tools.mutation.covering import statement_at

    source = "if a(\n   b):\n  c(\n  d)\nelse:\n  e = 1\n"
    assert [statement_at(source, line) for line in (1, 2, 3, 4, 6)] == [(1, 2), (1, 2), (3, 4), (3, 4), (6, 6)]


class Change(NamedTuple):
    place: tuple
    name: str


def changes(path, source):
    """Three changes of every digit and operator of a file, named by their line and column."""
    path.write_text(source)
    for number, line in enumerate(source.splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        for found in re.finditer(r"\d|[+<>]", line):
            place = str(path), (number, found.start()), (number, found.end())
            yield from (Change(place, f"{line.strip()} {found.start() - indent} {kind}") for kind in range(3))


def test_an_edit_exchanges_only_what_it_touches_of_a_sample(tmp_path):
    def drawn(source: str, count: int | None = 8, seed: int = 0) -> list[str]:
        return [change.name for change in sample(changes(tmp_path / "code.py", source), count, seed)]

    lines = [f"    a{k} = {k} + b" for k in range(6)]
    source = "\n".join(["def f(b):", *lines, "    return b < 1", "def g(b):", *lines[:2]]) + "\n"
    before = drawn(source)
    assert len(before) == 8
    assert drawn(source, 5) == before[:5]
    assert drawn(source, seed=1) != before
    assert drawn('"""Lines above."""\n\n' + source + "def h():\n    pass\n") == before
    assert drawn("if True:\n" + "\n".join("    " + line for line in source.splitlines()), 100) == drawn(source, 100)
    everything, edited = drawn(source, 100), drawn(source.replace("b < 1", "b > 1"), 100)
    assert [name for name in everything if "return" not in name] == [name for name in edited if "return" not in name]
    assert len(drawn(source, None)) == 3 * len(everything)

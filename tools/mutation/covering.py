"""Which tests run which lines, and how long they take."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Lines = dict[str, list[str]]  # by line number
#: Plain assertions: pytest would load the modules whose doctests are asked from disk to rewrite theirs.
QUIET = (*("-q", "--no-header", "--no-summary", "--assert=plain"), *("-p", "no:cacheprovider", "-p", "no:xdist"))


@dataclass(frozen=True)
class Covering:
    """Tests by file and line, their seconds under the tracer, and those that fail without any change."""

    lines: dict[str, Lines]
    seconds: dict[str, float]
    failed: list[str]

    def tests(self, path: Path, line: int) -> list[str]:
        """Return the tests that run the statement at `line`, the quickest first.

        What runs at import, or as a header of what does, belongs to all tests that use the file.
        """
        lines = self.lines.get(str(path), {})
        first, last = statement_at(path.read_text(), line)
        found = {test for number in range(first, last + 1) for test in lines.get(str(number), [])}
        if not found and any(str(number) in lines for number in range(first, last + 1)):
            found = {test for tests in lines.values() for test in tests}
        return sorted(found, key=lambda test: (self.seconds.get(test, 0.0), test))


def statement_at(source: str, line: int) -> tuple[int, int]:
    r"""Return the first and last line of the innermost statement at `line`; of one that holds others, its header.

    Examples
    --------
    >>> statement_at("if a(\n   b):\n  c(\n  d)", 2), statement_at("if a(\n   b):\n  c(\n  d)", 4)
    ((1, 2), (3, 4))
    """
    found = (line, line)
    for node in ast.walk(ast.parse(source)):  # from the outside inwards
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            found = (node.lineno, max(node.lineno, last or node.lineno))
    return found


@dataclass(eq=False)
class Tracer:
    """A plugin that tells `coverage` which test runs."""

    coverage: Any
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Name the test."""
        self.coverage.switch_context(item.nodeid)
        result = yield
        self.coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up set-up, call and tear-down."""
        if report.failed:
            self.failed.append(report.nodeid)
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration


def covering(tests: Sequence[str], files: Sequence[Path]) -> dict[str, Any]:
    """Run the tests once, watch the files, and return the fields of a `Covering`."""
    from coverage import Coverage

    watching = Coverage(data_file=None, include=[str(path.resolve()) for path in files], config_file=False)
    tracer = Tracer(watching)
    watching.start()
    pytest.main([*tests, *QUIET], plugins=[tracer])
    watching.stop()
    data = watching.get_data()
    lines = {
        str(path): {str(n): [t for t in who if t] for n, who in data.contexts_by_lineno(str(path.resolve())).items()}
        for path in files
    }
    return {"lines": lines, "seconds": tracer.seconds, "failed": tracer.failed}

"""What all tests share."""

from __future__ import annotations

import os

# Before SciPy is imported: scikit-learn's checks skip those of array API input otherwise.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
from hypothesis import settings

# Timings do not belong into tests: a busy machine is no failure. The same examples on every run.
settings.register_profile("fedspan", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("fedspan")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Look for no doctests in the tests' own files."""
    return [found for found in (yield) if type(found) is pytest.Module]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Let one process run what shares something, and begin with what takes long.

    Tests of one file share its fixtures, and tests of UMAP what it compiles when it is first used.
    """
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            compiled = "UMAP" in item.name or "federated_map" in item.name
            item.add_marker(pytest.mark.xdist_group("maps" if compiled else item.nodeid.partition("::")[0]))
    groups = {item.get_closest_marker("xdist_group").args[0] for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.get_closest_marker("xdist_group").args[0] not in groups)


def pytest_collectreport(report):
    """Count a module that skips itself as a failure, too."""
    if report.skipped and os.environ.get("FEDSPAN_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {report.longrepr}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Where everything is supposed to be installed, a skipped test is a failure."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("FEDSPAN_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {call.excinfo.value if call.excinfo else ''}"

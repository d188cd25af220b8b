"""What all tests share."""

from __future__ import annotations

import gc
import os

# Before SciPy is imported: scikit-learn's checks skip those of array API input otherwise.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
# Before gRPC is imported: with its handlers of forks, step processes that a test forks beside a connection may block.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

import pytest
from hypothesis import settings

from tests.together import ORDER, group_of

# Timings do not belong in tests: a busy machine is not a failure. The same examples on every run.
settings.register_profile("fedspan", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("quick", settings.get_profile("fedspan"), max_examples=15)  # for "make quick"
settings.load_profile("fedspan")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Look for no doctests in the tests' own files."""
    return [found for found in (yield) if type(found) is pytest.Module]


def pytest_collection_modifyitems(items):
    """Begin with what takes long, so that processes end at about the same time."""
    slow = {group_of(item.nodeid) for item in items if item.get_closest_marker("slow")}

    def place(item):
        group = group_of(item.nodeid)
        return ORDER.index(group) if group in ORDER else len(ORDER) + (group not in slow)

    items.sort(key=place)


def pytest_collection_finish():
    """Leave what collecting has imported out of later collections of garbage, which cost a tenth of the time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let one process run what shares something."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

        def remove_node(self, node):
            """Return the test during which a process died; it is not run again, and what waited behind it is."""
            work = self.assigned_work.pop(node)
            died = next((test for unit in work.values() for test, done in unit.items() if not done), None)
            if died is not None:
                work[group_of(died)][died] = True
                self.workqueue.update({name: unit for name, unit in work.items() if not all(unit.values())})
                for other in self.assigned_work:
                    self._reschedule(other)
            return died

        def _reschedule(self, node):
            """Let a process that gets the last tests end after them: it would wait for more before the very last."""
            super()._reschedule(node)
            if not self.workqueue and not node.shutting_down:
                node.shutdown()

    config.option.loadscopereorder = False
    return Scheduling(config, log)


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

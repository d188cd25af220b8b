"""Runs one of scikit-learn's test files with our estimators in place of its own, and lists what differs."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections import Counter
from importlib.util import find_spec
from typing import Any

import pytest
import sklearn

from tools.sklearn_suites import shims

SUITES = {
    "pca": ("sklearn.decomposition.tests.test_pca", "PCA"),
    "k_means": ("sklearn.cluster.tests.test_k_means", "KMeans"),
    "scaler": ("sklearn.preprocessing.tests.test_data", "StandardScaler"),
}


class Replace:
    """A plugin of pytest that puts our estimator in the place of theirs, and keeps the outcomes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.theirs: Any = None
        self.ours = getattr(shims, name)
        self.failed: dict[str, str] = {}
        self.outcomes: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the tests that use the estimator, with ours in its place."""
        kept = []
        for item in items:
            module = item.module
            if self.theirs is None:
                self.theirs = getattr(module, self.name)
            setattr(module, self.name, self.ours)
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            replaced = {key: self._replaced(value) for key, value in parameters.items()}
            used = any(replaced[key] is not parameters[key] for key in parameters)
            parameters.update(replaced)
            if used or f"{self.name}(" in inspect.getsource(item.function):
                kept.append(item)
        items[:] = kept

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count outcomes, and keep the last line of each failure."""
        if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
            self.outcomes[report.outcome] += 1
            if report.outcome == "failed":
                crash = getattr(report.longrepr, "reprcrash", None)
                lines = str(crash.message if crash else report.longrepr).splitlines()
                self.failed[report.nodeid.rpartition("::")[2]] = lines[0][:160]

    def _replaced(self, value: Any) -> Any:
        if value is self.theirs:
            return self.ours
        if type(value) is self.theirs:
            return self.ours(**value.get_params(deep=False))
        return value


def main() -> int:
    """Run a suite; the exit code is 0, because differences are to be read, not to be counted."""
    parser = argparse.ArgumentParser(prog="python -m tools.sklearn_suites", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--only", help="tests whose names hold this word", default="")
    chosen = parser.parse_args()
    module, name = SUITES[chosen.suite]
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        print(f"scikit-learn {sklearn.__version__} is installed without its tests", file=sys.stderr)
        return 2
    plugin = Replace(name)
    options = ["-q", "-rN", "--no-header", "--tb=no", "--disable-warnings", "-p", "no:cacheprovider", "-c", "/dev/null"]
    options += ["-k", chosen.only] if chosen.only else []
    pytest.main([*options, spec.origin], plugins=[plugin])
    by_test: dict[str, list[str]] = {}
    for test, why in plugin.failed.items():
        by_test.setdefault(f"{test.partition('[')[0]}: {why}", []).append(test)
    print(f"\n{name} of scikit-learn {sklearn.__version__}: {dict(plugin.outcomes)}")
    for line, tests in sorted(by_test.items()):
        print(f"  {len(tests):3d}x {line}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

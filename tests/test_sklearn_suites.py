"""scikit-learn's own tests on our estimators: the tool runs, and what has agreed agrees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("suite", "only"), [("pca", "test_pca_inverse")])
def test_a_suite_runs_with_our_estimator(suite, only):
    command = [sys.executable, "-m", "tools.sklearn_suites", suite, "--only", only]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    last = done.stdout.rpartition("of scikit-learn")[2]
    assert "passed" in last

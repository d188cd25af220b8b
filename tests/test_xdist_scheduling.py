"""The processes of the tests: one that dies takes no other test with it, and does not keep the run from its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_process_that_dies_fails_one_test_and_the_others_run(tmp_path, after):
    rest = "".join(f"def test_{number}(): pass\n" for number in range(after))
    (tmp_path / "test_dies.py").write_text(f"import os\ndef test_dies(): os._exit(1)\n{rest}")
    (tmp_path / "test_lives.py").write_text("def test_lives(): pass\n")
    command = [sys.executable, "-m", "pytest", "-n2", "-p", "tests.conftest", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300
    )
    assert f"1 failed, {after + 1} passed" in done.stdout, done.stdout + done.stderr
    assert "crashed while running 'test_dies.py::test_dies'" in done.stdout

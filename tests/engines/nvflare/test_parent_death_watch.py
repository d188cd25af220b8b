"""Processes die with their parent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fedspan
from fedspan.engines.nvflare.setup.parent_death_watch import child_environment

MODULE = "fedspan.engines.nvflare.setup.parent_death_watch"


def test_a_process_whose_parent_died_before_it_looked_ends_too():
    # The child looks for its parent when that has certainly ended: it then has another one, which never dies.
    child = f"import sys, time; sys.stdin.read(); from {MODULE} import die_with_parent as watch; watch(); "
    child += "print('looked', flush=True); time.sleep(600); print('outlived', flush=True)"
    parent = f"import subprocess, sys; from {MODULE} import be_a_parent; be_a_parent(); "
    parent += f"subprocess.Popen([sys.executable, '-c', {child!r}])"
    run = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.wait(300) == 0
    printed, _ = run.communicate("", timeout=300)  # the child's end closes its output
    assert printed in ("looked\n", "")


def test_child_processes_import_the_same_fedspan():
    source = child_environment()["PYTHONPATH"].split(os.pathsep)[0]
    assert Path(source) / "fedspan" / "__init__.py" == Path(fedspan.__file__)

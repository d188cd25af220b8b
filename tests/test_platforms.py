"""Windows and macOS: the package and the embedded engine need nothing that only Linux, or only POSIX, has.

A child process hides the modules and functions that Windows lacks, and then does what a user does.
"""

from __future__ import annotations

import subprocess
import sys

HIDDEN = """
import importlib.abc, os, signal, sys

MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posixpath_only"}
FUNCTIONS = ("fork", "getuid", "geteuid", "getgid", "fchmod", "fchown", "chown", "killpg", "setsid", "getpgid",
             "sched_getaffinity", "posix_fadvise", "pread", "pwrite", "O_CLOEXEC", "O_NOFOLLOW", "O_DIRECTORY",
             "getloadavg", "mkfifo", "wait4", "WNOHANG", "sysconf")

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import importlib.util

known = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in MODULES else known(name, package)

# What other libraries need is loaded before anything is hidden: they have their own ways on Windows.
import numpy, scipy.sparse.linalg, scipy.ndimage, sklearn.pipeline, sklearn.metrics, pandas, pyarrow.csv, rich.console
import tempfile, uuid, subprocess, zipfile, multiprocessing, joblib
for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
    del sys.modules[name]
sys.meta_path.insert(0, Hide())
for name in FUNCTIONS:
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGALRM"):
    if hasattr(signal, name):
        delattr(signal, name)
"""

USE = """
import warnings
from pathlib import Path
import numpy as np, fedspan as fs

folder = Path(sys.argv[1])
X = np.random.default_rng(0).normal(size=(90, 4))
for name in dir(fs):
    if name != "connect":  # real federations
        getattr(fs, name)
fed = lambda: fs.federate(X, sites=np.arange(90) % 3, run_dir=folder / "run")
first = fs.FedPCA(2).fit(fed())
again = fs.FedPCA(2).fit(fed())  # resumes
assert all(call.replayed for call in again.run_.calls)
assert first.components_.tobytes() == again.components_.tobytes()
first.save(folder / "model.fedspan")
assert fs.load(folder / "model.fedspan").components_.tobytes() == first.components_.tobytes()
secure = fs.federate(X, sites=np.arange(90) % 3, policy=fs.Policy(secure_sum=True))
fs.FedStandardScaler().fit(secure)
fs.report.write_report(folder / "page.html", title="A page", records=first.run_, models=[first])

from fedspan.cli import main
import pandas as pd
pd.DataFrame(X, columns=list("abcd")).assign(site=np.arange(90) % 3).to_csv(folder / "rows.csv", index=False)
study = '[data]\\nfile = "rows.csv"\\nsite_column = "site"\\n[model]\\nname = "FedPCADetector"\\n'
(folder / "study.toml").write_text(study)
assert main(["run", str(folder / "study.toml")]) == 0
assert main(["apply", str(folder / "study"), str(folder / "rows.csv"), "--out", str(folder / "out.csv")]) == 0
print("all done")
"""

SITE = """
import fedspan.errors
try:
    import fedspan.engines.remote.site.site_store
except fedspan.errors.MissingPackageError as error:
    print(error)
"""


ANALYST = """
import nvflare, nvflare.fuel.flare_api.flare_api, nvflare.apis.fl_component, cryptography.x509
import fedspan.engines.nvflare.client.connect, fedspan.engines.nvflare.client.study_client
import fedspan.cli.federation.federation_command, fedspan.cli.study.run_command
import fedspan.cli.operation.doctor_command, fedspan.cli.operation.logs_command, fedspan.cli.operation.backup_command
print("all done")
"""


def run(code, *arguments):
    command = [sys.executable, "-c", HIDDEN + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_embedded_engine_needs_no_posix(tmp_path):
    done = run(USE, tmp_path)
    assert done.stdout.splitlines()[-1:] == ["all done"], done.stderr


def test_an_analysts_side_of_a_real_federation_needs_no_posix():
    # NVIDIA FLARE itself is loaded before: it imports modules of its server that Windows lacks only where they run.
    before, after = HIDDEN.split("for name in [name for name", 1)
    loaded = before + "import nvflare.private.fed.client.fed_client\nfor name in [name for name" + after
    command = [sys.executable, "-c", loaded + ANALYST]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.splitlines()[-1:] == ["all done"], done.stderr


def test_what_needs_posix_states_it():
    done = run(SITE)
    assert "needs Linux or macOS" in done.stdout, done.stderr

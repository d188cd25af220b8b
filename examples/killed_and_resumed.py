"""
A run killed and resumed
========================

A coordinator may die at any moment. With ``run_dir`` every call's replies are in a journal before the protocol sees
them: run the same thing again, and it goes on where it stopped, asks no site twice, and ends with the same bytes.
Here a second process runs the fit and is killed in the middle, with no chance to tidy up.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fedspan as fs
from fedspan.datasets import load_digits

try:
    import matplotlib.pyplot as plt
except ImportError:  # the numbers need no pictures
    plt = None


# %%
# What is run, once here without a break, once in the other process. Nothing in it knows of journals.

FIT = """
import sys, numpy as np, fedspan as fs
from fedspan.datasets import load_digits

X = load_digits().data.astype(float)
fed = fs.federate(X, sites=np.arange(len(X)) % 10, seed=0, run_dir=sys.argv[1])
fs.FedPCA(5, solver="fedpg", max_rounds=150, tol=1e-12, random_state=0).fit(fed)
"""


def fit(folder: Path) -> fs.FedPCA:
    """Fit in a run's folder: from the start, or from where a run stopped there."""
    X = load_digits().data.astype(float)
    fed = fs.federate(X, sites=np.arange(len(X)) % 10, seed=0, run_dir=folder)
    return fs.FedPCA(5, solver="fedpg", max_rounds=150, tol=1e-12, random_state=0).fit(fed)


def size(folder: Path) -> int:
    """Return the bytes of a folder's files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def killed_in_the_middle(folder: Path, least: int) -> None:
    """Run FIT in another process, and kill it when its journal has grown to `least` bytes."""
    child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", FIT, str(folder)])
    while child.poll() is None and size(folder) < least:
        time.sleep(0.01)
    child.kill()
    child.wait()


# %%
# Kill, resume, compare.


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "killed").mkdir()
        unbroken = fit(folder / "unbroken")
        killed_in_the_middle(folder / "killed", least=size(folder / "unbroken") * 2 // 5)
        resumed = fit(folder / "killed")
    replayed = sum(call.replayed for call in resumed.run_.calls)
    print(f"{len(resumed.run_.calls)} calls; {replayed} were read from the journal of the killed run")
    same = resumed.components_.tobytes() == unbroken.components_.tobytes()
    print("the same bytes as the unbroken run:", same)
    assert same
    assert replayed
    if plt:
        draw(unbroken, resumed)


def draw(unbroken: fs.FedPCA, resumed: fs.FedPCA) -> None:
    """Draw how far the sites are from agreeing, round by round: one curve lies on the other."""
    _, axis = plt.subplots(figsize=(8, 3.5), layout="constrained")
    axis.semilogy(unbroken.run_.metric("consensus"), linewidth=5, alpha=0.4, label="unbroken")
    axis.semilogy(resumed.run_.metric("consensus"), "k", linewidth=1, label="killed and resumed")
    last = max(call.round or 0 for call in resumed.run_.calls if call.replayed)
    axis.axvspan(0, last, alpha=0.15, label="read from the journal")
    axis.set(xlabel="round", ylabel="distance from consensus")
    axis.legend(frameon=False)
    plt.show()


if __name__ == "__main__":
    main()

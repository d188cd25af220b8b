"""How long a user takes to connect to many real sites on this machine: 30, or ``FEDSPAN_SITES``, as processes each."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import fedspan as fs
from fedspan.engines.nvflare.setup.local_deployment import LocalDeployment

TIMES, AT_ONCE = 3, 5


def main() -> dict[str, float]:
    number = int(os.environ.get("FEDSPAN_SITES", "30"))
    with tempfile.TemporaryDirectory(prefix="fedspan-bench-") as name:
        folder, tomls = Path(name), {}
        for site in (f"site{k:02}" for k in range(number)):
            home = folder / "owners" / site
            home.mkdir(parents=True)
            np.savez(home / "rows.npz", X=np.random.default_rng(0).normal(size=(50, 5)))
            tomls[site] = home / "site.toml"
            tomls[site].write_text(f'[site]\nname = "{site}"\n[data]\nfile = "rows.npz"\n')
        with LocalDeployment(folder / "fedspan", "bench", tomls) as here:
            here.start("coordinator")
            for start in range(0, number, AT_ONCE):  # a few at a time: all of them import much
                here.start(*sorted(tomls)[start : start + AT_ONCE])
            took = []
            for _ in range(TIMES):
                began = time.perf_counter()
                with fs.connect(here.kit("alice")) as fed:
                    took.append(time.perf_counter() - began)
                    assert len(fed.engine.reports()) == number
    result = {f"connect to {number} sites, s": statistics.median(took)}
    print(f"{result[f'connect to {number} sites, s']:8.2f}  connect to {number} sites, s (median of {TIMES})")
    return result

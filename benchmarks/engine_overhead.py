"""What the embedded engine adds to a trivial step, against a bare loop over the same function."""

from __future__ import annotations

import statistics
import time

import numpy as np

import fedspan as fs

SITES = 1000
REPEATS = 30


@fs.step
def count(site):
    return {"n": len(site)}


def median_seconds(function) -> float:
    function()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> dict[str, float]:
    sites = [fs.Site(f"{i:04d}", np.zeros((3, 2))) for i in range(SITES)]
    bare = median_seconds(lambda: [count(site) for site in sites]) / SITES * 1e6
    result = {"bare loop, us per site": bare}
    for wire in (False, True):
        fed = fs.LocalFederation(sites, wire=wire)
        for how in ("ask", "sum"):
            spent = median_seconds(lambda fed=fed, how=how: getattr(fed, how)(count)) / SITES * 1e6
            result[f"{how}{', wire' * wire}: overhead, us per site and call"] = spent - bare
    for name, value in result.items():
        print(f"{value:8.2f}  {name}")
    print(f"(at most 10 is wanted without the wire; {SITES} sites, median of {REPEATS} calls)")
    return result

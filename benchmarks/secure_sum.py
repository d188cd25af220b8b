"""Bytes and time of a secure sum, against the plain sum of the same numbers in the same run.

All sites are in this process: the time is the processor's, for all of them together and the coordinator, not what a
federation would wait for. ``python -m benchmarks secure_sum``; its last line takes minutes, and 6 GB of memory.
"""

from __future__ import annotations

import time

import numpy as np

import fedspan as fs

SITES = (3, 10, 100)
NUMBERS = (1_000, 10_000, 100_000, 1_000_000)


@fs.step
def numbers_of(site, count):
    return {"x": np.resize(site.X.ravel(), count)}


def measured(policy: fs.Policy, sites: int, numbers: int) -> tuple[float, float]:
    """Return bytes and processor seconds of one sum, after a first one of a few numbers that makes the keys known."""
    rows = np.random.default_rng(0).normal(size=(sites, 1, 100))
    fed = fs.LocalFederation([fs.Site(f"{i:03d}", row) for i, row in enumerate(rows)], policy=policy)
    fed.sum(numbers_of, count=1)
    first = fed.record.bytes_up + fed.record.bytes_down
    start = time.process_time()
    fed.sum(numbers_of, count=numbers)
    return fed.record.bytes_up + fed.record.bytes_down - first, time.process_time() - start


def main() -> dict[str, float]:
    print(f"{'sites':>5} {'numbers':>9} {'plain MB':>10} {'secure MB':>10} {'ratio':>7} {'plain s':>9} {'secure s':>9}")
    ratios = {}
    for sites in SITES:
        for numbers in NUMBERS:
            (plain_bytes, plain), (bytes_, seconds) = (
                measured(fs.Policy(deadline=600, secure_sum=secure), sites, numbers) for secure in (False, True)
            )
            ratio = bytes_ / plain_bytes
            ratios[f"{sites} sites, {numbers} numbers: bytes"] = ratio
            print(
                f"{sites:5d} {numbers:9d} {plain_bytes / 1e6:10.3f} {bytes_ / 1e6:10.3f} {ratio:7.2f} "
                f"{plain:9.4f} {seconds:9.3f}",
                flush=True,
            )
    print("(bytes of all messages both ways; at most 4 times those of the plain sum is wanted for 10 sites, 100000)")
    return ratios

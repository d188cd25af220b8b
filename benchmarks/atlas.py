"""The whole way of an atlas: generated counts of 50,000 cells x 5,000 genes at five sites, to clusters and a map.

Counts are negative binomial, with effects of sites on genes, eight unequal types, one missing at a site. Printed are
seconds by phase, of the clock and of the processor, the largest memory of the process, bytes by step, and how
clusters and labels agree with the types. ``FEDSPAN_ATLAS_CELLS=50000``, ``FEDSPAN_ATLAS_GENES=5000``,
``FEDSPAN_ATLAS_SECURE=1`` for secure sums, ``FEDSPAN_ATLAS_MAP=tsne`` (``none``),
``FEDSPAN_ATLAS_JOBS=2`` threads of sites.
"""

from __future__ import annotations

import os
import resource
import time

import anndata
import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.federation.run import Observer

CELLS, GENES = (
    int(os.environ.get(f"FEDSPAN_ATLAS_{name}", value)) for name, value in (("CELLS", 50_000), ("GENES", 5000))
)
SECURE, MAP = os.environ.get("FEDSPAN_ATLAS_SECURE", "") == "1", os.environ.get("FEDSPAN_ATLAS_MAP", "tsne")
JOBS = int(os.environ.get("FEDSPAN_ATLAS_JOBS", "2"))
SITES, TYPES, CHUNK = 5, 8, 1000


def generated(seed: int = 0) -> anndata.AnnData:
    """Return counts with `site` and `type` in obs."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(TYPES, CELLS, p=np.arange(TYPES, 0, -1) / (TYPES * (TYPES + 1) / 2))
    site = rng.integers(SITES, size=CELLS)
    site[(kind == TYPES - 1) & (site == SITES - 1)] = 0
    base = rng.gamma(0.3, 0.5, GENES)
    of_type = np.exp(rng.normal(0.0, 1.0, (TYPES, GENES)) * (rng.random((TYPES, GENES)) < 0.1))
    of_site = np.exp(rng.normal(0.0, 0.4, (SITES, GENES)))
    depth = rng.lognormal(0.0, 0.3, CELLS)
    parts = []
    for start in range(0, CELLS, CHUNK):
        some = slice(start, min(CELLS, start + CHUNK))
        mean = base * of_type[kind[some]] * of_site[site[some]] * depth[some, None]
        drawn = rng.poisson(mean * rng.gamma(2.0, 0.5, mean.shape))
        parts.append(scipy.sparse.csr_matrix(drawn.astype(np.float32)))
    obs = pd.DataFrame({"site": site.astype(str), "type": kind.astype(str)}, index=np.arange(CELLS).astype(str))
    return anndata.AnnData(scipy.sparse.vstack(parts, format="csr"), obs=obs)


def main() -> dict[str, float]:
    data = generated()
    before = _memory()
    print(
        f"{CELLS} cells x {GENES} genes, {data.X.nnz / CELLS / GENES:.3f} not zero; {before:.2f} GB before", flush=True
    )
    policy = fs.Policy(secure_sum=True) if SECURE else None
    fed = fs.federate_anndata(data, sites="site", labels="type", n_jobs=JOBS, policy=policy)
    fed.observe(_Phases())
    labels = [str(i) for i in range(TYPES)]
    with threadpool_limits(JOBS if JOBS == 1 else 1):
        began, clock = time.process_time(), time.perf_counter()
        found = fs.atlas(fed, map=MAP, labels=labels, random_state=0)
        seconds, processor = time.perf_counter() - clock, time.process_time() - began
    run = found.run_
    print(f"{seconds:.0f} s, of the processor {processor:.0f} s; {_memory():.2f} GB at most", flush=True)
    up, down = run.bytes_up / SITES / 1e6, run.bytes_down / SITES / 1e6
    print(f"{len(run.calls)} calls, {up:.0f} MB up and {down:.0f} MB down a site")
    _print_bytes(run.calls)
    print(found.summary())
    whole = found.annotate(data[data.obs["site"] == "0"].copy(), site="0")
    agreed = adjusted_rand_score(whole.obs["type"], whole.obs["leiden"])
    right = float((whole.obs["label"].astype(str) == whole.obs["type"].astype(str)).mean())
    print(f"site 0: clusters and types {agreed:.3f}, labels {right:.3f}")
    return {"seconds": seconds, "processor": processor, "GB": _memory(), "clusters and types": agreed, "labels": right}


def _print_bytes(calls):
    """Print the steps that move most bytes."""
    totals = {}
    for call in calls:
        n, up, down = totals.get(call.step, (0, 0, 0))
        totals[call.step] = n + 1, up + sum(call.bytes_up.values()), down + sum(call.bytes_down.values())
    for step, (n, up, down) in sorted(totals.items(), key=lambda one: -one[1][2])[:6]:
        print(f"  {step}: {n} calls, {up / SITES / 1e6:.1f} MB up and {down / SITES / 1e6:.1f} MB down a site")


class _Phases(Observer):
    """Print the seconds at which each phase begins."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def logged(self, metrics):
        if "phase" in metrics.values:
            print(f"  {time.perf_counter() - self.start:.0f} s: {metrics.values['phase']}", flush=True)


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()

"""FedHarmony on 3,500 blood cells of three donors, beside the published result of R and harmonypy on pooled rows.

Correlation with R's result per component (worst and mean of 30), donors among 30 neighbours over chance (1: mixed), the
adjusted Rand index of k-means clusters with those of rows that one site corrected, calls and bytes. "guarded" has the
settings of `fedspan.atlas`, "one start" those of the paper. Then the same with 20 cells of the third donor: how far two
seeds agree about these cells. First, mixing by sums beside the pooled measure. Seeds 100 to 109, which chose no
setting; ``FEDSPAN_HARMONY_SEEDS=0,1`` for others. Needs the data folder (FEDSPAN_DATA) and harmonypy.
"""

from __future__ import annotations

import logging
import os
import time

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NearestNeighbors
from tests.atlases.blood_cells import blood, correlations, same_among_neighbours
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.atlases.measures import site_mixing

SEEDS = [
    int(seed) for seed in os.environ.get("FEDSPAN_HARMONY_SEEDS", "100,101,102,103,104,105,106,107,108,109").split(",")
]
FEW = 20


def main() -> dict[str, float]:
    logging.getLogger("harmonypy").setLevel(logging.ERROR)
    figures: dict[str, float] = {}
    X, expected, donor = blood()
    own, others = same_among_neighbours(X, donor), same_among_neighbours(expected, donor)
    print(f"donors among neighbours: uncorrected {own:.3f}, R {others:.3f}")
    print(f"uncorrected: worst {correlations(X, expected).min():.4f}, mean {correlations(X, expected).mean():.4f}")
    with threadpool_limits(1):
        _mixing_by_sums({"uncorrected": X, "R": expected}, donor)
        for seed in SEEDS:
            began = time.process_time()
            model = fs.FedHarmony(random_state=seed).fit(fs.federate(X, sites=donor))
            seconds = time.process_time() - began
            Z = model.transform(X, sites=donor)
            run = model.run_
            table = np.column_stack([X, np.unique(donor, return_inverse=True)[1]])
            pooled = fs.FedHarmony(random_state=seed, batch=X.shape[1]).fit_transform(table)
            labels = [KMeans(12, n_init=3, random_state=0).fit_predict(rows) for rows in (Z, pooled)]
            guarded, single = (_ours(X, donor, seed, n_init=n, least_rows=m) for n, m in ((2, 5), (1, 1)))
            results = {"fedspan": Z, "guarded": guarded, "one start": single, "harmonypy": _peer(X, donor, seed)}
            for name, rows in results.items():
                found = correlations(rows, expected)
                mixed = same_among_neighbours(rows, donor)
                figures |= {f"{name} {seed}: worst": found.min(), f"{name} {seed}: mean": found.mean()}
                print(f"seed {seed}, {name}: worst {found.min():.4f}, mean {found.mean():.4f}, mixing {mixed:.3f}")
            print(
                f"  {len(run.calls)} calls, {run.bytes_up / 3e6:.1f} MB up and {run.bytes_down / 3e6:.1f} MB down "
                f"a site, {seconds:.1f} s; same as one site: {np.abs(Z - pooled).max():.1e}, "
                f"clusters {adjusted_rand_score(*labels):.4f}",
                flush=True,
            )
        if len(SEEDS) > 1:
            _few_cells(X, donor)
    return figures


def _mixing_by_sums(tables, donor):
    """Print mixing measured by sums, from the least to the largest of three seeds, beside 30 pooled neighbours."""
    for name, rows in tables.items():
        found = [fs.federate(rows, sites=donor, seed=seed).run(site_mixing) for seed in SEEDS[:3]]
        near = NearestNeighbors(n_neighbors=31).fit(rows).kneighbors(rows, return_distance=False)[:, 1:]
        shares = np.stack([(donor[near] == one).mean(axis=1) for one in np.unique(donor)])
        pooled = {"ratio": same_among_neighbours(rows, donor), "lisi": float((1.0 / (shares**2).sum(axis=0)).mean())}
        for measure, value in pooled.items():
            own = sorted(getattr(one, measure) for one in found)
            print(f"{name}, {measure}: by sums {own[0]:.2f} to {own[-1]:.2f}, pooled {value:.2f}")


def _few_cells(X, donor):
    """Print how far two seeds agree about the cells of a donor who has few of them."""
    third = np.unique(donor)[2]
    few = np.random.default_rng(0).choice(np.flatnonzero(donor == third), FEW, replace=False)
    kept = np.sort(np.concatenate([np.flatnonzero(donor != third), few]))
    X, donor = X[kept], donor[kept]
    for name, run in (("fedspan", _ours), ("harmonypy", _peer)):
        found = correlations(*(run(X, donor, seed)[donor == third] for seed in SEEDS[:2]))
        print(f"{FEW} cells of one donor, two seeds of {name}: worst {found.min():.3f}, mean {found.mean():.4f}")


def _ours(X, donor, seed, **settings):
    return fs.FedHarmony(random_state=seed, **settings).fit_transform(X, sites=donor)


def _peer(X, donor, seed):
    import harmonypy

    frame = pd.DataFrame({"donor": donor})
    Z = harmonypy.run_harmony(X, frame, "donor", lamb=1.0, verbose=False, ncores=1, random_state=seed).Z_corr
    return np.asarray(Z if Z.shape == X.shape else Z.T)


if __name__ == "__main__":
    main()

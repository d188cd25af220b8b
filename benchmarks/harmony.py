"""FedHarmony on 3,500 blood cells of three donors, beside the published result of R and harmonypy on pooled rows.

Correlation with R's result per component (worst and mean of 30), donors among 30 neighbours over chance (1: mixed), the
adjusted Rand index of k-means clusters with those of rows that one site corrected, calls and bytes. Seeds 0 to 9;
``FEDSPAN_HARMONY_SEEDS=0,1`` for some of them. Needs the data folder (FEDSPAN_DATA) and harmonypy.
"""

from __future__ import annotations

import logging
import os
import time

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from tests.atlases.blood_cells import blood, correlations, same_among_neighbours
from threadpoolctl import threadpool_limits

import fedspan as fs

SEEDS = [int(seed) for seed in os.environ.get("FEDSPAN_HARMONY_SEEDS", "0,1,2,3,4,5,6,7,8,9").split(",")]


def main() -> dict[str, float]:
    import harmonypy

    logging.getLogger("harmonypy").setLevel(logging.ERROR)
    figures: dict[str, float] = {}
    X, expected, donor = blood()
    own, others = same_among_neighbours(X, donor), same_among_neighbours(expected, donor)
    print(f"donors among neighbours: uncorrected {own:.3f}, R {others:.3f}")
    print(f"uncorrected: worst {correlations(X, expected).min():.4f}, mean {correlations(X, expected).mean():.4f}")
    with threadpool_limits(1):
        for seed in SEEDS:
            began = time.process_time()
            model = fs.FedHarmony(random_state=seed).fit(fs.federate(X, sites=donor))
            seconds = time.process_time() - began
            Z = model.transform(X, sites=donor)
            run = model.run_
            table = np.column_stack([X, np.unique(donor, return_inverse=True)[1]])
            pooled = fs.FedHarmony(random_state=seed, batch=X.shape[1]).fit_transform(table)
            labels = [KMeans(12, n_init=3, random_state=0).fit_predict(rows) for rows in (Z, pooled)]
            frame = pd.DataFrame({"donor": donor})
            peer = harmonypy.run_harmony(X, frame, "donor", lamb=1.0, verbose=False, ncores=1, random_state=seed).Z_corr
            peer = np.asarray(peer if peer.shape == X.shape else peer.T)
            for name, rows in (("fedspan", Z), ("harmonypy", peer)):
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
    return figures


if __name__ == "__main__":
    main()

"""The one-shot map under differential privacy, ``FedTSNE(share="centers", privacy=GaussianCenters(...))``, on MNIST.

Ten sites, rows dealt out, secure sums, so that each site adds a share of the noise; without a secure sum it adds all of
it. Rows are within a ball of radius 7 around grey .13 (values in [0, 1]; public numbers of the kind of data), delta is
1e-5, the unit one row of one site. CA10 is the leave-one-out accuracy of ten neighbours on the map, of all rows.
Seeds are of the sample, the split, the start and the noise.

``FEDSPAN_MAP_SEEDS=100,101,102``, ``FEDSPAN_DP_CASES=60000:8:secure,60000:2:secure,60000:8:plain,5000:8:secure`` (rows,
epsilon, and how sums are carried; epsilon ``none`` is the map of epsilon 8 with next to no noise). Needs the data
folder (FEDSPAN_DATA).
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.datasets import load_mnist
from fedspan.maps.parts.noisy_centres import NoisyBook

SEEDS = [int(seed) for seed in os.environ.get("FEDSPAN_MAP_SEEDS", "100,101,102").split(",")]
CASES = os.environ.get("FEDSPAN_DP_CASES", "60000:8:secure,60000:2:secure,60000:8:plain,5000:8:secure").split(",")
SITES, CLIP, GREY, DELTA = 10, 7.0, 0.13, 1e-5
#: So large a budget that the noise is nothing.
NONE = 1e6


def main() -> dict[str, float]:
    figures: dict[str, float] = {}
    with threadpool_limits(1):
        for case in CASES:
            rows, epsilon, carried = case.split(":")
            found = [_accuracy(int(rows), epsilon, carried, seed) for seed in SEEDS]
            figures[f"MNIST {rows}, epsilon {epsilon}, {carried} sums: CA10"] = float(np.mean(found))
            print(f"  mean of seeds {SEEDS}: {np.mean(found):.4f}, least {min(found):.4f}", flush=True)
    return figures


def _accuracy(rows: int, epsilon: str, carried: str, seed: int) -> float:
    images = load_mnist()
    rng = np.random.default_rng(seed)
    some = rng.permutation(len(images.data))[:rows]
    X, y = images.data[some] / np.float32(255), images.target[some].astype(int)
    privacy = fs.privacy.GaussianCenters(8.0 if epsilon == "none" else float(epsilon), DELTA, clip=CLIP, center=GREY)
    settings = None
    if epsilon == "none":
        centres, axes = NoisyBook().sizes(rows, privacy.mu, X.shape[1])
        settings, privacy = {"centres": centres, "axes": axes}, replace(privacy, epsilon=NONE)
    policy = fs.Policy(secure_sum=carried == "secure")
    fed = fs.federate(X, sites=rng.permutation(rows) % SITES, policy=policy)
    began = time.process_time()
    model = fs.FedTSNE(share="centers", privacy=privacy, sums_settings=settings, random_state=seed).fit(fed)
    fitted = time.process_time()
    Z = model.transform(X)  # what the sites do with their own rows
    placed = time.process_time()
    near = cKDTree(Z).query(Z, 11)[1]
    own = near == np.arange(rows)[:, None]
    own[:, -1] |= ~own.any(axis=1)  # one of eleven or more rows at the same place
    votes = np.zeros((rows, 10), dtype=int)
    np.add.at(votes, (np.arange(rows)[:, None], y[near[~own].reshape(rows, 10)]), 1)
    accuracy = float(np.mean(votes.argmax(axis=1) == y))
    print(
        f"MNIST {rows}, epsilon {epsilon}, {carried} sums, seed {seed}: CA10 {accuracy:.4f}  {len(model.centers_)} "
        f"centres, {len(model.axes_)} axes; fit {fitted - began:.0f} s, placing {placed - fitted:.0f} s",
        flush=True,
    )
    return accuracy


if __name__ == "__main__":
    main()

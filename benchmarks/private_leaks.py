"""What the coordinator can rebuild of the rows of private maps, beside the map by posted distances.

MNIST, ten sites, rows dealt out, positions posted; as many other rows are public. Every attack of ``fedspan audit`` on
what the coordinator holds after a run of ``FedTSNE(share="sums")``, of the one-shot form (``"centers"``), of that with
noise (``GaussianCenters``, epsilon 8, delta 1e-5), of that by Lloyd's algorithm without any guard of its sums, and on
distances to 500 landmarks. The sums and histograms of every round are those of the journal.
PSNR is of values clipped to [0, 1]; the mean image has about 11.7 dB.

``FEDSPAN_MAP_SEEDS=100,101,102`` (of sample, split and run), ``FEDSPAN_MAP_ROWS=5000``,
``FEDSPAN_LEAK_MAPS=sums,centers,lloyd,noisy,distances``. Needs the data folder (FEDSPAN_DATA).
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fedspan as fs
from fedspan.audit import LeakCard, Received, audit
from fedspan.datasets import load_mnist
from fedspan.landmarks.feddl import feddl
from fedspan.landmarks.landmark_distances import landmark_distances

SEEDS = [int(seed) for seed in os.environ.get("FEDSPAN_MAP_SEEDS", "100,101,102").split(",")]
ROWS = int(os.environ.get("FEDSPAN_MAP_ROWS", "5000"))
MAPS = os.environ.get("FEDSPAN_LEAK_MAPS", "sums,centers,lloyd,noisy,distances").split(",")
SITES = 10
#: Without the guard of the sums: Lloyd's algorithm to the end, for two codebooks.
LLOYD = {"least_rows": 1, "k_means_rounds": 15, "codebooks": 2}
NOISE = fs.privacy.GaussianCenters(8.0, 1e-5, clip=7.0, center=0.13)


def main() -> dict[str, float]:
    figures: dict[str, list[float]] = {}
    with threadpool_limits(1):
        for seed in SEEDS:
            cards = _cards(seed)
            first, *others = cards.values()
            print(f"\nseed {seed}: {replace(first, remarks=(), beside=tuple(others))}", flush=True)
            for name, card in cards.items():
                for entry in card.entries:
                    for measure, value in entry.measures.items():
                        figures.setdefault(f"{name}, {entry.attack}: {measure}", []).append(value)
    means = {name: float(np.mean(values)) for name, values in figures.items()}
    print(f"\nmeans over seeds {SEEDS}")
    for name, value in means.items():
        if not name.endswith("relative_error"):
            print(f"{name:75} {value:.4f}")
    return means


def _cards(seed: int) -> dict[str, LeakCard]:
    images = load_mnist()
    order = np.random.default_rng(seed).permutation(len(images.data))
    X, public = (images.data[some] / np.float32(255) for some in (order[:ROWS], order[ROWS : 2 * ROWS]))
    sites = np.random.default_rng(seed + 1).permutation(ROWS) % SITES
    truth = {str(site): X[sites == site] for site in range(SITES)}
    known: dict[str, Any] = {"truth": truth, "public": public, "bounds": (0.0, 1.0)}
    found: dict[str, LeakCard] = {}
    for name in MAPS:
        if name == "distances":
            fed = fs.federate(X, sites=sites, seed=seed)
            landmarks = fed.run(feddl, n_landmarks=500, n_frequencies=0)
            posted = fed.run(landmark_distances, landmarks=landmarks)
            rows = np.repeat(np.arange(SITES, dtype=np.int32), [len(part) for part in posted.values()])
            distances = np.concatenate(list(posted.values())) * landmarks.scale
            held = Received("posted distances", "500 landmarks", tuple(posted), rows, landmarks.points, distances)
            found[name] = audit(held, **known)
            continue
        with tempfile.TemporaryDirectory() as folder, fs.federate(X, sites=sites, run_dir=folder) as fed:
            share, noise = (name if name in ("sums", "centers") else "centers"), (NOISE if name == "noisy" else None)
            settings = LLOYD if name == "lloyd" else None
            model = fs.FedTSNE(
                share=share, privacy=noise, sums_settings=settings, post_positions=True, random_state=seed
            ).fit(fed)
            found[name] = replace(audit(folder, model=model, **known), what=f"{name}: {len(model.centers_)} centres")
    return found


if __name__ == "__main__":
    main()

"""How landmarks get nearer to the rows: MMD^2 by round."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedspan.papers.fed_tsne.rows_paper import Rows
from fedspan.papers.fed_tsne.variants_paper import PAPER_NOISE, learned
from fedspan.papers.results_paper import Curves

#: What is compared: the split, the noise, and FedDL's settings.
RUNS: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "default, IID": ("IID", False, {}),
    "default, one class": ("one class", False, {}),
    "no momentum, one class": ("one class", False, {"momentum": 0.0}),
    "5 local steps, IID": ("IID", False, {"momentum": 0.0, "local_steps": 5}),
    "5 local steps, one class": ("one class", False, {"momentum": 0.0, "local_steps": 5}),
    "paper's noise, IID": ("IID", True, {}),
    "paper's noise, one class": ("one class", True, {}),
}


def convergence(rows: Rows, rounds: int = 50) -> Curves:
    """Return MMD^2 by round, for the runs above."""
    lines = {}
    for name, (split, noise, settings) in RUNS.items():
        sites = rows.iid() if split == "IID" else rows.by_class()
        found = learned(rows, sites, PAPER_NOISE if noise else None, rounds=rounds, n_frequencies=1024, **settings)
        values = np.asarray(found.model.run_.metric("mmd2"), dtype=np.float64)
        lines[name] = np.arange(len(values), dtype=np.float64), values
    return Curves(
        f"{rows.name}, {len(rows.X):,} rows: MMD^2 by round",
        "round",
        lines,
        f"{rows.n_landmarks} landmarks, ten sites (IID) or one for each class, seed 0; estimated by 1024 random "
        "directions. Without noise and with one local step the split makes no difference. 5 local steps: five times "
        "the work in a round. Noise: as in the paper, without momentum.",
        at=[x for x in (0, 5, 10, 20, 50) if x <= rounds],
        log=True,
    )

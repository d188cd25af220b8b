"""Federated PCA for anomaly detection in IoT networks: the paper's tables and figures, ours beside them.

T.-A. Nguyen et al., "Federated PCA on Grassmann manifold for IoT anomaly detection", IEEE/ACM Transactions on
Networking (2024).

The paper's training rows are not public: UNSW-NB15 here is the partition of 82,332 rows (17,000 normal rows train,
20,000 test, with all 45,332 attacks), TON-IoT the release of 211,043 rows (40,000 train, 10,000 test, with 56,557
attacks). Rows are drawn at random unless a table says otherwise; sites are 100 blocks of the rows sorted by
``ct_srv_src`` and ``src_port``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fedspan.papers.fedpca.convergence_paper import FEDPG, by_round, effect
from fedspan.papers.fedpca.costs_paper import cost_table, views
from fedspan.papers.fedpca.detection_tables_paper import class_distribution, curves, detection_table, find
from fedspan.papers.fedpca.detection_words_paper import words
from fedspan.papers.fedpca.encoded_paper import encoded_table
from fedspan.papers.fedpca.methods_paper import BASELINES, BEYOND, Method, deep, principal
from fedspan.papers.fedpca.traffic_paper import Order, Traffic, held_out_hosts, traffic
from fedspan.papers.results_paper import Part, Results, Table, counted

DATA = ("UNSW-NB15", "TON-IoT")
#: Whose curves are drawn.
DRAWN = (
    *("pooled PCA", "random subspace", "self-learning PCA", "FedPG, corrected", "FedAE, 2 layers"),
    "exact, Mahalanobis",
)
#: Shown on shifted splits.
SHIFTED = ("flag everything", "random subspace", "pooled PCA", "exact (covariance)", *BEYOND)


def run(quick: bool = False) -> Results:
    """Run tables and figures; `quick` means one seed, fewer settings, and deep baselines cut short."""
    results = Results(
        "Federated PCA for anomaly detection",
        "FedPE and FedPG (Nguyen et al., 2024), as written and corrected, with their baselines, on network traffic. "
        "The paper's rows are not public and its thresholds have seen the test labels: it is said where it matters.",
    )
    seeds = range(1) if quick else range(3)
    found = {}
    for name in DATA:
        results.parts.append(class_distribution(traffic(name)))
        for log in (False, True):
            scale = "signed log, z-scored" if log else "z-scored"

            def split(seed: int, name: str = name, log: bool = log) -> Traffic:
                return traffic(name, seed=seed, log=log)

            found[name, log] = find(split, _methods(quick, log), seeds)
            title = f"{name}: detection, {scale}"
            results.parts.append(detection_table(found[name, log], title, f"Mean over {counted(seeds)}, random split."))
        results.parts.extend(curves(found[name, False], DRAWN, "z-scored, the last seed; self-learning: one site."))
        results.parts.append(cost_table(found[name, False]))
    results.parts.extend(_shifted(quick))
    results.parts.append(encoded_table(seeds))
    results.parts.append(views(found["UNSW-NB15", False], ["FedPG, corrected", "self-learning PCA", "FedAE, 2 layers"]))
    results.parts.extend(_convergence(quick))
    results.parts.append(words(found, cut_short=quick))
    return results


def _methods(quick: bool, log: bool) -> dict[str, Method]:
    """Return what a table has: all methods on z-scored rows, as in the paper; quickly one deep method, cut short."""
    if log:
        some = {} if quick else {name: principal()[name] for name in ("exact (covariance)", "FedPG, corrected")}
        return {**BASELINES, **some, **BEYOND}
    if not quick:
        return {**BASELINES, **deep(), **principal(), **BEYOND}
    few = {"FedAE, 2 layers": deep(max_rounds=20)["FedAE, 2 layers"]}
    return {**BASELINES, **few, **principal(rounds=200), **BEYOND}


def _shifted(quick: bool) -> list[Table]:
    """Return detection where the training rows are not drawn like the test rows."""
    methods = {name: {**BASELINES, **principal(), **BEYOND}[name] for name in SHIFTED}
    splits: dict[str, Callable[[int], Traffic]] = {"TON-IoT: trained on some hosts": _hosts}
    for name in DATA:
        for order in ("first", "last"):
            splits[f"{name}: trained on the {order} rows"] = partial(_ordered, name, order)
    seeds = range(1) if quick else range(3)
    parts = []
    for title, split in splits.items():
        drawn = seeds if "hosts" in title else range(1)
        remark = f"Signed log, z-scored. The test is not drawn like the training rows. {counted(drawn)}."
        parts.append(detection_table(find(split, methods, drawn), f"{title}, tested on others", remark, beside=False))
    return parts


def _hosts(seed: int) -> Traffic:
    return held_out_hosts(seed=seed)


def _ordered(name: str, order: Order, seed: int) -> Traffic:
    return traffic(name, seed=seed, log=True, order=order)


def _convergence(quick: bool) -> list[Part]:
    """Return the figures on UNSW-NB15, z-scored."""
    name = DATA[0]
    seeds, rounds = (range(1), 100) if quick else (range(3), 300)
    grid = (1, 3, 10, 30, 100) if quick else (1, 3, 10, 30, 100, 300)
    parts: list[Part] = [
        *by_round(name, seeds, grid, participation=1.0),
        by_round(name, range(1) if quick else seeds, (10, 30, 100, 300), participation=1.0, rho=0.35, methods=FEDPG)[0],
        *by_round(name, seeds, grid if quick else (*grid, 1000), participation=0.1),
    ]
    settings: dict[str, tuple[str, Sequence[float]]] = {
        "rho": ("rho over the largest local eigenvalue", (0.1, 0.35, 2.0) if quick else (0.01, 0.1, 0.35, 1, 3)),
        "rank": ("rank k", (2, 10) if quick else (2, 5, 10, 20)),
        "local_steps": ("local steps", (1, 10) if quick else (1, 3, 10, 30)),
        "n_sites": ("number of sites", (20, 100) if quick else (20, 100, 200)),
    }
    for what, (label, values) in settings.items():
        parts.extend(effect(name, what, label, values, seeds, rounds))
    return parts

"""Federated PCA for anomaly detection in IoT networks: the paper's tables and figures, ours beside them.

T.-A. Nguyen et al., "Federated PCA on Grassmann manifold for IoT anomaly detection", IEEE/ACM Transactions on
Networking (2024).

The paper's training rows are not public: UNSW-NB15 here is the partition of 82,332 rows (17,000 normal rows train,
20,000 test, with all 45,332 attacks), TON-IoT the release of 211,043 rows (40,000 train, 10,000 test, with 56,557
attacks). Rows are drawn at random unless a table states otherwise; sites are 100 blocks of the rows sorted by
``ct_srv_src`` and ``src_port``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fedspan.papers.fedpca.convergence_paper import FEDPG, by_round, effect
from fedspan.papers.fedpca.costs_paper import cost_table, views
from fedspan.papers.fedpca.detection_paper import (
    class_distribution,
    curves,
    detection_table,
    encoded_table,
    find,
    words,
)
from fedspan.papers.fedpca.methods_paper import BASELINES, BEYOND, Method, deep, principal
from fedspan.papers.fedpca.traffic_paper import SOURCES, Traffic, held_out_hosts, traffic
from fedspan.papers.results_paper import Part, Results, Table, counted

#: Methods whose curves are drawn, that are shown on shifted splits, and whose reconstructions are shown.
DRAWN = (
    "pooled PCA",
    "random subspace",
    "self-learning PCA",
    "FedPG, corrected",
    "FedAE, 2 layers",
    "exact, Mahalanobis",
)
SHIFTED = ("flag everything", "random subspace", "pooled PCA", "exact (covariance)", *BEYOND)
VIEWED = ("FedPG, corrected", "self-learning PCA", "FedAE, 2 layers")


def run(quick: bool = False) -> Results:
    """Run tables and figures; `quick` means one seed, fewer settings, and deep baselines cut short."""
    results = Results(
        "Federated PCA for anomaly detection",
        "FedPE and FedPG (Nguyen et al., 2024), as written and corrected, with their baselines, on network traffic. "
        "The paper's rows are not public and its thresholds have seen the test labels: the parts state where it "
        "matters.",
    )
    seeds = range(1) if quick else range(3)
    found = {}
    for name in SOURCES:
        results.parts.append(class_distribution(traffic(name)))
        for log, scale in ((False, "z-scored"), (True, "signed log, z-scored")):
            found[name, log] = find(partial(traffic, name, log=log), _methods(quick, log), seeds)
            remark = f"Mean over {counted(seeds)}, random split."
            results.parts.append(detection_table(found[name, log], f"{name}: detection, {scale}", remark))
        results.parts.extend(curves(found[name, False], DRAWN, "z-scored, the last seed; self-learning: one site."))
        results.parts.append(cost_table(found[name, False]))
    results.parts.extend(_shifted(seeds))
    results.parts.append(encoded_table(seeds))
    results.parts.append(views(found["UNSW-NB15", False], VIEWED))
    results.parts.extend(_convergence(quick, seeds))
    results.parts.append(words(found, cut_short=quick))
    return results


def _methods(quick: bool, log: bool) -> dict[str, Method]:
    """Return the methods of a table: all on z-scored rows, as in the paper; quickly one deep method, cut short."""
    if log:
        some = {} if quick else {name: principal()[name] for name in ("exact (covariance)", "FedPG, corrected")}
        return {**BASELINES, **some, **BEYOND}
    if not quick:
        return {**BASELINES, **deep(), **principal(), **BEYOND}
    few = {"FedAE, 2 layers": deep(max_rounds=20)["FedAE, 2 layers"]}
    return {**BASELINES, **few, **principal(rounds=200), **BEYOND}


def _shifted(seeds: range) -> list[Table]:
    """Return detection where the training rows are not drawn like the test rows."""
    methods = {name: {**BASELINES, **principal(), **BEYOND}[name] for name in SHIFTED}
    splits: dict[str, tuple[Callable[[int], Traffic], range]] = {
        "TON-IoT: trained on some hosts": (held_out_hosts, seeds),
        **{
            f"{name}: trained on the {order} rows": (partial(traffic, name, log=True, order=order), range(1))
            for name in SOURCES
            for order in ("first", "last")
        },
    }
    parts = []
    for title, (split, drawn) in splits.items():
        remark = f"Signed log, z-scored. The test is not drawn like the training rows. {counted(drawn)}."
        parts.append(detection_table(find(split, methods, drawn), f"{title}, tested on others", remark, beside=False))
    return parts


def _convergence(quick: bool, seeds: range) -> list[Part]:
    """Return the figures on UNSW-NB15, z-scored."""
    grid = (1, 3, 10, 30, 100) if quick else (1, 3, 10, 30, 100, 300)
    parts: list[Part] = [
        *by_round(seeds, grid, participation=1.0),
        by_round(seeds, (10, 30, 100, 300), participation=1.0, rho=0.35, methods=FEDPG)[0],
        *by_round(seeds, grid if quick else (*grid, 1000), participation=0.1),
    ]
    settings = {
        "rho": ("rho over the largest local eigenvalue", (0.1, 0.35, 2.0) if quick else (0.01, 0.1, 0.35, 1, 3)),
        "rank": ("rank k", (2, 10) if quick else (2, 5, 10, 20)),
        "local_steps": ("local steps", (1, 10) if quick else (1, 3, 10, 30)),
        "n_sites": ("number of sites", (20, 100) if quick else (20, 100, 200)),
    }
    for what, (label, values) in settings.items():
        parts.extend(effect(what, label, values, seeds, 100 if quick else 300))
    return parts

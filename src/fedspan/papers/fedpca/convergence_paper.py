"""How FedPE and FedPG converge, as written and corrected: by round, by second, and with what rho, rank and sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.progress import track
from sklearn.metrics import roc_auc_score

from fedspan.arrays import Matrix
from fedspan.federation import Federation
from fedspan.linalg import polar_factor
from fedspan.papers.fedpca.traffic_paper import traffic
from fedspan.papers.results_paper import Chart, Curves, Part, counted
from fedspan.pca.covariance import covariance_pca
from fedspan.pca.fedpe import fedpe
from fedspan.pca.fedpg import fedpg
from fedspan.pca.parts.consensus import Variant
from fedspan.sums.moments import moments
from fedspan.sums.row_transforms import standardize

PROTOCOLS: dict[str, tuple[Callable[..., tuple[Matrix, Any]], Variant]] = {
    "FedPG, corrected": (fedpg, "corrected"),
    "FedPG, paper": (fedpg, "paper"),
    "FedPE, corrected": (fedpe, "corrected"),
    "FedPE, paper": (fedpe, "paper"),
}
METHODS = tuple(PROTOCOLS)
FEDPG = METHODS[:2]
DATA, RANK = "UNSW-NB15", 2


class Problem:
    """z-scored traffic at its sites, and the loss that an optimal subspace of it has."""

    def __init__(self, seed: int, n_sites: int = 100) -> None:
        self.traffic = traffic(DATA, seed, n_sites=n_sites)
        raw = self.traffic.federation(seed)
        found = raw.run(moments)
        self.mean, self.scale = found.mean, np.where(found.variance > 0, np.sqrt(found.variance), 1.0)
        self.fed: Federation = raw.apply(standardize, mean=self.mean, scale=self.scale, double=True)
        Z = (self.traffic.X_train - self.mean) / self.scale
        self.covariance = Z.T @ Z / len(Z)

    def gap(self, U: Matrix) -> float:
        """Return how much the mean squared residual of a basis is above the least possible."""
        kept = float(np.vdot(U, self.covariance @ U))
        best = self.fed.run(covariance_pca, rank=U.shape[1])[0]
        return float(max(best.scatter.sum() / best.n - kept, 1e-12))

    def auc(self, U: Matrix) -> float:
        """Return the area under the ROC curve of the residual on the test rows."""
        Z = (self.traffic.X_test - self.mean) / self.scale
        R = Z - (Z @ U) @ U.T
        return float(roc_auc_score(self.traffic.y_test, np.vecdot(R, R)))

    def solve(self, method: str, rounds: int, **options: Any) -> tuple[Matrix, float]:
        """Return the basis of a method after some rounds, and the seconds it took."""
        protocol, variant = PROTOCOLS[method]
        settings = {"rank": RANK, "participation": 0.1, "local_steps": 10, **options}
        with self.fed.begin(method) as run:
            Z, _ = protocol(run, n_columns=len(self.mean), variant=variant, max_rounds=rounds, tol=1e-12, **settings)
        return polar_factor(Z), run.record.seconds


def by_round(
    seeds: Sequence[int],
    grid: Sequence[int],
    participation: float,
    rho: float | None = None,
    methods: Sequence[str] = METHODS,
) -> list[Part]:
    """Return the gap against rounds and against seconds."""
    runs: dict[str, list[list[tuple[float, float]]]] = {method: [] for method in methods}
    for seed in track(seeds, description="by round", transient=True):
        problem = Problem(seed)
        for method in methods:
            ends = [problem.solve(method, rounds, participation=participation, rho=rho) for rounds in grid]
            runs[method].append([(problem.gap(U), seconds) for U, seconds in ends])
    gaps, seconds = ({method: np.mean(found, axis=0)[:, i] for method, found in runs.items()} for i in (0, 1))
    who = "all sites" if participation == 1 else f"{participation:.0%} of the sites"
    unit = "each variant's own default of rho" if rho is None else f"rho {rho:g} times the largest local eigenvalue"
    remark = (
        f"{DATA}, z-scored, k = {RANK}, {who} a round, 10 local steps, {unit}. "
        f"Gap: mean squared residual of a row above that of the best subspace; mean over {counted(seeds)}."
    )
    title = f"Loss gap of FedPE and FedPG, {who} a round" + ("" if rho is None else f", rho {rho:g}")
    slowest = max(float(times[-1]) for times in seconds.values())
    return [
        Chart(f"{title}: by round", "round", list(grid), gaps, remark, log=True, log_x=True),
        Curves(
            f"{title}: by second",
            "seconds",
            {method: (seconds[method], gaps[method]) for method in methods},
            remark + " All sites' work one after the other on one thread.",
            [float(f"{slowest * share:.2g}") for share in (0.05, 0.1, 0.3, 0.6)],
            log=True,
        ),
    ]


def effect(what: str, label: str, values: Sequence[float], seeds: Sequence[int], rounds: int) -> list[Chart]:
    """Return gap and AUC against one setting: ``rho``, ``rank``, ``local_steps`` or ``n_sites``."""
    gaps: dict[str, list[list[float]]] = {method: [[] for _ in values] for method in METHODS[:3]}
    areas: dict[str, list[list[float]]] = {method: [[] for _ in values] for method in METHODS[:3]}
    for seed in track(seeds, description=what, transient=True):
        common = Problem(seed)
        for i, value in enumerate(values):
            problem = Problem(seed, int(value)) if what == "n_sites" else common
            options = {} if what == "n_sites" else {what: value}
            for method in gaps:
                U, _ = problem.solve(method, rounds, **options)
                gaps[method][i].append(problem.gap(U))
                areas[method][i].append(problem.auc(U))
    fixed = "" if what == "rank" else f" k = {RANK}."
    remark = (
        f"{DATA}, z-scored, {rounds} rounds with 10 % of the sites; mean and deviation over {counted(seeds)}.{fixed}"
    )
    log_x = what in ("rho", "n_sites")
    return [
        Chart.over_seeds(f"Loss gap against {label}", label, values, gaps, remark, log=True, log_x=log_x),
        Chart.over_seeds(f"AUC against {label}", label, values, areas, remark, log=False, log_x=log_x),
    ]

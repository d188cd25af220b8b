"""The methods of the detection tables, each from traffic and a seed to scores of the test rows and a threshold."""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from fedspan import FedAutoencoderDetector, FedBiGANDetector, FedPCADetector, LocalPCADetector
from fedspan.arrays import Matrix
from fedspan.federation import RunRecord
from fedspan.linalg import orthonormalize
from fedspan.papers.fedpca.traffic_paper import Traffic

Scores = NDArray[np.float64]
RANK, QUANTILE = 10, 0.95
#: Share of the sites in a round of FedPE and FedPG, and their rounds in the tables.
PARTICIPATION, ROUNDS = 0.1, 1000
#: The steps that find the threshold.
QUANTILE_STEPS = ("sums.counts_between", "sums.fractions_between")


@dataclass(frozen=True)
class FittedScores:
    """What a method makes of the test rows; several scores where several sites have a detector each."""

    scores: tuple[tuple[Scores, float], ...]
    seconds: float = 0.0
    model: Any = None

    @property
    def record(self) -> RunRecord | None:
        """The record of the run, if there was one."""
        return getattr(self.model, "run_", None)


Method = Callable[[Traffic, int], FittedScores]


def federated(model: Callable[[int], Any]) -> Method:
    """Return the method that fits what `model` makes of a seed on the federation of the training rows.

    Where every site has a detector of its own, every tenth site scores the test rows.
    """

    def method(traffic: Traffic, seed: int) -> FittedScores:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the rounds are given; their gaps have figures
            fitted = model(seed).fit(traffic.federation(seed))
        seconds = time.perf_counter() - start
        own = isinstance(fitted, LocalPCADetector)
        sites = [(site,) for site in fitted.sites_[:: max(1, len(fitted.sites_) // 10)]] if own else [()]
        scores = tuple((-fitted.score_samples(traffic.X_test, *site), -fitted.offset_) for site in sites)
        return FittedScores(scores, seconds, fitted)

    return method


def fedpca(distance: str = "residual", solver: str = "covariance", **options: Any) -> Method:
    """Return FedPCADetector with a solver; `options` are those of the solver."""
    settings: dict[str, Any] = {"solver": solver, "distance": distance, "quantile": QUANTILE, "solver_options": options}
    return federated(lambda seed: FedPCADetector(RANK, random_state=seed, **settings))


def by_residual(basis_of: Callable[[Matrix, int], Matrix]) -> Method:
    """Return the method that scores standardised rows by their residual from a basis (d, k), on pooled rows."""

    def method(traffic: Traffic, seed: int) -> FittedScores:
        start = time.perf_counter()
        scaler = StandardScaler().fit(traffic.X_train)
        basis = basis_of(scaler.transform(traffic.X_train), seed)

        def anomaly(X: Matrix) -> Scores:
            Z = scaler.transform(X)
            R = Z - (Z @ basis) @ basis.T
            return np.asarray(np.vecdot(R, R))

        threshold = float(np.quantile(anomaly(traffic.X_train), QUANTILE, method="inverted_cdf"))
        return FittedScores(((anomaly(traffic.X_test), threshold),), time.perf_counter() - start)

    return method


#: Pooled PCA is the ceiling of anything federated; a random subspace shows what standardising alone is worth.
BASELINES: dict[str, Method] = {
    "flag everything": lambda traffic, seed: FittedScores(((np.zeros(len(traffic.y_test)), -1.0),)),
    "random subspace": by_residual(
        lambda Z, seed: orthonormalize(np.random.default_rng(seed).standard_normal((Z.shape[1], RANK)))
    ),
    "pooled PCA": by_residual(lambda Z, seed: PCA(RANK, svd_solver="covariance_eigh").fit(Z).components_.T),
    "self-learning PCA": federated(lambda seed: LocalPCADetector(RANK, quantile=QUANTILE)),
}
BEYOND: dict[str, Method] = {
    "exact, Mahalanobis": fedpca(distance="mahalanobis"),
    "exact, combined": fedpca(distance="combined"),
}


def principal(rounds: int = ROUNDS) -> dict[str, Method]:
    """Return the exact method, and FedPE and FedPG as written and corrected, after some rounds."""
    found = {"exact (covariance)": fedpca()}
    for name in ("FedPE", "FedPG"):
        for variant in ("paper", "corrected"):
            options: dict[str, Any] = {
                "participation": PARTICIPATION,
                "max_rounds": rounds,
                "tol": 1e-9,
                "variant": variant,
            }
            found[f"{name}, {variant}"] = fedpca(solver=name.lower(), **options)
    return found


def deep(**options: Any) -> dict[str, Method]:
    """Return the deep baselines; `options` are those of both detectors."""

    def method(detector: Any, layers: int) -> Method:
        return federated(lambda seed: detector(layers=layers, random_state=seed, **options))

    kinds = {"FedAE": FedAutoencoderDetector, "FedBiGAN": FedBiGANDetector}
    return {f"{name}, {n} layers": method(kind, n) for name, kind in kinds.items() for n in (2, 4)}


#: Methods that take minutes.
SLOW = tuple(deep())


def bytes_per_round(record: RunRecord) -> tuple[str, float]:
    """Return the training step that sends most bytes, and what one call of it carries per site, both ways."""
    up: dict[str, int] = defaultdict(int)
    both: dict[str, list[int]] = defaultdict(list)
    for call in record.calls:
        if call.step not in QUANTILE_STEPS:
            up[call.step] += sum(call.bytes_up.values())
            both[call.step].extend(call.bytes_down[site] + call.bytes_up[site] for site in call.answered)
    name = max(up, key=lambda step: up[step])
    return name.rsplit(".", 1)[-1], float(np.mean(both[name]))

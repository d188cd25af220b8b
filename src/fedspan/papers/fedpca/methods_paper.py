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
from fedspan.federation import RunRecord
from fedspan.linalg import orthonormalize
from fedspan.papers.fedpca.detection_measures_paper import Scores
from fedspan.papers.fedpca.traffic_paper import Traffic

RANK, QUANTILE = 10, 0.95
PARTICIPATION = 0.1
#: Methods that take minutes.
SLOW = ("FedAE, 2 layers", "FedAE, 4 layers", "FedBiGAN, 2 layers", "FedBiGAN, 4 layers")
#: Rounds of FedPE and FedPG in the tables, with a tenth of the sites each.
ROUNDS = 1000


@dataclass(frozen=True)
class Fitted:
    """What a method makes of the test rows; several scores where several sites have a detector each."""

    scores: tuple[tuple[Scores, float], ...]
    seconds: float = 0.0
    model: Any = None

    @property
    def record(self) -> RunRecord | None:
        """The record of the run, where there was one."""
        return getattr(self.model, "run_", None)


Method = Callable[[Traffic, int], Fitted]


def federated(model: Callable[[int], Any]) -> Method:
    """Return the method that fits what `model` makes of a seed on the federation of the training rows."""

    def method(traffic: Traffic, seed: int) -> Fitted:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the rounds are given; their gaps have figures
            fitted = model(seed).fit(traffic.federation(seed))
        seconds = time.perf_counter() - start
        return Fitted(((-fitted.score_samples(traffic.X_test), -fitted.offset_),), seconds, fitted)

    return method


def fedpca(rank: int = RANK, score: str = "residual", solver: str = "covariance", **options: Any) -> Method:
    """Return FedPCADetector with a solver; `options` are those of the solver."""
    return federated(
        lambda seed: FedPCADetector(
            rank, solver=solver, score=score, quantile=QUANTILE, solver_options=options, random_state=seed
        )
    )


def admm(solver: str, rounds: int, **options: Any) -> Method:
    """Return FedPE or FedPG with a tenth of the sites in each round."""
    return fedpca(solver=solver, participation=PARTICIPATION, max_rounds=rounds, tol=1e-9, **options)


def self_learning(traffic: Traffic, seed: int) -> Fitted:
    """Every tenth site alone: its own scaler, subspace and threshold."""
    start = time.perf_counter()
    model = LocalPCADetector(RANK, quantile=QUANTILE).fit(traffic.federation(seed))
    seconds = time.perf_counter() - start
    some = model.sites_[:: max(1, len(model.sites_) // 10)]
    return Fitted(tuple((-model.score_samples(traffic.X_test, site), -model.offset_) for site in some), seconds, model)


def pooled(traffic: Traffic, seed: int) -> Fitted:
    """scikit-learn on the pooled rows: the ceiling of anything that is federated."""
    start = time.perf_counter()
    scaler = StandardScaler().fit(traffic.X_train)
    basis = PCA(RANK, svd_solver="covariance_eigh").fit(scaler.transform(traffic.X_train)).components_.T
    return _by_residual(traffic, scaler, basis, start)


def random_subspace(traffic: Traffic, seed: int) -> Fitted:
    """Score by a subspace that has seen no data: what standardising alone is worth."""
    start = time.perf_counter()
    scaler = StandardScaler().fit(traffic.X_train)
    basis = orthonormalize(np.random.default_rng(seed).standard_normal((traffic.X_train.shape[1], RANK)))
    return _by_residual(traffic, scaler, basis, start)


def flag_everything(traffic: Traffic, seed: int) -> Fitted:
    """Every row is an alarm."""
    return Fitted(((np.zeros(len(traffic.y_test)), -1.0),))


def _by_residual(traffic: Traffic, scaler: StandardScaler, basis: NDArray[np.float64], start: float) -> Fitted:
    def anomaly(X: NDArray[np.float64]) -> Scores:
        Z = scaler.transform(X)
        R = Z - (Z @ basis) @ basis.T
        return np.asarray(np.vecdot(R, R))

    threshold = float(np.quantile(anomaly(traffic.X_train), QUANTILE, method="inverted_cdf"))
    return Fitted(((anomaly(traffic.X_test), threshold),), time.perf_counter() - start)


BASELINES: dict[str, Method] = {
    "flag everything": flag_everything,
    "random subspace": random_subspace,
    "pooled PCA": pooled,
    "self-learning PCA": self_learning,
}
BEYOND: dict[str, Method] = {
    "exact, Mahalanobis": fedpca(score="mahalanobis"),
    "exact, combined": fedpca(score="combined"),
}


def principal(rounds: int = ROUNDS) -> dict[str, Method]:
    """Return the exact method, and FedPE and FedPG as written and corrected, after so many rounds."""
    return {
        "exact (covariance)": fedpca(),
        "FedPE, paper": admm("fedpe", rounds, variant="paper"),
        "FedPE, corrected": admm("fedpe", rounds),
        "FedPG, paper": admm("fedpg", rounds, variant="paper"),
        "FedPG, corrected": admm("fedpg", rounds),
    }


def deep(**options: Any) -> dict[str, Method]:
    """Return the deep baselines; `options` are those of both detectors."""
    return {
        "FedAE, 2 layers": federated(lambda s: FedAutoencoderDetector(layers=2, random_state=s, **options)),
        "FedAE, 4 layers": federated(lambda s: FedAutoencoderDetector(layers=4, random_state=s, **options)),
        "FedBiGAN, 2 layers": federated(lambda s: FedBiGANDetector(layers=2, random_state=s, **options)),
        "FedBiGAN, 4 layers": federated(lambda s: FedBiGANDetector(layers=4, random_state=s, **options)),
    }


def bytes_per_round(record: RunRecord) -> tuple[str, float]:
    """Return the training step that sends most bytes, and what one call of it carries per site, both ways."""
    up: dict[str, int] = defaultdict(int)
    both: dict[str, list[int]] = defaultdict(list)
    for call in record.calls:
        if ".quantiles." not in call.step:  # the threshold's
            up[call.step] += sum(call.bytes_up.values())
            both[call.step].extend(call.bytes_down[site] + call.bytes_up[site] for site in call.answered)
    name = max(up, key=lambda step: up[step])
    return name.rsplit(".", 1)[-1], float(np.mean(both[name]))

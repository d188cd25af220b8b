"""Detectors where rows are private or sites malicious: AUC and false alarms against epsilon, and under attacks.

Rows of 10 columns around four centres, each with a covariance of its own, at ten sites. Anomalies are rows anywhere in
the box, rows with more noise, and rows whose columns come from different rows, a third each. Public bounds are the box
from -8 to 8; delta is 1e-6, the unit one row of one site. Three of the ten sites are malicious: they change what they
send, or have rows like the anomalies, which a detector then would learn as normal. Means of two seeds;
``FEDSPAN_DP_SEEDS`` sets their number.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

import fedspan as fs
from fedspan import attacks
from fedspan.aggregation import CoordinateMedian, GeometricMedian

SEEDS = int(os.environ.get("FEDSPAN_DP_SEEDS", "2"))
EPSILONS = (None, 0.3, 1.0, 3.0, 10.0)
ROWS, COLUMNS, SITES, DELTA = 5000, 10, 10, 1e-6
MALICIOUS = ("0", "1", "2")
ATTACKS: dict[str, Any] = {
    "none": None,
    "rows like anomalies": "rows",
    "signs flipped": attacks.SignFlip(),
    "ten times reversed": attacks.ScaledReverse(10.0),
    "a little is enough": attacks.ALittleIsEnough(1.5),
    "noise": attacks.RandomNoise(100.0),
}


def tables(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows to train on, rows like anomalies, and rows and labels to test on."""
    fixed, rng = np.random.default_rng(5), np.random.default_rng(seed)
    centres = fixed.uniform(-3.0, 3.0, size=(4, COLUMNS))
    mix = fixed.normal(size=(4, COLUMNS, COLUMNS)) / np.sqrt(COLUMNS)

    def usual(n: int) -> np.ndarray:
        group = rng.integers(4, size=n)
        return centres[group] + np.einsum("ni,nij->nj", rng.normal(size=(n, COLUMNS)), mix[group])

    def odd(n: int) -> np.ndarray:
        anywhere, noisy = rng.uniform(-5.0, 5.0, size=(n, COLUMNS)), usual(n) + rng.normal(size=(n, COLUMNS))
        mixed = np.column_stack([rng.permutation(column) for column in usual(n).T])
        return np.stack([anywhere, noisy, mixed])[rng.integers(3, size=n), np.arange(n)]

    return usual(ROWS), odd(ROWS), np.concatenate([usual(2000), odd(1000)]), np.repeat([0, 1], [2000, 1000])


def measured(detector: Any, fed: fs.LocalFederation, test: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return the AUC, and the share of false alarms."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detector.fit(fed)
    scores = -detector.score_samples(test)
    return float(roc_auc_score(labels, scores)), float(np.mean(scores[labels == 0] > -detector.offset_))


def private(kind: Any, epsilon: float | None, secure: bool, seed: int) -> tuple[float, float]:
    X, _, test, labels = tables(seed)
    policy = fs.Policy(secure_sum=secure)
    fed = fs.federate(X, sites=np.arange(ROWS) % SITES, policy=policy, seed=seed)
    bounds = {"lower": -8.0, "upper": 8.0}
    privacy = None if epsilon is None else fs.privacy.GaussianMoments(epsilon, DELTA, **bounds)
    return measured(kind(privacy=privacy, random_state=seed), fed, test, labels)


def attacked(kind: Any, aggregator: Any, attack: Any, seed: int) -> tuple[float, float]:
    X, odd, test, labels = tables(seed)
    sites = (np.arange(ROWS) % SITES).astype(str)
    if isinstance(attack, str):
        bad = np.isin(sites, MALICIOUS)
        X[bad] = odd[bad]
    fed = fs.federate(X, sites=sites, seed=seed)
    if attack is not None and not isinstance(attack, str):
        fed = fed.corrupt(attack, sites=list(MALICIOUS))
    return measured(kind(aggregator=aggregator, random_state=seed), fed, test, labels)


def mean(found: list[tuple[float, float]]) -> str:
    auc, alarms = np.mean(found, axis=0)
    return f"AUC {auc:.3f}, false alarms {100 * alarms:.1f} %"


def main() -> None:
    kinds = (fs.FedIsolationDetector, fs.FedCentersDetector, fs.FedPCADetector, fs.FedAnomalyDetector)
    for secure in (True, False):
        for epsilon in EPSILONS if secure else EPSILONS[2:]:  # of fewer rows the noise hides all variance
            for kind in kinds if secure else kinds[-1:]:
                text = mean([private(kind, epsilon, secure, seed) for seed in range(SEEDS)])
                print(f"epsilon {epsilon}, {'secure' if secure else 'plain'} sums, {kind.__name__}: {text}", flush=True)
    rules = (CoordinateMedian(), CoordinateMedian(), GeometricMedian(), GeometricMedian())
    for name, attack in ATTACKS.items():
        for kind, rule in zip(kinds, rules, strict=True):
            for used in (None, rule):
                text = mean([attacked(kind, used, attack, seed) for seed in range(SEEDS)])
                print(f"3 of 10 sites, {name}: {kind.__name__}({used or ''}): {text}", flush=True)


if __name__ == "__main__":
    main()

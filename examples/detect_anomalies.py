"""Detect anomalies across sites: learn what normal rows look like, set an honest threshold, and explain an alarm.

The rows are scikit-learn's breast cancer table: benign rows are "normal" and are spread over eight clinics, malignant
rows are the anomalies that no clinic has trained on. Run it: ``python examples/detect_anomalies.py``.
"""

from __future__ import annotations

import numpy as np
from sklearn.metrics import roc_auc_score

import fedspan as fs
from fedspan.datasets import anomaly_split, load_breast_cancer, split_dirichlet


def main(seeds: int = 5) -> dict[str, float]:
    """Print AUC, alarm rates and the explanation of one alarm; return the mean AUC of each score."""
    table = load_breast_cancer()
    table.target = 1 - table.target  # 0 is benign
    areas: dict[str, list[float]] = {}
    rates: dict[str, list[tuple[float, float]]] = {}
    for seed in range(seeds):
        split = anomaly_split(table, 250, seed=seed)
        clinic = split_dirichlet(np.zeros(250, dtype=int), 8, alpha=2.0, seed=seed)  # unequal sizes
        for score in ("residual", "mahalanobis", "combined"):
            detector = fs.FedPCADetector(5, score=score, quantile=0.9).fit(split.X_train, sites=clinic)
            areas.setdefault(score, []).append(roc_auc_score(split.y_test, -detector.score_samples(split.X_test)))
            alarm = detector.predict(split.X_test) == -1
            rates.setdefault(score, []).append((alarm[split.y_test == 0].mean(), alarm[split.y_test == 1].mean()))
    print(f"{seeds} seeds, 250 benign rows in 8 clinics train; threshold: the 0.9 quantile of the training scores")
    for score, found in areas.items():
        false, true = np.mean(rates[score], axis=0)
        print(f"{score:12} AUC {np.mean(found):.3f}   alarms: {false:.0%} of benign, {true:.0%} of malignant rows")

    alarms = np.flatnonzero((detector.predict(split.X_test) == -1) & (split.y_test == 1))
    print("\nWhy the first malignant row raised an alarm (share of its score):")
    names = table.feature_names
    shares = detector.explain(split.X_test[alarms[0]])
    for j in np.argsort(-shares)[:4]:
        print(f"  {names[j]:24} {shares[j]:.0%}")
    return {score: float(np.mean(found)) for score, found in areas.items()}


if __name__ == "__main__":
    main()

"""
Detect anomalies across clinics
===============================

Learn what normal rows look like, set an honest threshold, and explain an alarm.

The rows are scikit-learn's breast cancer table: benign rows are "normal" and are spread over eight clinics, malignant
rows are the anomalies that no clinic has trained on. Run it: ``python examples/detect_anomalies.py``.
"""

from __future__ import annotations

import numpy as np
from sklearn.metrics import roc_auc_score

import fedspan as fs
from fedspan.datasets import anomaly_split, load_breast_cancer, split_dirichlet

try:
    import matplotlib.pyplot as plt
except ImportError:  # the numbers need no pictures
    plt = None


def main(seeds: int = 5) -> dict[str, float]:
    """Print AUC, alarm rates and the explanation of one alarm; return the mean AUC of each score."""
    table = load_breast_cancer()
    table.target = 1 - table.target  # 0 is benign
    areas: dict[str, list[float]] = {}
    rates: dict[str, list[tuple[float, float]]] = {}
    for seed in range(seeds):
        split = anomaly_split(table, 250, seed=seed)
        clinic = split_dirichlet(np.zeros(250, dtype=int), 8, alpha=2.0, seed=seed)  # unequal sizes
        for distance in ("residual", "mahalanobis", "combined"):
            detector = fs.FedPCADetector(5, distance=distance, quantile=0.9).fit(split.X_train, sites=clinic)
            areas.setdefault(distance, []).append(roc_auc_score(split.y_test, -detector.score_samples(split.X_test)))
            alarm = detector.predict(split.X_test) == -1
            rates.setdefault(distance, []).append((alarm[split.y_test == 0].mean(), alarm[split.y_test == 1].mean()))
    print(f"{seeds} seeds, 250 benign rows in 8 clinics train; threshold: the 0.9 quantile of the training scores")
    for distance, found in areas.items():
        false, true = np.mean(rates[distance], axis=0)
        print(f"{distance:12} AUC {np.mean(found):.3f}   alarms: {false:.0%} of benign, {true:.0%} of malignant rows")

    alarms = np.flatnonzero((detector.predict(split.X_test) == -1) & (split.y_test == 1))
    print("\nWhy the first malignant row raised an alarm (share of its score):")
    names = table.feature_names
    shares = detector.explain(split.X_test[alarms[0]])
    for j in np.argsort(-shares)[:4]:
        print(f"  {names[j]:24} {shares[j]:.0%}")
    if plt:
        draw(detector, split, names, shares)
    return {distance: float(np.mean(found)) for distance, found in areas.items()}


def draw(detector: fs.FedPCADetector, split: fs.datasets.Bunch, names: list[str], shares: np.ndarray) -> None:
    """Draw the scores of unseen rows with the threshold, and the shares of the alarm."""
    _, (scores, why) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    value = np.log10(-detector.score_samples(split.X_test))
    edges = np.linspace(value.min(), value.max(), 40)
    for kind, name in ((0, "benign"), (1, "malignant")):
        scores.hist(value[split.y_test == kind], edges, alpha=0.6, density=True, label=name)
    scores.axvline(np.log10(-detector.offset_), color="k", linestyle="--", label="threshold, from training scores")
    scores.set(xlabel="log10 of the score", yticks=[], title="unseen rows")
    scores.legend(frameon=False)
    top = np.argsort(-shares)[:8][::-1]
    why.barh([names[j] for j in top], shares[top])
    why.set(xlabel="share of the score", title="why one row raised an alarm")
    plt.show()


if __name__ == "__main__":
    main()

"""
Anomalies in network traffic, and why
=====================================

Twenty gateways know normal traffic only. Together they learn what it looks like, each sending sums alone, and then
tell attacks that none of them has seen, with the columns that gave an alarm away.

The rows are those of TON-IoT where the data folder has them (``FEDSPAN_DATA``); otherwise they are made up, which
shows how it is done and measures nothing. ``fedspan reproduce fedpca`` has the full tables, also those of shifted
splits, where thresholds do not keep their promise.
"""

from __future__ import annotations

import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

import fedspan as fs
from fedspan.datasets import Bunch, anomaly_split, load_ton_iot, split_iid

try:
    import matplotlib.pyplot as plt
except ImportError:  # the numbers need no pictures
    plt = None


# %%
# Traffic: normal rows to train on; other normal rows, and attacks, to test. Counters are heavy-tailed, hence the
# signed logarithm.


def traffic() -> tuple[str, Bunch, list[str]]:
    """Return a name, the split and the names of the columns."""
    try:
        name, table = "TON-IoT", load_ton_iot()
    except fs.errors.DataMissingError:
        name, table = "made-up traffic", made_up()
    split = anomaly_split(table, 10_000, seed=0)
    shown = np.random.default_rng(0).permutation(len(split.X_test))[:20_000]
    train, test = (np.sign(X) * np.log1p(np.abs(X)) for X in (split.X_train, split.X_test[shown]))
    return name, Bunch(X_train=train, X_test=test, y_test=split.y_test[shown]), list(table.feature_names)


def made_up() -> Bunch:
    """Return rows whose columns hang together, and attacks for which they do not."""
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(size=(20_000, 3)) @ rng.normal(size=(3, 12)) + 0.3 * rng.normal(size=(20_000, 12)))
    X[15_000:, :4] = np.exp(rng.normal(size=(5_000, 4)))
    return Bunch(data=X, target=np.arange(20_000) // 15_000, feature_names=[f"counter {j}" for j in range(12)])


# %%
# Fit at the gateways; the threshold is the 0.95 quantile of the training scores, found by counts that are added up.


def main() -> None:
    name, split, columns = traffic()
    gateway = split_iid(len(split.X_train), 20, seed=0)
    scores = {}
    for distance in ("residual", "mahalanobis"):
        detector = fs.FedPCADetector(10, distance=distance, quantile=0.95).fit(split.X_train, sites=gateway)
        scores[distance] = -detector.score_samples(split.X_test)
        alarm = detector.predict(split.X_test) == -1
        false, true = alarm[split.y_test == 0].mean(), alarm[split.y_test == 1].mean()
        area = roc_auc_score(split.y_test, scores[distance])
        print(f"{name}, {distance:12} AUC {area:.3f}, alarms: {false:.1%} of normal rows, {true:.1%} of attacks")
    row = split.X_test[np.flatnonzero(alarm & (split.y_test == 1))[0]]
    shares = detector.explain(row)
    print(
        "the first attack that raised an alarm:",
        ", ".join(f"{columns[j]} {shares[j]:.0%}" for j in np.argsort(-shares)[:4]),
    )
    if plt:
        draw(scores, split.y_test, columns, shares)


def draw(scores: dict[str, np.ndarray], y: np.ndarray, columns: list[str], shares: np.ndarray) -> None:
    """Draw ROC curves, and the shares of the alarm."""
    _, (curves, why) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for name, values in scores.items():
        curves.plot(*roc_curve(y, values)[:2], label=f"{name}, AUC {roc_auc_score(y, values):.3f}")
    curves.axvline(0.05, color="k", linestyle="--", label="false alarms asked for")
    curves.set(xlabel="alarms among normal rows", ylabel="alarms among attacks")
    curves.legend(frameon=False, loc="lower right")
    top = np.argsort(-shares)[:8][::-1]
    why.barh([columns[j] for j in top], shares[top])
    why.set(xlabel="share of the score", title="why one row raised an alarm")
    plt.show()


if __name__ == "__main__":
    main()

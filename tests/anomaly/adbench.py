"""Detectors on tables of ADBench: ``python -m tests.anomaly.adbench`` prints the means that docs/anomalies.md quotes.

Four sites, 70 % of the rows to train on: all of them ("mixed"), or the normal ones alone ("normal"). With ``--splits``:
the false alarms in the smallest tables, over many splits. With ``--batches``: what learning on loses against one fit.
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.metrics import roc_auc_score

import fedspan as fs
from tests.real_data import real_file

SMALL = ("14_glass", "18_Ionosphere", "40_vowels", "43_WDBC", "6_cardio")
ALL = (*SMALL, "27_PageBlocks", "2_annthyroid", "31_satimage-2")
KINDS = (fs.FedAnomalyDetector, fs.FedCentersDetector, fs.FedIsolationDetector, fs.FedPCADetector)


def measured(kind, name, seed, normal, first=None):
    """Return the AUC on test rows, and the false alarms in points.

    With `first` a detector learns on: from this number of rows, then from the others in 25 batches.
    """
    with np.load(real_file(f"adbench/{name}.npz"), allow_pickle=False) as file:
        X, y = file["X"].astype(np.float64), file["y"].astype(int)
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = np.split(order, [int(0.7 * len(X))])
    if normal:
        train = train[y[train] == 0]
    detector = kind(random_state=seed)
    if first is None:
        detector.fit(X[train], sites=np.arange(len(train)) % 4)
    else:
        for number, part in enumerate([train[:first], *np.array_split(train[first:], 25)]):
            detector.partial_fit(X[part], sites=np.arange(len(part)) % 4, batch=str(number))
    scores = -detector.score_samples(X[test])
    return roc_auc_score(y[test], scores), 100.0 * np.mean(scores[y[test] == 0] > -detector.offset_)


def means(kind, names, seeds, normal, first=None):
    """Return the mean AUC of all tables, and the false alarms of each, as means over the seeds."""
    found = np.array([[measured(kind, name, seed, normal, first) for seed in seeds] for name in names])
    return found[:, :, 0].mean(), found[:, :, 1].mean(axis=1)


def over_splits(kind, name, splits=40):
    """Return the mean of the false alarms over many splits, and its deviation."""
    found = [measured(kind, name, seed, normal=True)[1] for seed in range(splits)]
    return np.mean(found), np.std(found) / np.sqrt(splits)


def ideal(name, draws=2000):
    """Return how often three splits have false alarms within 2 points, if the quantile is that of the left-out scores.

    That is what any scores give that do not depend on whether a row trained.
    """
    with np.load(real_file(f"adbench/{name}.npz"), allow_pickle=False) as file:
        n = int(np.sum(file["y"] == 0))
    m, rng = round(0.7 * n), np.random.default_rng(0)
    found = np.empty((draws, 3))
    for own in found:
        scores = rng.random(n)
        for split in range(3):
            order = rng.permutation(n)
            threshold = np.sort(scores[order[:m]])[int(np.ceil(0.95 * (m + 1))) - 1]
            own[split] = np.mean(scores[order[m:]] > threshold)
    return np.mean(np.abs(found.mean(axis=1) - 0.05) <= 0.02)


if __name__ == "__main__" and "--splits" in sys.argv:
    for name in SMALL:
        print(f"{name}: three splits of an ideal detector are within 2 points in {ideal(name):.0%}", flush=True)
        print(
            name, *("{} {:.1f} +- {:.1f}".format(kind.__name__, *over_splits(kind, name)) for kind in KINDS), flush=True
        )
elif __name__ == "__main__" and "--batches" in sys.argv:
    for kind in KINDS:
        for first in (None, 20, 100):
            auc, alarms = means(kind, ALL, (0,), True, first)
            what = "one fit" if first is None else f"{first} rows, then 25 batches"
            print(f"{kind.__name__:22} {what:26} AUC {auc:.3f}", alarms.round(1), flush=True)
elif __name__ == "__main__":
    for kind in KINDS:
        for normal in (False, True):
            auc, alarms = means(kind, ALL, (0, 1, 2), normal)
            print(f"{kind.__name__:22} {'normal' if normal else 'mixed':7} AUC {auc:.3f}", alarms.round(1), flush=True)

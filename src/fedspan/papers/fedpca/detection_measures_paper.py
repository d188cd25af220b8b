"""Measures of detection: without a threshold, at an honest one, and at the best one on the test rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """Shares of a confusion table in which an alarm is a positive."""

    accuracy: float
    precision: float
    recall: float
    false_positive_rate: float

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    @property
    def false_negative_rate(self) -> float:
        """Share of the attacks that raise no alarm."""
        return 1.0 - self.recall


@dataclass(frozen=True)
class Detection:
    """What a method found: areas under the curves, and rates at two thresholds.

    `honest` is at the threshold learned from training scores; `best` at the one with the highest accuracy on the test
    rows themselves, which has therefore seen their labels.
    """

    auc: float
    average_precision: float
    honest: Rates
    best: Rates


def rates(attack: NDArray[Any], alarm: NDArray[np.bool_]) -> Rates:
    """Return the rates of alarms (n,) against the truth (n,).

    Examples
    --------
    >>> found = rates(np.array([0, 0, 1, 1]), np.array([False, True, True, True]))
    >>> found.accuracy, found.recall, found.false_positive_rate
    (0.75, 1.0, 0.5)
    """
    bad = np.asarray(attack, dtype=bool)
    hits, alarms = int(np.sum(alarm & bad)), int(np.sum(alarm))
    return Rates(
        accuracy=float(np.mean(alarm == bad)),
        precision=hits / alarms if alarms else 0.0,
        recall=hits / int(bad.sum()),
        false_positive_rate=(alarms - hits) / int(np.sum(~bad)),
    )


def detection(attack: NDArray[Any], anomaly: Scores, threshold: float) -> Detection:
    """Measure anomaly scores (n,), higher for stranger rows; what is above `threshold` is an alarm."""
    return Detection(
        float(roc_auc_score(attack, anomaly)),
        float(average_precision_score(attack, anomaly)),
        rates(attack, anomaly > threshold),
        rates(attack, anomaly > most_accurate_threshold(attack, anomaly)),
    )


def most_accurate_threshold(attack: NDArray[Any], anomaly: Scores) -> float:
    """Return the threshold with the highest accuracy on these very labels: a yardstick, never a detector's own.

    Examples
    --------
    >>> most_accurate_threshold(np.array([0, 0, 1, 1]), np.array([1.0, 2.0, 3.0, 4.0]))
    2.0
    """
    order = np.argsort(anomaly, kind="stable")
    ranked, bad = anomaly[order], np.asarray(attack, dtype=bool)[order]
    # Right with the i lowest called normal: their normal rows, and the attacks above them.
    right = np.concatenate([[0], np.cumsum(~bad)]) + bad.sum() - np.concatenate([[0], np.cumsum(bad)])
    possible = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])  # equal scores fall on one side
    i = int(np.argmax(np.where(possible, right, -1)))
    return float(ranked[i - 1]) if i else -np.inf

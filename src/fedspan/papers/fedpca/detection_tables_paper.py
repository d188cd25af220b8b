"""The detection tables, and the curves behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.progress import track
from sklearn.metrics import precision_recall_curve, roc_curve

from fedspan.papers.fedpca.detection_measures_paper import Detection, Scores, detection
from fedspan.papers.fedpca.methods_paper import QUANTILE, RANK, SLOW, Fitted, Method
from fedspan.papers.fedpca.traffic_paper import SITES, Traffic
from fedspan.papers.results_paper import Bars, Curves, Table, spread

#: Table I of the paper: accuracy, precision, recall, F1, FNR in percent.
PAPER: Mapping[str, Mapping[str, tuple[float, float, float, float, float]]] = {
    "UNSW-NB15": {
        "self-learning PCA": (63.80, 83.19, 59.94, 69.68, 40.06),
        "FedAE, 2 layers": (80.88, 80.66, 95.27, 87.36, 4.73),
        "FedAE, 4 layers": (82.80, 83.45, 93.80, 88.32, 6.20),
        "FedBiGAN, 2 layers": (81.21, 83.04, 91.63, 87.12, 8.36),
        "FedBiGAN, 4 layers": (81.59, 81.98, 94.16, 87.65, 5.84),
        "FedPE, paper": (82.15, 81.06, 95.14, 87.53, 6.25),
        "FedPG, paper": (81.95, 82.82, 93.36, 87.77, 6.63),
    },
    "TON-IoT": {
        "self-learning PCA": (51.81, 86.79, 51.07, 64.30, 48.93),
        "FedAE, 2 layers": (87.28, 93.52, 91.36, 92.43, 8.64),
        "FedAE, 4 layers": (89.09, 94.68, 92.34, 93.50, 7.66),
        "FedBiGAN, 2 layers": (88.53, 93.98, 92.42, 93.19, 7.57),
        "FedBiGAN, 4 layers": (89.08, 95.05, 91.93, 93.47, 8.07),
        "FedPE, paper": (87.06, 89.82, 94.94, 92.31, 6.13),
        "FedPG, paper": (88.94, 92.79, 94.32, 93.55, 5.68),
    },
}
COLUMNS = [
    *("method", "AUC", "AP", "acc", "prec", "recall", "F1", "FNR", "FPR"),
    *("acc*", "prec*", "recall*", "F1*", "FPR*", "paper acc", "paper F1"),
]


@dataclass
class Found:
    """What every method found on one kind of traffic: one detection a seed, and the last seed's fit."""

    traffic: Traffic
    detections: dict[str, list[Detection]] = field(default_factory=dict)
    fitted: dict[str, Fitted] = field(default_factory=dict)


def find(split: Callable[[int], Traffic], methods: Mapping[str, Method], seeds: Sequence[int]) -> Found:
    """Fit every method on the split of every seed, the `SLOW` ones on that of the last seed alone, and measure it."""
    found = Found(split(seeds[0]), {name: [] for name in methods})
    for seed in track(seeds, description=found.traffic.name, transient=True):
        found.traffic = split(seed)
        for name, method in methods.items():
            if name in SLOW and seed != seeds[-1]:
                continue
            fitted = method(found.traffic, seed)
            measured = [detection(found.traffic.y_test, *score) for score in fitted.scores]
            found.detections[name].extend(measured)
            found.fitted[name] = fitted
    return found


def detection_table(found: Found, title: str, remark: str, *, beside: bool = True) -> Table:
    """Return the table of all methods, in percent but for the areas; `beside` puts the paper's numbers there."""
    paper = PAPER[found.traffic.name.split(",")[0]] if beside else {}
    rows = [[*detection_row(name, several), *_theirs(paper.get(name))] for name, several in found.detections.items()]
    attacks = float(np.mean(found.traffic.y_test))
    if any(name in SLOW for name in found.detections):
        remark += " FedAE and FedBiGAN, which take most of the time: the last of the seeds alone."
    return Table(
        title,
        COLUMNS if beside else COLUMNS[:-2],
        rows if beside else [row[:-2] for row in rows],
        f"{remark} {attacks:.1%} of the test rows are attacks. The columns without a star use the {QUANTILE} "
        "quantile of the training scores as the threshold. The columns with a star use the threshold of the highest "
        "accuracy on the test labels: they have seen them, as the paper's numbers have. "
        f"Self-learning: the mean over every tenth site alone. PCA has rank {RANK}, {SITES} sites.",
    )


def detection_row(name: str, several: Sequence[Detection]) -> list[str]:
    """Return the row of a method: means over seeds, in percent but for the areas."""

    def mean(read: Callable[[Detection], float]) -> str:
        return f"{100 * float(np.mean([read(one) for one in several])):.1f}"

    areas = [spread([one.auc for one in several]), f"{np.mean([one.average_precision for one in several]):.3f}"]
    honest = [
        mean(lambda one: one.honest.accuracy),
        mean(lambda one: one.honest.precision),
        mean(lambda one: one.honest.recall),
        mean(lambda one: one.honest.f1),
        mean(lambda one: one.honest.false_negative_rate),
        mean(lambda one: one.honest.false_positive_rate),
    ]
    best = [
        mean(lambda one: one.best.accuracy),
        mean(lambda one: one.best.precision),
        mean(lambda one: one.best.recall),
        mean(lambda one: one.best.f1),
        mean(lambda one: one.best.false_positive_rate),
    ]
    return [name, *areas, *honest, *best]


def _theirs(paper: tuple[float, ...] | None) -> list[str]:
    return ["", ""] if paper is None else [f"{paper[0]:.1f}", f"{paper[3]:.1f}"]


def curves(found: Found, names: Sequence[str], remark: str) -> list[Curves]:
    """Return the ROC and the precision-recall curves of some methods."""
    roc: dict[str, tuple[Scores, Scores]] = {}
    precise: dict[str, tuple[Scores, Scores]] = {}
    for name in names:
        anomaly, _ = found.fitted[name].scores[0]
        false, true, _ = roc_curve(found.traffic.y_test, anomaly)
        precision, recall, _ = precision_recall_curve(found.traffic.y_test, anomaly)
        roc[name] = false, true
        precise[name] = recall[::-1], precision[::-1]
    at = (0.01, 0.05, 0.1, 0.2, 0.5, 0.9)
    return [
        Curves(f"{found.traffic.name}: true against false positive rate", "false positive rate", roc, remark, at),
        Curves(f"{found.traffic.name}: precision against recall", "recall", precise, remark, at),
    ]


def class_distribution(traffic: Traffic) -> Bars:
    """Return how many test rows of each kind there are, the most frequent first."""
    kinds, counts = np.unique(traffic.kinds, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    names = np.char.lower(kinds.astype(str))
    return Bars(
        f"{traffic.name}: kinds of traffic in the test set",
        "kind",
        {str(names[i]): float(counts[i]) for i in order},
        f"{len(traffic.kinds):,} rows, seed 0.",
    )

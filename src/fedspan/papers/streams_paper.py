"""Detectors on streams: rows in windows, fitted once, fitted again, learning on, and with a threshold that follows.

Each window is scored by the model of the windows before. The model then learns from its normal rows, as if an operator
had confirmed the alarms. Neither UNSW-NB15 nor TON-IoT has times: the first is taken in the order of its file, the
second host by host. The generated stream has a drift whose beginning is known.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track
from sklearn.metrics import f1_score, roc_auc_score

from fedspan.aggregation import GeometricMedian
from fedspan.anomaly.drift_monitor import DriftMonitor
from fedspan.anomaly.pca_detector import FedPCADetector
from fedspan.arrays import Matrix
from fedspan.datasets import load_ton_iot, load_unsw_nb15
from fedspan.engines.local.embedded import federate
from fedspan.federation import Federation
from fedspan.papers.fedpca.traffic_paper import signed_log
from fedspan.papers.results_paper import Chart, Results, Table, counted

Truth = NDArray[np.int64]

SITES, ROWS, WINDOWS, BEGIN = 4, 1000, 20, 8
COLUMNS = 8
DECAY = 0.8
_ANOMALIES = 0.05
_DEGREES = 4.0


@dataclass(frozen=True)
class StreamWindow:
    """Rows of some sites, and which of them are anomalies."""

    X: Matrix
    y: Truth
    sites: NDArray[Any]

    def normal(self) -> Federation:
        """Return the federation of the normal rows."""
        own = self.y == 0
        return federate(self.X[own], sites=self.sites[own])


Stream = list[StreamWindow]
Shift = Callable[[Matrix, int], Matrix]


def _unit(X: Matrix, since: int) -> Matrix:
    return X * np.where(np.arange(X.shape[1]) == 2, 10.0, 1.0)


def _service(X: Matrix, since: int) -> Matrix:
    X = X.copy()
    X[::3, 5] += 4.0
    return X


def _rotation(X: Matrix, since: int) -> Matrix:
    angle = np.deg2rad(_DEGREES * since)
    turn = np.eye(X.shape[1])
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return np.asarray(X @ turn)


#: What happens to the rows from window `BEGIN` on; the second argument counts the windows since.
SHIFTS: dict[str, Shift | None] = {
    "no drift": None,
    "a column in another unit": _unit,
    "a new service in a third of the rows": _service,
    "a rotation by 4 degrees a window": _rotation,
}


def generated(shift: Shift | None, seed: int, windows: int = WINDOWS) -> Stream:
    """Return a stream of correlated rows, of which 5 % are anomalies off their common directions."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(3, COLUMNS))
    found = []
    for number in range(windows):
        n = SITES * ROWS
        X = rng.normal(size=(n, 3)) @ mixing + 0.3 * rng.normal(size=(n, COLUMNS))
        y = (rng.random(n) < _ANOMALIES).astype(np.int64)
        X[y == 1] += rng.normal(size=(int(y.sum()), COLUMNS))
        if shift is not None and number >= BEGIN:
            X = shift(X, number - BEGIN + 1)
        found.append(StreamWindow(X, y, np.arange(n) % SITES))
    return found


def in_file_order(seed: int) -> Stream:
    """Return UNSW-NB15 in windows of 4,000 rows in the order of its file, signed logarithms."""
    table = load_unsw_nb15()
    X, y = signed_log(table.data), (table.target != 0).astype(np.int64)
    starts = range(0, len(X) - 4000, 4000)
    found = [StreamWindow(X[at : at + 4000], y[at : at + 4000], np.arange(4000) % SITES) for at in starts]
    return [window for window in found if 200 < window.y.sum() < 3800]


def host_by_host(seed: int) -> Stream:
    """Return TON-IoT, signed logarithms: 8,000 normal rows of small hosts, then large hosts, each with attacks."""
    table, rng = load_ton_iot(), np.random.default_rng(seed)
    X, normal = signed_log(table.data), np.flatnonzero(table.target == 0)
    attacks = np.flatnonzero(table.target != 0)
    hosts, counts = np.unique(table.src_ip[normal], return_counts=True)
    large = hosts[counts > 1500]
    first = rng.permutation(normal[~np.isin(table.src_ip[normal], large)])[:8000]
    found = [StreamWindow(X[first], np.zeros(len(first), dtype=np.int64), np.arange(len(first)) % SITES)]
    for host in rng.permutation(large):
        own = rng.permutation(normal[table.src_ip[normal] == host])[:3000]
        for part in np.array_split(own, 3):
            some = rng.choice(attacks, len(part) // 10, replace=False)
            rows = np.concatenate([part, some])
            y = np.repeat([0, 1], [len(part), len(some)])
            found.append(StreamWindow(X[rows], y, np.full(len(rows), str(host))))
    return found


def _again(model: FedPCADetector, window: StreamWindow, before: Sequence[StreamWindow]) -> FedPCADetector:
    recent = [*before, window][-5:]
    joined = (np.concatenate([getattr(one, name) for one in recent]) for name in ("X", "y", "sites"))
    return FedPCADetector().fit(StreamWindow(*joined).normal())


def _followed(model: FedPCADetector, window: StreamWindow, before: Sequence[StreamWindow]) -> FedPCADetector:
    model.follow(window.normal(), cap=5.0)
    return model


Learner = Callable[[FedPCADetector, StreamWindow, Sequence[StreamWindow]], FedPCADetector]

#: What is done with a window after it was scored.
LEARNERS: dict[str, Learner] = {
    "fitted once": lambda model, window, before: model,
    "fitted again to the last five windows": _again,
    f"partial_fit, decay {DECAY}": lambda model, window, before: model.partial_fit(window.normal(), decay=DECAY),
    "fitted once, recalibrated by each window": lambda model, window, before: model.recalibrate(
        window.normal(), contamination=0.0
    ),
    "fitted once, threshold follows": _followed,
}


def _measured(model: FedPCADetector, window: StreamWindow) -> list[float]:
    """Return AUC, F1 and the share of false alarms in a window."""
    flagged = model.predict(window.X) == -1
    auc = roc_auc_score(window.y, -model.score_samples(window.X))
    return [auc, f1_score(window.y, flagged, zero_division=0.0), np.mean(flagged[window.y == 0])]


def judged(stream: Stream, learn: Callable[..., FedPCADetector]) -> NDArray[np.float64]:
    """Return AUC, F1 and false alarms (windows - 1, 3) of each window by the model of those before."""
    model = FedPCADetector().partial_fit(stream[0].normal())
    found = []
    for number, window in enumerate(stream[1:], start=1):
        found.append(_measured(model, window))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = learn(model, window, stream[max(0, number - 4) : number])
    return np.array(found)


def judged_by_all(make: Callable[[int], Stream], seeds: Sequence[int]) -> dict[str, list[NDArray[np.float64]]]:
    """Return what `judged` gives for each learner, by seed."""
    return {name: [judged(make(seed), learn) for seed in seeds] for name, learn in LEARNERS.items()}


def stream_table(
    title: str, found: dict[str, list[NDArray[np.float64]]], seeds: Sequence[int], since: int, remark: str
) -> Table:
    """Return AUC, F1 and false alarms of all learners in windows from number `since` on."""
    rows = []
    for name, by_seed in found.items():
        late = np.concatenate([own[max(0, since - 1) :] for own in by_seed])
        auc, f1, alarms = late.mean(axis=0)
        _, _, worst = late.max(axis=0)
        rows.append([name, f"{auc:.3f}", f"{f1:.3f}", f"{100 * alarms:.1f}", f"{100 * worst:.1f}"])
    columns = ["", "AUC", "F1", "false alarms, %", "of the worst window"]
    return Table(title, columns, rows, f"{remark} 5 % false alarms were asked for. {counted(seeds)}.")


def over_time(title: str, found: dict[str, list[NDArray[np.float64]]], seeds: Sequence[int]) -> list[Chart]:
    """Return charts of AUC, F1 and false alarms by window, means over the seeds."""
    windows = min(len(own) for by_seed in found.values() for own in by_seed)
    means = {name: np.mean([own[:windows] for own in by_seed], axis=0) for name, by_seed in found.items()}
    x = list(range(1, windows + 1))
    return [
        Chart(
            f"{title}: {what}", "window", x, {name: own[:, j].tolist() for name, own in means.items()}, counted(seeds)
        )
        for j, what in enumerate(("AUC", "F1", "false alarms"))
    ]


def noticed_table(seeds: Sequence[int]) -> Table:
    """Return after how many windows each drift is noticed, and the windows before it that raised an alarm."""
    rows = []
    for name, shift in SHIFTS.items():
        after, false, windows, clearest = [], 0, 0, set()
        for seed in seeds:
            stream = generated(shift, seed)
            model = FedPCADetector().fit(stream[0].normal())
            monitor = DriftMonitor(model)
            late = WINDOWS if shift is None else BEGIN
            for window in stream[1:]:
                model.partial_fit(window.normal(), decay=DECAY, monitor=monitor)
            found = monitor.windows
            false += sum(one.drifted for one in found[: late - 1])
            windows += late - 1
            hits = [i for i, one in enumerate(found[late - 1 :], start=1) if one.drifted]
            after += hits[:1] or [WINDOWS]
            clearest |= {found[late - 2 + hits[0]].moved[0].of} if hits else set()
        noticed = "-" if shift is None else f"{max(after)}"
        rows.append([name, noticed, ", ".join(sorted(clearest)) or "-", f"{false} of {windows}"])
    remark = f"DriftMonitor, alpha 0.001, with partial fits. {ROWS} rows of each of {SITES} sites. {counted(seeds)}."
    return Table("Drift that is noticed", ["", "in window", "clearest in", "false alarms"], rows, remark)


def poisoned_table(seeds: Sequence[int]) -> Table:
    """Return how far one malicious site of ten moves the threshold that follows, with and without a cap."""
    rows = []
    for name, cap in {"cap 0.5": 0.5, "no cap": 1e6}.items():
        moved, capped = [], 0
        for seed in seeds:
            stream = list(_poisoned(seed))
            model = FedPCADetector().fit(stream[0].normal())
            start = -model.offset_
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reached = [model.follow(federate(w.X, sites=w.sites), cap=cap).capped for w in stream[1:]]
            moved.append((-model.offset_ - start) / model.score_spread_)
            capped += any(reached)
        rows.append([name, f"{np.max(moved):.2f}", f"{capped} of {len(seeds)}"])
    remark = f"One of ten sites sends ever more unusual rows, 15 % more in each of {WINDOWS} windows. {counted(seeds)}."
    return Table("A site that poisons its rows", ["", "threshold moved, spreads", "runs with an alarm"], rows, remark)


#: Detectors that keep learning from batches of which one site's are poisoned.
GUARDS: dict[str, Callable[[], FedPCADetector]] = {
    "partial_fit by sums": FedPCADetector,
    "with solver resilient_covariance": lambda: FedPCADetector(solver="resilient_covariance"),
    "with aggregator GeometricMedian": lambda: FedPCADetector(aggregator=GeometricMedian()),
}


def poisoned_batches_table(seeds: Sequence[int]) -> Table:
    """Return AUC, F1 and false alarms of detectors that keep learning from a stream that one site poisons."""
    rows = []
    for name, make in GUARDS.items():
        found = []
        for seed in seeds:
            stream = list(_poisoned(seed))
            model = make()
            for window in stream[:-1]:
                own = window.y == 0
                model.partial_fit(window.X[own], sites=window.sites[own], decay=DECAY)
            found.append(_measured(model, generated(None, seed, WINDOWS)[-1]))  # rows of honest sites
        auc, f1, alarms = np.mean(found, axis=0)
        rows.append([name, f"{auc:.3f}", f"{f1:.3f}", f"{100 * alarms:.1f}"])
    remark = f"The same stream, learned from; rows of the last window as honest sites have them. {counted(seeds)}."
    return Table("Learning on from poisoned batches", ["", "AUC", "F1", "false alarms, %"], rows, remark)


def _poisoned(seed: int) -> Iterator[StreamWindow]:
    for number, window in enumerate(generated(None, seed)):
        X, sites = window.X.copy(), np.arange(len(window.X)) % 10
        X[sites == 0] *= 1.0 + 0.15 * number
        yield StreamWindow(X, window.y, sites)


def run(quick: bool = False) -> Results:
    """Run all tables; `quick` means one seed."""
    results = Results(
        "Detectors on streams",
        "Rows in windows, each scored by the model of the windows before: fitted once, fitted again, learning on, "
        "recalibrated, and with a threshold that follows.",
    )
    seeds = range(1) if quick else range(3)
    for name, shift in track(SHIFTS.items(), description="generated", transient=True):
        remark = f"Windows {BEGIN} to {WINDOWS - 1}, in which the drift is." if shift else "All windows."
        _add(results, f"Generated: {name}", partial(generated, shift), seeds, BEGIN if shift else 1, remark)
    results.parts.append(noticed_table(seeds))
    results.parts.append(poisoned_table(seeds))
    results.parts.append(poisoned_batches_table(seeds))
    by_host = "8,000 rows of small hosts train, then each large host has three windows."
    _add(results, "TON-IoT, host by host", host_by_host, seeds, 1, by_host)
    in_order = "Windows of 4,000 rows of the file, without those of one class."
    _add(results, "UNSW-NB15, in the order of its file", in_file_order, range(1), 1, in_order)
    return results


def _add(
    results: Results, title: str, make: Callable[[int], Stream], seeds: Sequence[int], since: int, remark: str
) -> None:
    found = judged_by_all(make, seeds)
    results.parts.append(stream_table(title, found, seeds, since, remark))
    results.parts += over_time(title, found, seeds)
